"""Mutants of the shells: what coordinator and subtasks do around the machines. For the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner, LakeTableState
from lakeward.coordinator.commits.round_committer import RoundCommitter
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.machines.checkpoints.gateway import Origins
from lakeward.machines.checkpoints.messages import TakeSnapshot
from lakeward.subtask.checkpointing import Checkpointing
from lakeward_mutants.changed import handle
from lakeward_mutants.released import Release, execute_releases
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
    monkeypatch.setattr(RoundCommitter, "write_journal", lambda *_, **_how: None)


def drops_withheld_finishes_at_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a subtask had not been let to send is forgotten, and its split taken for finished."""
    original = RoundProgress.__init__

    def init(
        self: RoundProgress,
        enumeration: Any,  # noqa: ANN401 - passed on
        restored: CheckpointContents | None = None,
        **how: Any,  # noqa: ANN401 - passed on
    ) -> None:
        if restored is not None:
            finished = {**restored.finished, **{name: one.result for name, one in restored.blocked.items()}}
            cut = {
                name: structs.replace(result, files=()) for name, result in finished.items() if name in restored.blocked
            }
            restored = replace(restored, finished={**finished, **cut}, blocked={})
        original(self, enumeration, restored, **how)

    monkeypatch.setattr(RoundProgress, "__init__", init)


def ignores_positions_of_the_last_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost attempt's splits start over, although steps of them were committed."""
    monkeypatch.setattr(RoundProgress, "take_over", lambda *_: None)


def leaves_files_of_lost_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is swept once a round has committed."""
    monkeypatch.setattr(Cleaner, "sweep_prefix", lambda self, journal, **_: self._journals.delete(journal))


def releases_before_the_checkpoint_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots of a round are given up once a checkpoint of it is taken."""
    original = Job._COMMANDS[TakeSnapshot]

    def take(job: Job, command: TakeSnapshot, event: object) -> Iterable[Any]:
        yield from original(job, command, event)
        splits = job.progress.enumeration.splits
        yield Release(job._facts.table_id, frozenset(split.bucket for split in splits))

    execute_releases(monkeypatch)
    handle(monkeypatch, Job._COMMANDS, TakeSnapshot, take)


def commits_files_of_earlier_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the lake already is not left out."""
    monkeypatch.setattr(
        RoundFacts, "files", lambda _self, progress: () if progress is None else tuple(progress.committable())
    )


def counts_attempts_from_1_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new finish has the origin of a restored one (found by the simulator)."""
    original = RoundProgress.__init__

    def init(self: RoundProgress, *args: Any, **how: Any) -> None:  # noqa: ANN401 - passed on
        original(self, *args, **how)
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
        return original(coordinator, [structs.replace(one, blocked=()) for one in subtasks])

    original = CheckpointContents.of
    monkeypatch.setattr(CheckpointContents, "of", of)


def never_counts_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit of a round is its first."""
    original = RoundFacts.apply_step

    def apply(self: RoundFacts, *step: Any) -> None:  # noqa: ANN401 - passed on
        original(self, *step)
        self.step = 1

    monkeypatch.setattr(RoundFacts, "apply_step", apply)


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
