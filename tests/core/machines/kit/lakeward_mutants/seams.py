"""Mutants of what lies between the machines: what coordinator and subtask do in which order. For the simulator."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.attempt import RoundAttempt
from lakeward.coordinator.rounds.attempts import RoundAttempts

from lakeward.coordinator.checkpoints import restorer as restoring
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.committer import Committer
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.commits.round_committer import RoundCommitter
from lakeward.coordinator.effects.executor import RoundExecutor
from lakeward.coordinator.rounds import context as opening
from lakeward.coordinator.rounds.checkpoints import RoundCheckpoints
from lakeward.coordinator.rounds.job import RoundJob
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.table_locks import TableLocks
from lakeward.errors import FencedError, LakewardError, OutcomeUnknownError
from lakeward.machines.splits import SplitDone, enumerate_splits
from lakeward.machines.transport.channel import Channel
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.events import SplitFinished, wire_split
from lakeward.model.splits import LogSplit
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.subtask.checkpointing import Checkpointing
from lakeward.subtask.subtask import Subtask
from lakeward.subtask.work import SplitWork

if TYPE_CHECKING:
    from typing import Any

    import pytest

    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.events import Envelope
    from lakeward.storage.round_journal import RoundJournal

# --- when snapshots, journals and answers come ---------------------------------------------------------------------


def releases_with_each_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of a split is given up once its finish is heard, before any checkpoint holds that."""
    original = RoundJob._step

    def step(self: RoundJob, event: Any, result: Any = None) -> None:  # noqa: ANN401 - passed on
        original(self, event, result)
        if result is not None:
            owner: Any = self._owner
            owner._protection.release(owner._table_id, {result.bucket})

    monkeypatch.setattr(RoundJob, "_step", step)


def launches_before_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is written while the job is being launched already."""
    original, launch_job = RoundExecutor.__init__, RoundJob.launch
    unwritten: dict[str, Any] = {}

    def init(self: RoundExecutor, **collaborators: Any) -> None:  # noqa: ANN401 - passed on
        original(self, **collaborators)
        committer, loop = collaborators["committer"], collaborators["loop"]

        def write(round_id: Any, path: Any, head: Any) -> RoundJournal:  # noqa: ANN401 - passed on
            journal: RoundJournal = committer._journal(round_id, path, head)
            work = partial(call, partial(committer._journals.write, journal), what="journal")
            unwritten[str(round_id)] = partial(loop.spawn, work)
            return journal

        committer.write_journal = write

    def launch(self: RoundJob, post: Any) -> None:  # noqa: ANN401 - passed on
        unwritten.pop(self.plan.round_name, lambda: None)()
        launch_job(self, post)

    monkeypatch.setattr(RoundExecutor, "__init__", init)
    monkeypatch.setattr(RoundJob, "launch", launch)


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
    original = RoundCheckpoints._complete

    def complete(self: RoundCheckpoints, command: Any) -> None:  # noqa: ANN401 - passed on
        plan, owner = self._plan, self._owner

        def now(what: str, write: Any, then: Any) -> None:  # noqa: ANN401 - passed on
            done = SimpleNamespace(called=False)

            def checkpoint_done(found: Any) -> None:  # noqa: ANN401 - passed on
                if not done.called:
                    done.called = True
                    owner.checkpoint_done(found)

            instead: Any = _Instead(owner, checkpoint_done)
            self._owner = instead
            then(100)
            self._owner = owner
            plan.work(what, write, lambda _answer: None)

        self._plan = replace(plan, work=now)
        original(self, command)
        self._plan = plan

    monkeypatch.setattr(RoundCheckpoints, "_complete", complete)


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
    monkeypatch.setattr(RoundProgress, "wire", lambda _self, split: wire_split(split, None))


def counts_rows_that_are_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split is said to be as far as was read, not as far as closed files go."""

    def note(self: SplitWork) -> None:
        self._flushed = SplitProgress(self.split, self._position, (), self.rows, self._max_timestamp_ms)

    monkeypatch.setattr(SplitWork, "_note_flushed", note)


