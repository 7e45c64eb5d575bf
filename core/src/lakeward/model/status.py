"""The report of a running service: written to a status file, shown as progress, read by `lakeward tables`."""

from __future__ import annotations

import msgspec

from lakeward.model.exchange import ExchangeFigures
from lakeward.model.tables import TableBucket
from lakeward.model.upkeep import FileCounts

WAITS_FOR_CATALOG = "waits for the catalog"
"""The message of a table whose last round got no answer of the catalog: `ServiceReport.lake_away` says why."""


class CheckpointReport(msgspec.Struct, frozen=True):
    """A round's checkpoints: the newest that completed, and how many were aborted.

    `name` is as `lakeward checkpoints` shows it, empty where none has completed; `completed_ms` is milliseconds since
    1970, `seconds` from its start to its end. `aborted` counts the aborted ones of this round, `reason` says
    why the last of them was.
    """

    name: str = ""
    completed_ms: int = 0
    seconds: float = 0.0
    size_bytes: int = 0
    aborted: int = 0
    reason: str = ""
    kind: str = ""
    """`aligned` or `unaligned`, empty without an exchange."""
    channel_bytes: int = 0
    """Of an exchange: rows that were in channels at the cut."""
    open_row_bytes: int = 0
    """Of an exchange: rows that were in open files at the cut."""
    blocked_s: float = 0.0
    """Of an exchange: seconds for which the alignment blocked channels, of the subtask that waited longest."""


class ExchangeReport(ExchangeFigures, frozen=True, kw_only=True):
    """The figures of all subtasks of a launch, added up; `recovery` is that of the one that is least far with it."""

    skew: float = 1.0
    """What the busiest writer received, as a multiple of the mean: 1.0 means evenly spread."""
    spill_places: tuple[str, ...] = ()
    """Where a recovery spills, in words; none: it does not."""
    spill_quota_bytes: int = 0
    """What each subtask spills at most."""
    first_checkpoint_s: float | None = None
    """From the moment in which checkpoints could be taken to the completion of the launch's first one."""


class SubtaskReport(msgspec.Struct, frozen=True):
    """One subtask of a running round.

    `state` is `reading`, `waiting` (it reads no split at the moment), `finished` or `disconnected`. `split` is what it
    reads; `rows` and `size_bytes` are what it has read of the round since it started. `seen_s` is how long ago, in
    seconds, it was heard of.
    """

    subtask: int
    attempt: int
    host: str
    state: str
    split: str
    splits_done: int
    rows: int
    size_bytes: int
    seen_s: float


class RoundReport(msgspec.Struct, frozen=True):
    """One round, running or over: of a table in `status.json`, and once it has ended a line of `rounds.jsonl`.

    `round_name` is its full name. `outcome` is `running`, `committed`, `idle`, `failed`, `dropped`, `fenced`, `stopped`
    or `stale`; who reads it after the service died shows `interrupted` for `running`. Times are milliseconds since
    1970; None is unknown. `timings_s` says where the time went: `enumerate`, `lease`, `launch`, `job` and `commit`
    follow each other; `read`, `decode`, `encode`, `upload` and others are sums over all subtasks within `job`.
    """

    round_name: str
    outcome: str
    started_ms: int
    ended_ms: int | None
    rows: int
    splits: int
    splits_done: int
    files: int
    size_bytes: int
    rows_per_s: float
    snapshot_id: int | None
    reason: str = ""
    timings_s: dict[str, float] = msgspec.field(default_factory=dict)
    checkpoint: CheckpointReport | None = None
    slots: int = 0
    """Of a running round: subtasks that Spark gave it a slot for, out of `slots_asked`."""
    slots_asked: int = 0
    exchange: ExchangeReport | None = None
    """None where each subtask writes what it reads."""
    subtasks: tuple[SubtaskReport, ...] = ()
    """Of a running round: its subtasks, ordered by number."""
    lag_rows: int | None = None
    """Of a committed round: rows that it knew of and that the lake still lacks."""
    code: str = ""
    """Of the error that it failed with, empty where none of ours says why."""
    table: str = ""
    """Empty, as `table_id` is 0, in the status file of a release that named a round's table beside it alone."""
    table_id: int = 0
    kind: str = ""
    """What it reads: `log`, `snapshots`, `snapshots and log`, or empty where it has not begun."""
    offsets: dict[str, int] = msgspec.field(default_factory=dict)
    """Of a round in `rounds.jsonl`, by bucket: those after it, empty for a table of many buckets."""
    end_offset: int | None = None
    """Their sum."""
    launches: int = 0
    """Of its Spark job, the first one included."""
    failovers: int = 0
    """How often splits came back from a lost subtask or job."""
    checkpoints: int = 0
    """Completed ones."""
    resumed_from: str = ""
    """The checkpoint that it went on from."""
    complete_ms: int | None = None
    """The lake has every row that the source had then: the start of a round that committed and left nothing that it
    knew of."""
    freshness_s: float | None = None
    """What the table is promised."""
    dropped: int = 0
    """Rows that do not fit the lake table, and are nowhere in the lake."""
    dead_letters: int = 0
    """Rows that do not fit the lake table, and are in that of its dead letters."""

    @property
    def short_name(self) -> str:
        """The name without that of the service's start: `TABLE_ID-EPOCH-NUMBER`."""
        return self.round_name.rpartition("/")[2]

    @property
    def took_s(self) -> float:
        """Seconds from its start to its end; 0 while it runs."""
        return 0.0 if self.ended_ms is None else (self.ended_ms - self.started_ms) / 1000

    @property
    def aborted(self) -> int:
        """Checkpoints that did not complete."""
        return 0 if self.checkpoint is None else self.checkpoint.aborted

    @property
    def missed_by_s(self) -> float | None:
        """By how much the lake was older at the round's end than promised; 0 if it was not, None if unknown."""
        if self.ended_ms is None or self.complete_ms is None or self.freshness_s is None:
            return None
        return max(0.0, (self.ended_ms - self.complete_ms) / 1000 - self.freshness_s)


