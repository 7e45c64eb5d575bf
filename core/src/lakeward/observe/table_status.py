"""The status of each table, read from source and lake, with or without a running service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.errors import LakewardError
from lakeward.model.status import RoundReport, TableOffsets, TableReport
from lakeward.observe.format import count, seconds
from lakeward.storage.commit_records import CommitRecord, lost_commits
from lakeward.storage.late_commits import is_accepted, went_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.results import LakeHead, OffsetCommit
    from lakeward.model.tables import BucketState, TableBucket, TableSpec
    from lakeward.ports import Lake, Source


_STOPPED = frozenset({"suspended", "failed", "backoff"})
"""Statuses of a table that is not tiered, with a message. They are shown after the service ended while rows wait."""


@dataclass(frozen=True, slots=True)
class TableLine:
    """One table. Offsets are sums over its buckets (None: unknown); times in milliseconds since 1970.

    `status` is one word, `message` explains it. `last_round` is the round that the service reported last.
    """

    path: str
    table_id: int
    status: str
    message: str
    tiered: int | None = None
    end: int | None = None
    lag_rows: int | None = None
    lag_s: float | None = None
    committed_ms: int | None = None
    snapshot_id: int | None = None
    last_round: RoundReport | None = None
    buckets: tuple[TableOffsets, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusContext:
    """What is known from elsewhere than source and lake.

    `reports` are the tables as the service reported them last, by name; their status counts only while it runs.
    `paused` are tables by name, `committed` what the service committed last by table id.
    """

    running: bool
    reports: Mapping[str, TableReport]
    paused: frozenset[str]
    now_ms: int
    committed: Mapping[int, CommitRecord] = field(default_factory=dict)


def table_status(source: Source, lake: Lake, tables: Sequence[TableSpec], context: StatusContext) -> list[TableLine]:
    """Return the status of tables. One that cannot be read is `unreadable`, and does not affect the others.

    Args:
        source: open.
        lake: open.
        tables: which ones.
        context: what is known of the service.

    Returns:
        One line for each, ordered by name.
    """
    ordered = sorted(tables, key=lambda table: table.path)
    return [_table_line(source, lake, table, context) for table in ordered]


def _table_line(source: Source, lake: Lake, table: TableSpec, context: StatusContext) -> TableLine:
    report = context.reports.get(str(table.path))
    last_round = None if report is None else report.round
    try:
        states = source.buckets(table)
        head = lake.head(table.path)
        if lost := lost_commits(source, table, context.committed.get(table.table_id), head):
            return TableLine(str(table.path), table.table_id, "lake-gone", lost, last_round=last_round)
        commit = _newest_commit(head, table)
        offsets = _offsets(source, table, commit)
        record = context.committed.get(table.table_id)
        if wrong := went_back(table.path, record, head if commit is not None else None, offsets, states):
            return TableLine(str(table.path), table.table_id, "offsets-back", wrong, last_round=last_round)
        if record is not None and head is not None and is_accepted(record, head):
            offsets = record.offsets
        since_ms = source.pending_since_ms(table, _next_offsets(states, offsets))
    except LakewardError as error:
        status, message = "unreadable", str(error)
        if context.running and report is not None and report.status in _STOPPED:
            status, message = report.status, report.message
        return TableLine(str(table.path), table.table_id, status, message, last_round=last_round)
    lag_rows = sum(_waiting(state, offsets) for state in states)
    lag_s = 0.0 if since_ms is None or not lag_rows else max(0.0, (context.now_ms - since_ms) / 1000)
    status, message = _status(str(table.path), context, commit, lag_rows, lag_s)
    return TableLine(
        path=str(table.path),
        table_id=table.table_id,
        status=status,
        message=message,
        tiered=sum(offsets.get(state.bucket, 0) for state in states),
        end=sum(state.end for state in states),
        lag_rows=lag_rows,
        lag_s=lag_s,
        committed_ms=None if commit is None else commit.timestamp_ms,
        snapshot_id=None if commit is None else commit.snapshot_id,
        last_round=last_round,
        buckets=tuple(TableOffsets(state.bucket, offsets.get(state.bucket), state.end) for state in states),
    )


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


def _status(
    path: str, context: StatusContext, commit: OffsetCommit | None, lag_rows: int, lag_s: float
) -> tuple[str, str]:
    report = context.reports.get(path)
    if path in context.paused:
        return "paused", f"Paused by `lakeward tables pause`; {_waits(lag_rows, lag_s)}."
    if report is not None and context.running:
        return report.status, report.message or _lag_message(commit, lag_rows, lag_s)
    no_service = "" if context.running else " No service is running."
    if report is not None and report.status in _STOPPED and report.message and lag_rows:
        return report.status, f"{report.message}. {_lag_message(commit, lag_rows, lag_s)}{no_service}"
    status = "new" if commit is None and lag_rows else ("behind" if lag_rows else "idle")
    return status, _lag_message(commit, lag_rows, lag_s) + (no_service if lag_rows else "")


def _lag_message(commit: OffsetCommit | None, lag_rows: int, lag_s: float) -> str:
    if not lag_rows:
        return "The lake has everything." if commit is not None else "Nothing to tier yet."
    never = "Never tiered; " if commit is None else ""
    message = f"{never}{_waits(lag_rows, lag_s)}."
    return message[:1].upper() + message[1:]


def _waits(lag_rows: int, lag_s: float) -> str:
    if not lag_rows:
        return "nothing waits"
    verb = "waits" if lag_rows == 1 else "wait"
    return f"{count(lag_rows, 'row')} {verb}, the oldest for {seconds(lag_s)}"