def forgets_splits_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of splits that a subtask holds, and has not begun, are not in its part."""
    monkeypatch.setattr(Subtask, "_roll", lambda self: () if self._work is None else (self._work.roll(),))


# --- who is listened to --------------------------------------------------------------------------------------------


def hears_old_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finish that a replaced attempt still says counts for whoever has its split now."""

    def hear(self: RoundJob, envelope: Envelope) -> None:
        self.may_have_orphans = True
        event = envelope.event
        holder = self.splits.holders.get(event.result.split_id) if isinstance(event, SplitFinished) else None
        if isinstance(event, SplitFinished) and holder is not None:
            result, now = event.result, self._clock.now()
            subtask, attempt = holder
            done = SplitDone(
                now=now, subtask=subtask, attempt=attempt, split_id=result.split_id, end_offset=result.end_offset
            )
            self._step(done, result)

    monkeypatch.setattr(RoundJob, "_on_stale_message", hear)


def adopts_files_of_stale_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a replaced attempt wrote is added to the finish that counts."""

    def hear(self: RoundJob, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, SplitFinished) and (known := self.progress.results.get(event.result.split_id)) is not None:
            more = tuple(file for file in event.result.files if file not in known.files)
            self.progress.results[known.split_id] = replace(known, files=(*known.files, *more))

    monkeypatch.setattr(RoundJob, "_on_stale_message", hear)


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
        RoundJob, "may_have_orphans", property(lambda _self: False, lambda _self, _value: None), raising=False
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
    monkeypatch.setattr(RoundAttempts, "is_current", lambda *_: True)
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


def goes_on_from_any_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lake's newest commit is does not matter."""
    monkeypatch.setattr(restoring, "why_not", lambda *_: "")


def goes_on_from_the_oldest_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several the first one is taken, and files of the later ones are left out of the books."""
    original = Restorer._droppable
    monkeypatch.setattr(Restorer, "_droppable", lambda self, table_id: [*reversed(original(self, table_id))])


def forgets_what_steps_have_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored round does not know which of its files are in the lake."""
    original = RoundAttempt.start_from

    def start_from(self: RoundAttempt, *given: Any) -> None:  # noqa: ANN401 - passed on
        original(self, *given)
        self.in_lake = frozenset()

    monkeypatch.setattr(RoundAttempt, "start_from", start_from)


def acquires_nothing_for_a_restored_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots that a checkpoint still has to read are left unprotected."""
    original = RoundAttempts.snapshots

    def snapshots(self: RoundAttempts, table_id: int) -> Any:  # noqa: ANN401 - passed on
        attempt = self.get(table_id)
        return () if attempt is not None and attempt.restored is not None else original(self, table_id)

    monkeypatch.setattr(RoundAttempts, "snapshots", snapshots)


def tells_no_finish_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part names no finish that its gateway held back."""
    original = Checkpointing.make_part

    def make(self: Checkpointing, cut: Any, roll: Any) -> None:  # noqa: ANN401 - passed on
        original(self, replace(cut, blocked=()), roll)

    monkeypatch.setattr(Checkpointing, "make_part", make)


# --- counts of buckets that change -------------------------------------------------------------------------------


def looks_at_no_count_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written that the source divides by another count than the lake: its readers do not find them."""
    monkeypatch.setattr(opening, "check_bucket_counts", lambda _table, _buckets: None)


def reads_new_buckets_from_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that a table of which the lake has rows has got since is taken for one that has been tiered."""

    def enumerate_late(buckets: Any, tiered: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on
        ends = {state.bucket: state.end for state in buckets} if tiered else {}
        return enumerate_splits(buckets, {**ends, **tiered}, **options)

    monkeypatch.setattr(opening, "enumerate_splits", enumerate_late)


SEAMS = (
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
    goes_on_from_any_checkpoint,
    goes_on_from_the_oldest_checkpoint,
    forgets_what_steps_have_committed,
    acquires_nothing_for_a_restored_round,
    tells_no_finish_again,
)


class _Instead:
    """An owner that hears of a checkpoint in another way."""

    def __init__(self, owner: object, checkpoint_done: object) -> None:
        self._owner = owner
        self.checkpoint_done = checkpoint_done

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - passed on
        return getattr(self._owner, name)


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
    return replace(progress, position=start if by is None else min(most, progress.position + by))
