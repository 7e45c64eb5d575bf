"""Mutants of what lies between the machines: what coordinator and subtask do in which order. For the simulator."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import structs

from lakeward.coordinator.checkpoints import restorer as restoring
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.committer import Committer
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.commits.letter_committer import LetterCommitter
from lakeward.coordinator.commits.round_committer import RoundCommitter
from lakeward.coordinator.effects import open as opening
from lakeward.coordinator.effects.launch import Launching
from lakeward.coordinator.effects.plan import Planning
from lakeward.coordinator.rounds.context import RoundContext
from lakeward.coordinator.rounds.effects import CompleteCheckpoint, EffectDone
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.messages import SplitResult
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.coordinator.rounds.round import Round
from lakeward.coordinator.tables.table import Table
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.table_locks import TableLocks
from lakeward.errors import FencedError, LakewardError, OutcomeUnknownError
from lakeward.machines.checkpoints import messages as checkpoints
from lakeward.machines.splits import SplitDone, enumerate_splits
from lakeward.machines.transport.channel import Channel
from lakeward.model.checkpoints import Origin, SplitProgress
from lakeward.model.events import Cancel, SplitFinished
from lakeward.model.splits import LogSplit
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.subtask.assigned_splits import AssignedSplits
from lakeward.subtask.no_exchange import NoExchange
from lakeward.subtask.subtask import Subtask
from lakeward.subtask.work import SplitWork
from lakeward_mutants.changed import handle
from lakeward_mutants.released import Release, execute_releases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import pytest

    from lakeward.coordinator.rounds.effects import Effect, Plan, StartLaunch
    from lakeward.coordinator.rounds.plan import JobPlan
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.events import Envelope
    from lakeward.model.results import LakeHead
    from lakeward.model.settings import TableSettings
    from lakeward.ports import Connection
    from lakeward.storage.round_journal import PendingLetters, RoundJournal

# --- when snapshots, journals and answers come ---------------------------------------------------------------------


def releases_with_each_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of a split is given up once its finish is heard, before any checkpoint holds that."""
    original = Job._EVENTS[SplitResult]

    def read(job: Job, event: SplitResult) -> Iterable[Any]:
        yield from original(job, event)
        yield Release(job._facts.table_id, frozenset({event.result.bucket}))

    execute_releases(monkeypatch)
    handle(monkeypatch, Job._EVENTS, SplitResult, read)


def launches_before_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is written while the job is being launched already."""
    start_launch = Launching.start
    unwritten: dict[str, Any] = {}

    def prepare(self: Planning, effect: Plan, rules: TableSettings, latest: int) -> tuple[RoundJournal, JobPlan]:
        committer = self._committer
        journal = committer._journal(effect.round_id, effect.context.table, effect.context.head)
        unwritten[str(effect.round_id)] = partial(committer._journals.write, journal)
        return journal, self.plan(effect, rules, latest)

    def start(self: Launching, one: Round, effect: StartLaunch) -> None:
        write = unwritten.pop(effect.spec.round_name, None)
        if write is not None:
            self._loop.spawn(partial(call, write, what="journal"))
        start_launch(self, one, effect)

    monkeypatch.setattr(Planning, "_prepare", prepare)
    monkeypatch.setattr(Launching, "start", start)


def acknowledges_a_part_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask says that its part is in the store, and then writes it, whatever comes of that."""
    original = CheckpointFiles.write_part

    def write(self: CheckpointFiles, ref: CheckpointRef, snapshot: Any) -> Any:  # noqa: ANN401 - passed on
        files: Any = self._files
        before = files.write
        try:
            files.write = partial(_quietly, before)
            return original(self, ref, snapshot)
        finally:
            files.write = before

    monkeypatch.setattr(CheckpointFiles, "write_part", write)


def builds_on_a_checkpoint_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are released, and steps committed, while `_metadata` is still being written."""
    store, stored = Job._COMMANDS[checkpoints.StoreCheckpoint], Round._DONE[CompleteCheckpoint]
    said_before_s = -1.0

    def begin(job: Job, command: object, event: object) -> Iterable[Any]:
        for follows in store(job, command, event):
            yield follows
            if isinstance(follows, CompleteCheckpoint):
                yield EffectDone(follows, 100, said_before_s)

    def answered(one: Round, answer: EffectDone) -> Iterable[Any]:
        return stored(one, answer) if answer.seconds == said_before_s else ()

    handle(monkeypatch, Job._COMMANDS, checkpoints.StoreCheckpoint, begin)
    handle(monkeypatch, Round._DONE, CompleteCheckpoint, answered)
    handle(monkeypatch, Round._NOT_DONE, CompleteCheckpoint, lambda *_: ())


# --- where a split goes on -----------------------------------------------------------------------------------------


def goes_on_one_row_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that is gone on with leaves one row out."""
    _bind(monkeypatch, 1)


