"""The status of each table, read from source and lake, with or without a running service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from lakeward.errors import LakeAwayError, LakewardError
from lakeward.model.status import RoundReport, TableOffsets, TableReport
from lakeward.observe.condition import LAKE_GONE, OFFSETS_BACK, UNREADABLE, Circumstances, table_condition
from lakeward.storage.commit_records import CommitRecord, lost_commits
from lakeward.storage.late_commits import is_accepted, went_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.results import LakeHead, OffsetCommit
    from lakeward.model.tables import BucketState, TableBucket, TablePath, TableSpec
    from lakeward.ports import Lake, Source


class TableLine(msgspec.Struct, frozen=True):
    """One table. Offsets are sums over its buckets; None is unknown.

    `report` is what the service reported last, with the lag, the times and the condition that source and lake have now:
    its phase is empty where no service runs, and its round `interrupted` if the service died during it.
    """

    report: TableReport
    tiered: int | None = None
    end: int | None = None
    snapshot_id: int | None = None
    buckets: tuple[TableOffsets, ...] = ()
    lake_partition: tuple[str, ...] = ()
    """As it is configured."""
    exchange: str = "none"
    """How its rows get to their writers: `none` or `hash`; `impossible` where it cannot have that layout."""
    service: str = ""
    """The service that tiers it, as far as is known."""
    bound: bool = False
    """No other service may tier it."""


@dataclass(frozen=True, slots=True)
class StatusContext:
    """What is known from elsewhere than source and lake.

    `reports` are the tables as the service reported them last, by name; their phase counts only while it runs.
    `paused` are tables by name, `committed` what the service committed last by table id, `freshness` returns the
    freshness that the configuration promises for a table in seconds, None where the source's own counts.
    """

    running: bool
    reports: Mapping[str, TableReport]
    paused: frozenset[str]
    now_ms: int
    committed: Mapping[int, CommitRecord] = field(default_factory=dict)
    freshness: Callable[[TablePath], float | None] | None = None
    bound_to: str = ""
    """The service that alone tiers these tables, empty where any may."""

    def freshness_s(self, table: TableSpec) -> float:
        """Return the freshness that is promised for a table, in seconds."""
        promised = self.freshness(table.path) if self.freshness is not None else None
        return table.freshness_s if promised is None else promised


class LakeHeads:
    """The heads of a lake. Once its catalog has not answered it is not asked again: each call would wait as long."""

    def __init__(self, lake: Lake) -> None:
        """Start with a catalog that is thought to answer."""
        self._lake = lake
        self._away: LakeAwayError | None = None

    def head(self, path: TablePath) -> LakeHead | None:
        """Return a table's head, None where there is no such table.

        Raises:
            LakeAwayError: the catalog does not answer, or has not before.
            LakeError: the table cannot be read.
        """
        if self._away is not None:
            raise self._away
        try:
            return self._lake.head(path)
        except LakeAwayError as away:
            self._away = away
            raise


def table_status(
    source: Source, lake: LakeHeads, tables: Sequence[TableSpec], context: StatusContext
) -> list[TableLine]:
    """Return the status of tables. One that cannot be read is `unreadable`, and does not affect the others.

    Lines are ordered by name. The source is open. `lake` has the heads of its tables, the same for all calls of one
    command.
    """
    return [_table_line(source, lake, table, context) for table in sorted(tables, key=lambda table: table.path)]


def tiered_now(
    source: Source, table: TableSpec, head: LakeHead | None, record: CommitRecord | None
) -> Mapping[TableBucket, int] | None:
    """Return the offsets up to which a lake table has its source's rows, None where nothing was ever tiered.

    The source is open. `head` is None where there is no lake table. `record` is what the service committed last, or
    what a person accepted.
    """
    commit = _newest_commit(head, table)
    if commit is None or head is None:
        return None
    if record is not None and is_accepted(record, head):
        return record.offsets
    return _offsets(source, table, commit)


def _table_line(source: Source, lake: LakeHeads, table: TableSpec, context: StatusContext) -> TableLine:
    path = str(table.path)
    known = context.reports.get(path)
    report = _without_lake(table, known, context)
    at = Circumstances(
        context.now_ms,
        context.running,
        asked=True,
        paused=path in context.paused,
        before=report.condition,
        bound_to=context.bound_to,
        offered_every_s=table.freshness_s,
    )
    try:
        table.check_readable()
        states = source.buckets(table)
        head = lake.head(table.in_lake.path)
        record = context.committed.get(table.table_id)
        if lost := lost_commits(source, table, record, head):
            report = structs.replace(report, committed_ms=None if record is None else record.committed_ms)
            return TableLine(_judged(report, structs.replace(at, wrong=LAKE_GONE, why=lost)))
        commit = _newest_commit(head, table)
        offsets = _offsets(source, table, commit)
        if wrong := went_back(table.path, record, head if commit is not None else None, offsets, states):
            return TableLine(_judged(report, structs.replace(at, wrong=OFFSETS_BACK, why=wrong)))
        if record is not None and head is not None and is_accepted(record, head):
            offsets = record.offsets
        since_ms = source.pending_since_ms(table, _next_offsets(states, offsets))
    except LakewardError as error:
        report = structs.replace(report, complete_ms=None if known is None else known.complete_ms)
        return TableLine(_judged(report, structs.replace(at, wrong=UNREADABLE, why=str(error))))
    lag_rows = sum(_waiting(state, offsets) for state in states)
    # A source without write times cannot say it: what the service said last is true still.
    complete_to_ms = known.complete_ms if since_ms is None and known is not None else since_ms
    report = structs.replace(
        report,
        never_tiered=commit is None,
        committed_ms=None if commit is None else commit.timestamp_ms,
        lag_rows=lag_rows,
        lag_s=_lag_s(lag_rows, since_ms, context.now_ms),
        complete_ms=_complete_ms(lag_rows, complete_to_ms, context.now_ms, tiered=commit is not None),
    )
    return TableLine(
        _judged(report, at),
        tiered=sum(offsets.get(state.bucket, 0) for state in states),
        end=sum(state.end for state in states),
        snapshot_id=None if commit is None else commit.snapshot_id,
        buckets=tuple(TableOffsets(state.bucket, offsets.get(state.bucket), state.end) for state in states),
    )


def _without_lake(table: TableSpec, known: TableReport | None, context: StatusContext) -> TableReport:
    """Return what the service reported last, without what source and lake are asked for anew."""
    if known is None:
        known = TableReport(str(table.path), table.table_id, "", "", None, None, 0, 0, None)
    return structs.replace(
        known,
        table_id=table.table_id,
        lag_rows=None,
        lag_s=None,
        never_tiered=False,
        committed_ms=None,
        complete_ms=None,
        freshness_s=context.freshness_s(table),
        unread_kept_s=table.unread_kept_s,
        lake_table="" if table.lake_path is None else str(table.lake_path),
        round=_last_round(known, context),
    )


def _judged(report: TableReport, at: Circumstances) -> TableReport:
    """Add the condition, and take away the phase of a service that does not run."""
    return structs.replace(report, condition=table_condition(report, at), status=report.status if at.running else "")


def _lag_s(lag_rows: int, since_ms: int | None, now_ms: int) -> float | None:
    """Return for how long the oldest row has waited, None where rows wait and the source cannot say since when."""
    if not lag_rows:
        return 0.0
    return None if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def _complete_ms(lag_rows: int, since_ms: int | None, now_ms: int, *, tiered: bool) -> int | None:
    """Return the moment up to which the lake has every row, None where it never had any of those that wait."""
    if not lag_rows:
        return now_ms
    return since_ms if tiered else None


def _last_round(report: TableReport, context: StatusContext) -> RoundReport | None:
    """Return the round that was reported last; one that ran when its service died was interrupted."""
    if report.round is None or report.round.outcome != "running" or context.running:
        return report.round
    return structs.replace(report.round, outcome="interrupted")


def _newest_commit(head: LakeHead | None, table: TableSpec) -> OffsetCommit | None:
    """Return the commit that counts: none where the lake table belongs to an earlier table of the same name."""
    if head is None or (head.table_id is not None and head.table_id != table.table_id):
        return None
    return head.commit


def _offsets(source: Source, table: TableSpec, commit: OffsetCommit | None) -> Mapping[TableBucket, int]:
    if commit is None:
        return {}
    if commit.offsets is None and commit.source_path is not None:
        return source.read_offsets(table, commit.source_path)
    return commit.offsets or {}


def _next_offsets(states: Sequence[BucketState], offsets: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
    return {state.bucket: offsets.get(state.bucket, state.start) for state in states}


def _waiting(state: BucketState, offsets: Mapping[TableBucket, int]) -> int:
    return max(0, state.end - offsets.get(state.bucket, state.start))