class UpkeepReport(msgspec.Struct, frozen=True):
    """The newest job of upkeep of a table, such as a compaction, running or over.

    `state` is `running`, `committed`, `cancelled` or `failed`; the last two have a `reason`. `files` of `size_bytes`
    in all are replaced, by `files_after` of `size_bytes_after` (0 before it is committed). Times are milliseconds since
    1970.
    """

    what: str
    state: str
    tasks: int
    files: int
    size_bytes: int
    started_ms: int
    files_after: int = 0
    size_bytes_after: int = 0
    ended_ms: int | None = None
    reason: str = ""


class TableCondition(msgspec.Struct, frozen=True):
    """How a table is, for an operator: one status, its cause, what to do, and since when.

    `lakeward.observe.condition` decides it and lists every `status`. `action` is empty where nothing is to be done.
    `since_ms` is in milliseconds since 1970, None where nobody noted it.
    """

    status: str
    message: str
    action: str = ""
    since_ms: int | None = None


class ReplayReport(msgspec.Struct, frozen=True):
    """The newest replay of a table's dead letters: so many rows were put in, and so many stay.

    `at_ms` is when the round began that it came before, in milliseconds since 1970. `reason` says why it failed, empty
    where it did not.
    """

    put_in: int = 0
    stay: int = 0
    reason: str = ""
    at_ms: int = 0


class TableReport(msgspec.Struct, frozen=True):
    """One table as the service sees it. `status` is its phase, `message` says what is wrong, if anything.

    Times are milliseconds since 1970, None where unknown. What an operator is shown is its `condition`.
    """

    path: str
    table_id: int
    status: str
    message: str
    lag_rows: int | None
    lag_s: float | None
    rounds: int
    rows: int
    round: RoundReport | None
    condition: TableCondition | None = None
    """None in the report of a service before it is published."""
    due_ms: int | None = None
    """When the promise is missed, if no round succeeds before; None where it was not assigned since one has."""
    failing_since_ms: int | None = None
    """When the first round failed since the last one that succeeded."""
    never_tiered: bool = False
    """The service found no commit of it in the lake, and has made none."""
    failure: str = ""
    """Why the last of these rounds failed."""
    code: str = ""
    """Of the error that it failed with, empty where none of ours says why."""
    freshness_s: float | None = None
    """The freshness that was promised for it."""
    complete_ms: int | None = None
    """The lake has every row that the source had at this moment."""
    committed_ms: int | None = None
    """When a round of it was committed last, since the service started."""
    queue_position: int | None = None
    """1 for the table whose round starts next, None where it does not wait."""
    lake_files: int | None = None
    """Data and delete files of the lake table after its last round."""
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    """Its rounds that ended since the service started, by outcome."""
    layout: str = ""
    """How its rows lie in the lake, in words; empty before its first round since the service started."""
    unread_kept_s: float | None = None
    """Seconds after which the source deletes rows that the lake lacks; None: it keeps them, or does not say."""
    leased: int = 0
    """KV snapshots of it that the service's lease holds."""
    upkeep: UpkeepReport | None = None
    """None where no job of upkeep was launched since the service started."""
    counts: FileCounts | None = None
    """The files of the lake table when upkeep was planned last; None where it was not, or the lake does not count."""
    dropped: int = 0
    """Rows that did not fit the lake table and are nowhere in the lake, since the service started."""
    dead_letters: int = 0
    """Rows that did not fit the lake table and are dead letters, since the service started."""
    lake_table: str = ""
    """The lake table's name where it is another one, once the table had a round since the service started."""
    replay: ReplayReport | None = None
    """None where no dead letters were replayed since the service started."""

    @property
    def shown(self) -> TableCondition:
        """Its condition; in a report that is not published, its phase."""
        return self.condition or TableCondition(self.status, self.message)


class LakeAway(msgspec.Struct, frozen=True):
    """The lake's catalog does not answer, since `since_ms` (milliseconds since 1970), and `tables` wait for it."""

    since_ms: int
    tables: int
    reason: str


class ServiceReport(msgspec.Struct, frozen=True):
    """The whole service at one moment."""

    service: str
    incarnation: str
    pid: int
    state: str
    """`starting`, `serving`, `stopping`, `stopped`."""
    written_ms: int
    spark_ui: str | None
    tables: tuple[TableReport, ...]
    lease_id: str | None
    leased: int
    releasing: int
    lease_message: str = ""
    held_for_checkpoints: int = 0
    """Those of `leased` that a checkpoint has still to read, with or without a round."""
    snapshots_gone: int = 0
    """Snapshots that were needed and found to be gone, since the start."""
    host: str = ""
    """The machine that the service runs on; `pid` is a process of it."""
    started_ms: int = 0
    lake_away: LakeAway | None = None
    """None while the catalog answers."""
    lease_expires_ms: int | None = None
    """When the lease ends unless it is renewed, None where that is unknown or never."""
    state_free_bytes: int | None = None
    """Free bytes of the disk that `checkpoint.root` is on; None where it is a store, or nobody can tell."""

    @property
    def running(self) -> tuple[tuple[TableReport, RoundReport], ...]:
        """Each table whose round runs, with that round; of a service that has died, those that ran."""
        rounds = ((table, table.round) for table in self.tables)
        return tuple((table, one) for table, one in rounds if one is not None and one.outcome == "running")


class TableOffsets(msgspec.Struct, frozen=True):
    """`lakeward tables`: one bucket's offsets."""

    bucket: TableBucket
    tiered: int | None
    end: int