def goes_on_one_row_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that is gone on with reads one row again."""
    _bind(monkeypatch, -1)


def ignores_restored_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that is gone on with keeps its files, and reads from its beginning all the same."""
    _bind(monkeypatch, None)


def tells_nobody_how_far_a_split_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new attempt gets every split at its beginning, though steps of it may have been committed."""
    monkeypatch.setattr(RoundProgress, "progress_of", lambda _self, split: SplitProgress.beginning(split))


def counts_rows_that_are_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split is said to be as far as was read, not as far as closed files go."""

    def note(self: SplitWork) -> None:
        self._flushed = SplitProgress(self.split, self._account.position, (), self.rows, self._max_timestamp_ms)

    monkeypatch.setattr(SplitWork, "_note_flushed", note)


def forgets_splits_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of splits that a subtask holds, and has not begun, are not in its part."""
    monkeypatch.setattr(AssignedSplits, "roll", lambda self: () if self.work is None else (self.work.roll(),))


# --- who is listened to --------------------------------------------------------------------------------------------


def hears_old_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finish that a replaced attempt still says counts for whoever has its split now."""

    def hear(self: Round, job: Job, key: ChannelKey, connection: Connection, envelope: Envelope) -> tuple[Effect, ...]:
        job.may_have_orphans = True
        event = envelope.event
        effects: tuple[Effect, ...] = ()
        holder = job.splits.holders.get(event.result.split_id) if isinstance(event, SplitFinished) else None
        if isinstance(event, SplitFinished) and holder is not None:
            result, now = event.result, self._clock.now()
            subtask, attempt = holder
            done = SplitDone(
                now=now, subtask=subtask, attempt=attempt, split_id=result.split_id, end_offset=result.end_offset
            )
            nobodys = Origin(key.job_attempt, key.subtask, key.task_attempt, -envelope.sequence)
            effects = self.process(SplitResult(done, result, nobodys, event.read_bytes))
        _refuse(key, connection)
        return effects

    monkeypatch.setattr(Round, "_receive_late", hear)


def adopts_files_of_stale_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a replaced attempt wrote is added to the finish that counts."""

    def hear(_: Round, job: Job, key: ChannelKey, connection: Connection, envelope: Envelope) -> tuple[()]:
        event, results = envelope.event, job.progress.results
        if isinstance(event, SplitFinished) and (known := results.get(event.result.split_id)) is not None:
            more = tuple(file for file in event.result.files if file not in known.files)
            results[known.split_id] = structs.replace(known, files=(*known.files, *more))
        _refuse(key, connection)
        return ()

    monkeypatch.setattr(Round, "_receive_late", hear)


def deletes_what_a_stale_attempt_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a late finish are deleted, though a checkpoint gave them to somebody else."""
    monkeypatch.setattr(RoundProgress, "not_ours", lambda _self, files: list(files))
    monkeypatch.setattr(
        Cleaner, "discard", lambda self, _path, _table_id, files: self._lake.delete([*files]) if files else None
    )


def sends_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not acknowledged when a connection broke is lost."""
    monkeypatch.setattr(Channel, "unacked", lambda _self: ())


def sees_no_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody notes that files of lost attempts may lie about."""
    monkeypatch.setattr(
        Job, "may_have_orphans", property(lambda _self: False, lambda _self, _value: None), raising=False
    )


def stops_for_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask whose coordinator does not answer writes on."""

    def show(self: Subtask) -> None:
        if self.gateway is not None:  # it is deployed
            self._link.heartbeat()

    monkeypatch.setattr(Subtask, "_send_heartbeat", show)


# --- commits -------------------------------------------------------------------------------------------------------


def looks_for_no_own_commit_when_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FENCED after a try of unknown outcome is believed: that try may be what fences."""
    fenced: list[bool] = [False]
    original, find = Committer._to_lake, Committer._find

    def to_lake(self: Committer, work: Any, prepared: str) -> int:  # noqa: ANN401 - passed on
        lake: Any = self._lake

        class Watched:
            def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - passed on
                return getattr(lake, name)

            def commit(self, request: Any) -> Any:  # noqa: ANN401 - passed on
                try:
                    return lake.commit(request)
                except FencedError:
                    fenced[0] = True
                    raise

        return original(Committer(self._source, Watched(), self._clock, self._pauses), work, prepared)

    def look(self: Committer, work: Any, patience: Any) -> int | None:  # noqa: ANN401 - passed on
        if fenced[0]:
            fenced[0] = False
            return None
        return find(self, work, patience)

    monkeypatch.setattr(Committer, "_to_lake", to_lake)
    monkeypatch.setattr(Committer, "_find", look)


