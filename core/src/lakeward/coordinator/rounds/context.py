"""Reads and checks what a round starts from: lake table, stamp, source's record, buckets and splits. Blocking.

The lake's head is the truth about offsets; the source's own record is repaired when it lags, contradicts or cannot
answer (exactly-once.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.rounds.layout import (
    SOURCE_LAYOUT,
    LakeLayout,
    check_bucket_counts,
    check_splits,
    resolve_layout,
)
from lakeward.coordinator.rounds.mirroring import MIRROR, as_configured
from lakeward.errors import LakeTableGoneError, LakewardError, OffsetsWentBackError, SourceError, TableGoneError
from lakeward.machines.splits import Enumeration, enumerate_splits
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.results import LakeHead
from lakeward.model.tables import BucketState, TableBucket, TableSpec
from lakeward.storage.commit_records import CommitRecord, lost_commits
from lakeward.storage.late_commits import is_accepted, went_back

if TYPE_CHECKING:
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import OffsetCommit
    from lakeward.model.settings import TableSettings
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import Lake, Source
    from lakeward.storage.commit_records import CommitRecords

_log = structlog.get_logger("lakeward.rounds")


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

    @property
    def base_commit(self) -> int | None:
        """Snapshot id of the commit whose offsets the round starts from."""
        return self.head.commit.snapshot_id if self.head.commit else None

    def waiting_rows(self, offsets: Mapping[TableBucket, int]) -> int:
        """Return how many records of the buckets' known ends are not contained in `offsets`."""
        return sum(max(0, state.end - max(offsets.get(state.bucket, 0), state.start)) for state in self.buckets)


def start_round(  # noqa: PLR0917 - the two sides, whose round it is, and its rules
    source: Source,
    lake: Lake,
    assignment: TableAssignment,
    incarnation: Incarnation,
    committed: CommitRecords,
    rules: TableSettings,
    *,
    gangs: bool = True,
) -> RoundContext:
    """Return what a round on a table starts from.

    The lake table is stamped with `incarnation`, this start's, unless it already is. A mirrored table has no record in
    the source. `gangs`: see `resolve_layout`.

    Raises:
        ConfigError: the table cannot have the lake layout that is configured; nothing was created.
        TableGoneError: dropped, or another table of that name.
        LakeTableGoneError: the lake table that held commits is not there; nothing was created.
        OffsetsWentBackError: another service's late commit is behind our own newest one.
        FencedError: a later start of our own service holds the stamp.
        SchemaMismatchError: source and lake do not fit; nothing was created if the source has another lake.
        LogTruncatedError: records that were never tiered are gone.
        OffsetsBeyondLogError: the lake's offsets are beyond the end of the source's log.
    """
    table = as_configured(_same_table(source, assignment), rules)
    layout = resolve_layout(table, rules, gangs=gangs)
    if rules.mode != MIRROR:
        table.check_lake(lake.name)
    record = committed.read(table.table_id)
    if lost := lost_commits(source, table, record, lake.head(table.path)):
        raise LakeTableGoneError(lost)
    lake.open_table(table, incarnation)
    head = lake.stamp(table.path, incarnation)
    buckets = source.buckets(table)
    check_bucket_counts(table, buckets)
    tiered = tiered_offsets(source, table, head)
    if wrong := went_back(table.path, record, head, tiered, buckets):
        raise OffsetsWentBackError(wrong)
    if record is not None and is_accepted(record, head):
        tiered = record.offsets
    if head.commit is not None:
        _remember(committed, table, record, head.commit, tiered)
    # With an exchange a file mixes splits, so a later range could not be left out of a commit.
    most = 0 if layout.exchange is ExchangeMode.HASH else rules.max_split_rows
    enumeration = enumerate_splits(buckets, tiered, primary_key=table.has_primary_key, max_split_rows=most)
    check_splits(table, layout, enumeration.splits)
    if head.commit is not None and rules.mode != MIRROR:
        # Only after this check: a source that was re-created must not be given offsets that it never had.
        _repair(source, table, head.commit, tiered)
    return RoundContext(table, head, tiered, buckets, enumeration, layout)


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


def _remember(
    committed: CommitRecords,
    table: TableSpec,
    record: CommitRecord | None,
    commit: OffsetCommit,
    tiered: Mapping[TableBucket, int],
) -> None:
    """Update this service's record of the lake's newest commit; a failure is logged and does not stop the round."""
    if record is not None and record.snapshot_id == commit.snapshot_id:
        return
    try:
        committed.write(CommitRecord(table.path, table.table_id, commit.snapshot_id, tiered, commit.timestamp_ms))
    except LakewardError as error:
        _log.warning("the record of the newest commit was not written", table=str(table.path), reason=str(error))


def _same_table(source: Source, assignment: TableAssignment) -> TableSpec:
    table = source.table(assignment.path)
    if table.table_id != assignment.table_id:
        expected, found = assignment.table_id, table.table_id
        message = f"table {assignment.path}: expected id {expected}, found {found}; it was created anew"
        raise TableGoneError(message)
    return table


def _repair(source: Source, table: TableSpec, commit: OffsetCommit, tiered: Mapping[TableBucket, int]) -> None:
    try:
        record = source.lake_record(table)
    except SourceError as error:
        _log.warning("the source cannot read its lake record; repairing it", table=str(table.path), reason=str(error))
        record = None
    if record is not None and record.snapshot_id == commit.snapshot_id and dict(record.offsets) == dict(tiered):
        return
    _log.info("repairing the source's lake record", table=str(table.path), snapshot_id=commit.snapshot_id)
    source.commit(table, commit.snapshot_id, source.prepare(table, tiered), tiered)
