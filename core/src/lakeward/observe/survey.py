"""Where each table stands: looked up in source and lake, with or without a running service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.checkpoint.commit_records import CommitRecord, lost_commits
from lakeward.checkpoint.late_commits import is_accepted, went_back
from lakeward.errors import LakewardError
from lakeward.model.status import RoundReport, TableOffsets, TableReport
from lakeward.observe.words import count, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.results import LakeHead, OffsetCommit
    from lakeward.model.tables import BucketState, TableBucket, TableSpec
    from lakeward.ports import Lake, Source


_STOPPED = frozenset({"suspended", "failed", "backoff"})
"""Words of a table that stands still with a message. They count after the service has ended, while rows wait."""


@dataclass(frozen=True, slots=True)
class TableStanding:
    """One table. Offsets are sums over its buckets (None: unknown); times in milliseconds since 1970.

    `word` is the status in one word, `sentence` says it in full. `last_round` is what the service reported last.
    """

    path: str
    table_id: int
    word: str
    sentence: str
    tiered: int | None = None
    end: int | None = None
    lag_rows: int | None = None
    lag_s: float | None = None
    committed_ms: int | None = None
    snapshot_id: int | None = None
    last_round: RoundReport | None = None
    buckets: tuple[TableOffsets, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known besides source and lake.

    `reports` are the tables as the service reported them last, by name; their words count only while it runs.
    `paused` are tables by name, `committed` what the service committed last by table id.
    """

    running: bool
    reports: Mapping[str, TableReport]
    paused: frozenset[str]
    now_ms: int
    committed: Mapping[int, CommitRecord] = field(default_factory=dict)


def survey(source: Source, lake: Lake, tables: Sequence[TableSpec], around: Surroundings) -> list[TableStanding]:
    """Look where tables stand; a table that cannot be looked at says why and keeps nobody else from it.

    Args:
        source: open.
        lake: open.
        tables: which ones.
        around: the service, as far as it is known.

    Returns:
        One standing for each, ordered by name.
    """
    ordered = sorted(tables, key=lambda table: table.path)
    return [_standing(source, lake, table, around) for table in ordered]


def _standing(source: Source, lake: Lake, table: TableSpec, around: Surroundings) -> TableStanding:
    report = around.reports.get(str(table.path))
    last_round = None if report is None else report.round
    try:
        states = source.buckets(table)
        head = lake.head(table.path)
        if lost := lost_commits(source, table, around.committed.get(table.table_id), head):
            return TableStanding(str(table.path), table.table_id, "lake-gone", lost, last_round=last_round)
        commit = _newest_commit(head, table)
        offsets = _offsets(source, table, commit)
        record = around.committed.get(table.table_id)
        if wrong := went_back(table.path, record, head if commit is not None else None, offsets, states):
            return TableStanding(str(table.path), table.table_id, "offsets-back", wrong, last_round=last_round)
        if record is not None and head is not None and is_accepted(record, head):
            offsets = record.offsets
        since_ms = source.pending_since_ms(table, _next_offsets(states, offsets))
    except LakewardError as error:
        word, sentence = "unreadable", str(error)
        if around.running and report is not None and report.word in _STOPPED:
            word, sentence = report.word, report.sentence
        return TableStanding(str(table.path), table.table_id, word, sentence, last_round=last_round)
    lag_rows = sum(_waiting(state, offsets) for state in states)
    lag_s = 0.0 if since_ms is None or not lag_rows else max(0.0, (around.now_ms - since_ms) / 1000)
    word, sentence = _words(str(table.path), around, commit, lag_rows, lag_s)
    return TableStanding(
        path=str(table.path),
        table_id=table.table_id,
        word=word,
        sentence=sentence,
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


def _words(
    path: str, around: Surroundings, commit: OffsetCommit | None, lag_rows: int, lag_s: float
) -> tuple[str, str]:
    report = around.reports.get(path)
    if path in around.paused:
        return "paused", f"Paused by `lakeward tables pause`; {_waits(lag_rows, lag_s)}."
    if report is not None and around.running:
        return report.word, report.sentence or _plain_sentence(commit, lag_rows, lag_s)
    nobody = "" if around.running else " No service is running."
    if report is not None and report.word in _STOPPED and report.sentence and lag_rows:
        return report.word, f"{report.sentence}. {_plain_sentence(commit, lag_rows, lag_s)}{nobody}"
    word = "new" if commit is None and lag_rows else ("behind" if lag_rows else "idle")
    return word, _plain_sentence(commit, lag_rows, lag_s) + (nobody if lag_rows else "")


def _plain_sentence(commit: OffsetCommit | None, lag_rows: int, lag_s: float) -> str:
    if not lag_rows:
        return "The lake has everything." if commit is not None else "Nothing to tier yet."
    never = "Never tiered; " if commit is None else ""
    sentence = f"{never}{_waits(lag_rows, lag_s)}."
    return sentence[:1].upper() + sentence[1:]


def _waits(lag_rows: int, lag_s: float) -> str:
    if not lag_rows:
        return "nothing waits"
    verb = "waits" if lag_rows == 1 else "wait"
    return f"{count(lag_rows, 'row')} {verb}, the oldest for {seconds(lag_s)}"