def commits_without_a_fresh_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether the table is still in hand."""
    monkeypatch.setattr(CommitFence, "check", lambda *_: None)


def deletes_what_an_unknown_commit_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of unknown outcome is taken for one that failed."""
    original = Committer._to_lake

    def to_lake(self: Committer, work: Any, prepared: str) -> int:  # noqa: ANN401 - passed on
        lake: Any = self._lake

        class Hasty:
            def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - passed on
                return getattr(lake, name)

            def commit(self, request: Any) -> Any:  # noqa: ANN401 - passed on
                try:
                    return lake.commit(request)
                except OutcomeUnknownError:
                    lake.delete(lake.commit_leftovers(request.path, request.ids))
                    raise

        return original(Committer(self._source, Hasty(), self._clock, self._pauses), work, prepared)

    monkeypatch.setattr(Committer, "_to_lake", to_lake)


def writes_no_commit_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of a commit are in no journal: a later start takes its round for one that never tried."""
    monkeypatch.setattr(RoundCommitter, "_add_ids", lambda _self, journal, _ids: journal)


def stamps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is opened without fencing earlier starts; the fence takes any stamp."""
    from lakeward_simulator import lake  # noqa: PLC0415 - as the fence's own mutant

    def check(table: Any, request: Any) -> None:  # noqa: ANN401 - passed on
        base = table.newest.number if table.newest is not None else None
        if base != request.base_commit:
            message = f"{request.path}: expected base commit {request.base_commit}, found {base}"
            raise FencedError(message)

    monkeypatch.setattr(lake, "_check_fence", check)


def commits_a_round_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round counts as in work for ever."""
    over: WeakSet[Round] = WeakSet()

    def end(self: Round, is_over: object) -> None:
        if is_over:
            over.add(self)

    def at_rest(self: Round) -> bool:
        return self in over and not self.running and not self._pending and not self.awaits_store

    monkeypatch.setattr(Round, "ended", property(lambda _self: False, end), raising=False)
    monkeypatch.setattr(Round, "at_rest", property(at_rest))
    monkeypatch.setattr(CommitFence, "end", lambda *_: None)


def works_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening, commits and sweeps of one table do not wait for each other."""
    original = TableLocks.hold

    def hold(self: TableLocks, path: Any, purpose: str, **named: Any) -> Any:  # noqa: ANN401 - passed on
        return original(TableLocks(), path, purpose, **named)

    monkeypatch.setattr(TableLocks, "hold", hold)


# --- clean-up and restore ------------------------------------------------------------------------------------------


def sweeps_before_a_commit_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a round sweeps what earlier rounds tried to commit as well."""

    def before(self: Cleaner, path: Any, _newest: Any) -> None:  # noqa: ANN401 - passed on
        for journal in self._of(path):
            self._sweep(journal)

    monkeypatch.setattr(Cleaner, "before_round", before)


def waits_for_its_own_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a round leaves what an earlier round tried to commit, although a later commit has landed since."""
    monkeypatch.setattr(Cleaner, "_is_decided", lambda *_: False)


def spares_no_living_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep deletes what tasks of another round of ours are writing."""
    monkeypatch.setattr(Cleaner, "begin", lambda *_: None)


def sweeps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What processes write that live on for a while after a sweep stays."""

    def sweep(self: Cleaner, journal: RoundJournal) -> None:
        if journal.round_id not in self._live:
            self._delete_files(journal)
            self._journals.delete(journal)

    monkeypatch.setattr(Cleaner, "_sweep", sweep)


def believes_that_each_task_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks write of a job that Spark says has ended stays."""
    end = Cleaner.end
    monkeypatch.setattr(Cleaner, "end", lambda *of, **_: end(*of, may_write=False))


def goes_on_from_any_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lake's newest commit is does not matter."""
    monkeypatch.setattr(restoring, "why_not", lambda *_: "")


def goes_on_from_the_oldest_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several the first one is taken, and files of the later ones are left out of the books."""
    original = Restorer._droppable
    monkeypatch.setattr(Restorer, "_droppable", lambda self, table_id: [*reversed(original(self, table_id))])


def forgets_what_steps_have_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored round does not know which of its files are in the lake."""
    original = RoundFacts.start_from

    def start_from(self: RoundFacts, *given: Any) -> None:  # noqa: ANN401 - passed on
        original(self, *given)
        self.in_lake = frozenset()

    monkeypatch.setattr(RoundFacts, "start_from", start_from)


