"""What a round starts from: its table, the lake's head, the offsets in it, the buckets and the splits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.layout import SOURCE_LAYOUT, LakeLayout
from lakeward.machines.splits import Enumeration
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.results import LakeHead
from lakeward.model.tables import BucketState, TableBucket, TableSpec

if TYPE_CHECKING:
    from lakeward.model.status import ReplayReport
    from lakeward.ports import Source


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Everything that a round starts from.

    `tiered` holds the offsets in the lake's head, or those that an operator accepted (`lakeward tables accept`).
    """

    table: TableSpec
    head: LakeHead
    tiered: Mapping[TableBucket, int]
    buckets: Sequence[BucketState]
    enumeration: Enumeration
    layout: LakeLayout = SOURCE_LAYOUT
    bad_rows_most: float = math.inf
    """So many rows of the round may not fit the lake table, or below 1 this share of its records."""
    replay: ReplayReport | None = None
    """That of dead letters which was done before, None where nobody asked for one."""

    @property
    def base_commit(self) -> int | None:
        """Snapshot id of the commit whose offsets the round starts from."""
        return self.head.commit.snapshot_id if self.head.commit else None

    @property
    def gathered(self) -> bool:
        """Whether the rows of all buckets go to the one writer of their partition, which is not so by itself."""
        layout = self.layout
        by_partition = layout.exchange is ExchangeMode.HASH and not layout.route_by_bucket
        return by_partition and not self.table.has_primary_key

    def waiting_rows(self, offsets: Mapping[TableBucket, int]) -> int:
        """Return how many records of the buckets' known ends are not contained in `offsets`."""
        return sum(max(0, state.end - max(offsets.get(state.bucket, 0), state.start)) for state in self.buckets)


def tiered_offsets(source: Source, table: TableSpec, head: LakeHead | None) -> Mapping[TableBucket, int]:
    """Return the next offset to tier, by bucket, from the lake's newest commit that carries offsets.

    Empty where nothing was ever tiered. `source` reads an offsets file where the commit only names one. `head` is None
    where there is no lake table.
    """
    if head is None or head.commit is None:
        return {}
    if head.commit.offsets is not None:
        return head.commit.offsets
    return source.read_offsets(table, head.commit.source_path or "")
