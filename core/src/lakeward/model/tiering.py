"""The source's tiering queue: which table, which epoch (facts: Fluss 4.1, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class Offer:
    """A table in hand, under an epoch.

    `freshness_s` is what the table was promised, `waited_s` for how long it has been due already, as far as is known.
    """

    path: TablePath
    table_id: int
    epoch: int
    coordinator_epoch: int
    freshness_s: float
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a heartbeat says of one table: this table, under this epoch."""

    table_id: int
    epoch: int
    coordinator_epoch: int


class Refusal(Enum):
    """Why the source refused one table of a heartbeat (facts: Fluss 4.2)."""

    GONE = "gone"
    FENCED = "fenced"
    COORDINATOR_CHANGED = "coordinator_changed"
    NOT_TIERING = "not_tiering"


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat. Processed in this order: failed, renewed, finished, request."""

    renewed: tuple[Claim, ...] = ()
    finished: tuple[Claim, ...] = ()
    forced: frozenset[int] = frozenset()
    """Table ids among `finished` that are to be handed out again at once."""
    failed: tuple[Claim, ...] = ()
    request: bool = False


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What the source answered. `offer` is None where the queue is empty or nothing was requested."""

    coordinator_epoch: int
    offer: Offer | None
    refused: Mapping[int, Refusal]
    """Table id to reason; a table that is not in it was accepted."""


@dataclass(frozen=True, slots=True)
class LakeRecord:
    """What the source has on record about a table's lake snapshot."""

    snapshot_id: int
    offsets: Mapping[TableBucket, int]
