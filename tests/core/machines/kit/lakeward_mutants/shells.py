"""Mutants of the shells: what coordinator and subtasks do around the machines. For the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.attempt import RoundAttempt

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner, LakeTableState
from lakeward.coordinator.commits.round_committer import RoundCommitter
from lakeward.coordinator.effects.executor import RoundExecutor
from lakeward.coordinator.rounds.checkpoints import RoundCheckpoints
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.machines.checkpoints.gateway import Origins
from lakeward.subtask.checkpointing import Checkpointing
from lakeward_simulator import lake

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import pytest

    from lakeward.model.checkpoints import RoundSnapshot, SubtaskSnapshot


def drops_the_fence_check_of_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither stamp nor base commit is looked at."""
    monkeypatch.setattr(lake, "_check_fence", lambda *_: None)


def writes_no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what a start that died left."""
    monkeypatch.setattr(RoundCommitter, "write_journal", lambda *_: None)


def drops_withheld_finishes_at_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a subtask had not been let to send is forgotten, and its split taken for finished."""
    original = RoundProgress.__init__

    def init(self: RoundProgress, enumeration: Any, restored: CheckpointContents | None = None) -> None:  # noqa: ANN401 - passed on
        if restored is not None:
            finished = {**restored.finished, **{name: one.event.result for name, one in restored.blocked.items()}}
            cut = {name: replace(result, files=()) for name, result in finished.items() if name in restored.blocked}
            restored = replace(restored, finished={**finished, **cut}, blocked={})
        original(self, enumeration, restored)

    monkeypatch.setattr(RoundProgress, "__init__", init)


def ignores_positions_of_the_last_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost attempt's splits start over, although steps of them were committed."""
    monkeypatch.setattr(RoundProgress, "take_over", lambda *_: None)


def leaves_files_of_lost_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is swept once a round has committed."""
    monkeypatch.setattr(Cleaner, "sweep_prefix", lambda self, journal, **_: self._journals.delete(journal))


def releases_before_the_checkpoint_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of every accepted finish is given up at once."""
    original = RoundProgress.accept
    take = RoundCheckpoints._take

    def accept(self: RoundProgress, result: Any) -> None:  # noqa: ANN401 - passed on
        original(self, result)

    def release(self: RoundCheckpoints, checkpoint: int) -> None:
        take(self, checkpoint)
        owner: Any = self._owner
        owner._protection.release(0, {split.bucket for split in self._job.splits._splits.values()})  # type: ignore[attr-defined]

    monkeypatch.setattr(RoundProgress, "accept", accept)
    monkeypatch.setattr(RoundCheckpoints, "_take", release)


def commits_files_of_earlier_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the lake already is not left out."""
    monkeypatch.setattr(
        RoundAttempt, "files", lambda self: tuple(self.job.progress.committable()) if self.job is not None else ()
    )


def counts_attempts_from_1_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new finish has the origin of a restored one (found by the simulator)."""
    original = RoundProgress.__init__

    def init(self: RoundProgress, *args: Any) -> None:  # noqa: ANN401 - passed on
        original(self, *args)
        self.first_attempt = 1

    monkeypatch.setattr(RoundProgress, "__init__", init)


def forgets_what_a_cut_split_had_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round's last commit goes behind an earlier step (found by the simulator)."""
    monkeypatch.setattr(RoundProgress, "offsets", lambda self: self.splits.offsets())


def sweeps_what_was_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that an old table of that name has committed are deleted (found by the simulator)."""
    monkeypatch.setattr(Cleaner, "_look_at", lambda *_: LakeTableState.SAME)


def trusts_checkpoints_whose_files_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether they are there (found by the simulator)."""
    monkeypatch.setattr(Restorer, "_deleted", lambda *_: [])


def believes_every_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """No duplicate is dropped."""
    monkeypatch.setattr(Origins, "first", lambda *_: True)


def sweeps_files_that_a_checkpoint_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are not asked."""
    monkeypatch.setattr(Restorer, "named", lambda *_: frozenset())


def leaves_out_what_was_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint's blocked finishes are not looked at."""

    def of(coordinator: RoundSnapshot, subtasks: Iterable[SubtaskSnapshot]) -> CheckpointContents:
        return original(coordinator, [replace(one, blocked=()) for one in subtasks])

    original = CheckpointContents.of
    monkeypatch.setattr(CheckpointContents, "of", of)


def never_counts_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit of a round is its first."""
    original = RoundExecutor._commit_step

    async def commit(self: RoundExecutor, run: RoundAttempt, done: Any) -> None:  # noqa: ANN401 - passed on
        await original(self, run, done)
        run.step = 1

    monkeypatch.setattr(RoundExecutor, "_commit_step", commit)


def sweeps_what_a_later_start_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overtaken start takes its successor's journals for its own (found by the simulator)."""
    monkeypatch.setattr(Cleaner, "_known", lambda self: self._journals.list())


def drops_checkpoints_of_a_later_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overtaken start takes its successor's checkpoints for its own."""
    monkeypatch.setattr(Restorer, "_droppable", Restorer._of)


def never_asks_who_took_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose source is away works on beside its successor (found by the simulator)."""

    async def overtaken(_: ServiceStateWriter) -> str:
        return ""

    monkeypatch.setattr(ServiceStateWriter, "overtaken", overtaken)


def leaves_out_what_ended_after_the_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that ends before its part is made is in neither part of the checkpoint."""
    monkeypatch.setattr(Checkpointing, "finish", lambda self, event, _progress: self.send(event))


def keeps_tables_that_nobody_knows_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overtaken start gives nothing back."""
    monkeypatch.setattr(ServiceStateWriter, "is_written", lambda *_: True)


SHELLS = (
    drops_the_fence_check_of_a_commit,
    writes_no_journal,
    drops_withheld_finishes_at_a_restore,
    ignores_positions_of_the_last_checkpoint,
    leaves_files_of_lost_attempts,
    releases_before_the_checkpoint_completes,
    commits_files_of_earlier_steps_again,
    counts_attempts_from_1_after_a_restore,
    forgets_what_a_cut_split_had_done,
    sweeps_what_was_set_aside,
    trusts_checkpoints_whose_files_are_gone,
    believes_every_finish,
    sweeps_files_that_a_checkpoint_names,
    leaves_out_what_was_blocked,
    never_counts_steps,
    sweeps_what_a_later_start_writes,
    drops_checkpoints_of_a_later_start,
    never_asks_who_took_over,
    leaves_out_what_ended_after_the_trigger,
    keeps_tables_that_nobody_knows_of,
)