def acquires_nothing_for_a_restored_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots that a checkpoint still has to read are left unprotected."""
    original = Table.snapshots.fget  # type: ignore[attr-defined] # a property

    def snapshots(self: Table) -> Any:  # noqa: ANN401 - passed on
        return () if self.round is not None and self.round.facts.restored is not None else original(self)

    monkeypatch.setattr(Table, "snapshots", property(snapshots))


def tells_no_finish_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part names no finish that its gateway held back."""
    original = NoExchange.trigger

    def trigger(self: NoExchange, cut: Any, checkpointing: Any, *, progress: Any) -> None:  # noqa: ANN401 - passed on
        original(self, replace(cut, blocked=()), checkpointing, progress=progress)

    monkeypatch.setattr(NoExchange, "trigger", trigger)


# --- counts of buckets that change -------------------------------------------------------------------------------


def looks_at_no_count_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written that the source divides by another count than the lake: its readers do not find them."""
    monkeypatch.setattr(opening, "with_bucket_counts", lambda table, _buckets, _lake: table)


def reads_new_buckets_from_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that a table of which the lake has rows has got since is taken for one that has been tiered."""

    def enumerate_late(buckets: Any, tiered: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on
        ends = {state.bucket: state.end for state in buckets} if tiered else {}
        return enumerate_splits(buckets, {**ends, **tiered}, **options)

    monkeypatch.setattr(opening, "enumerate_splits", enumerate_late)


def counts_no_result_that_nobody_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a checkpoint that a lost attempt was to send again is done, and in no file of the round."""
    monkeypatch.setattr(RoundProgress, "accept_restored", lambda *_: None)


def protects_what_the_store_lists_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a round goes on with are deleted once the delete of its checkpoint takes effect."""
    original = Restorer.named

    def named(self: Restorer, table_id: int) -> frozenset[str]:
        self.known.landed(table_id)
        return original(self, table_id)

    monkeypatch.setattr(Restorer, "named", named)


def believes_the_journal_of_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters that another start has committed are committed again where a slow write brings their journal back."""
    original = LetterCommitter._found

    def found(self: LetterCommitter, journal: RoundJournal, letters: PendingLetters, head: LakeHead) -> bool:
        return original(self, journal, letters, replace(head, commit=None))

    monkeypatch.setattr(LetterCommitter, "_found", found)


def forgets_that_buckets_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint of a round does not say so: it goes on with another division of its rows."""
    monkeypatch.setattr(RoundContext, "gathered", False)


SEAMS = (
    forgets_that_buckets_are_gathered,
    counts_no_result_that_nobody_sends_again,
    protects_what_the_store_lists_alone,
    believes_the_journal_of_letters,
    looks_at_no_count_of_buckets,
    reads_new_buckets_from_their_end,
    releases_with_each_finish,
    launches_before_the_journal,
    acknowledges_a_part_before_it_is_written,
    builds_on_a_checkpoint_before_it_is_stored,
    goes_on_one_row_late,
    goes_on_one_row_early,
    ignores_restored_positions,
    tells_nobody_how_far_a_split_is,
    counts_rows_that_are_in_no_file,
    forgets_splits_that_wait,
    hears_old_attempts,
    adopts_files_of_stale_attempts,
    deletes_what_a_stale_attempt_names,
    sends_nothing_again,
    sees_no_orphans,
    stops_for_no_silence,
    looks_for_no_own_commit_when_fenced,
    commits_without_a_fresh_heartbeat,
    deletes_what_an_unknown_commit_wrote,
    writes_no_commit_down,
    stamps_nothing,
    commits_a_round_that_is_over,
    works_side_by_side,
    sweeps_before_a_commit_is_settled,
    waits_for_its_own_commit,
    spares_no_living_round,
    sweeps_once,
    believes_that_each_task_has_ended,
    goes_on_from_any_checkpoint,
    goes_on_from_the_oldest_checkpoint,
    forgets_what_steps_have_committed,
    acquires_nothing_for_a_restored_round,
    tells_no_finish_again,
)


def _refuse(key: ChannelKey, connection: Connection) -> None:
    connection.send(Channel(key, "down").send(Cancel(reason="replaced by a newer attempt")))


def _quietly(write: Any, name: str, data: bytes) -> None:  # noqa: ANN401 - passed on
    with suppress(LakewardError):
        write(name, data)


def _bind(monkeypatch: pytest.MonkeyPatch, by: int | None) -> None:
    original: Any = SplitWork.__init__

    def init(self: SplitWork, *args: Any) -> None:  # noqa: ANN401 - passed on
        original(self, *(_shifted(one, by) if isinstance(one, SplitProgress) else one for one in args))

    monkeypatch.setattr(SplitWork, "__init__", init)


def _shifted(progress: SplitProgress, by: int | None) -> SplitProgress:
    """Return progress that is some rows off, where something is done already; None: back at the beginning."""
    split = progress.split
    start = split.start if isinstance(split, LogSplit) else 0
    if progress.position <= start:
        return progress
    most = split.stop if isinstance(split, LogSplit) else progress.position + 1
    return structs.replace(progress, position=start if by is None else min(most, progress.position + by))
