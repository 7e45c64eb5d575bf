"""Nothing that a machine commands, and nothing that a round wants done, is left without a handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

import pytest

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.rounds import effects
from lakeward.coordinator.rounds.effects import CompleteCheckpoint, Effect, Tell
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.round import Round
from lakeward.machines.checkpoints.messages import CheckpointsCommand
from lakeward.machines.gang import GangCommand
from lakeward.machines.launches import LaunchesCommand
from lakeward.machines.rounds import EndRound, OpenRound
from lakeward.machines.splits import SplitsCommand
from lakeward.model.tiering import TableAssignment
from lakeward_service_kit.checkpoint_values import PATH, reference, round_snapshot

if TYPE_CHECKING:
    from lakeward_service_kit.service_world import World


@pytest.mark.parametrize("commands", [CheckpointsCommand, GangCommand, LaunchesCommand, SplitsCommand], ids=str)
def test_a_job_handles_each_command_of_its_machines(commands: object) -> None:
    assert {kind.__name__ for kind in get_args(commands)} - {kind.__name__ for kind in Job._COMMANDS} == set()


def kinds() -> set[type[Effect]]:
    found = (one for one in vars(effects).values() if isinstance(one, type) and issubclass(one, Effect))
    return {one for one in found if one is not Effect}


def test_each_effect_is_executed_and_each_answer_is_taken(world: World) -> None:
    executor = world.service_container().executor()
    works, at_once = executor._handlers.works, executor._handlers.at_once
    assert kinds() == {*works, *at_once, Tell}
    answered = {kind for kind, work in works.items() if work.answered}
    assert answered == Round._DONE.keys() == Round._NOT_DONE.keys()


def test_what_a_checkpoint_needs_is_leased_before_its_round_can_end(world: World) -> None:
    container, ref = world.service_container(), reference()
    state = CheckpointContents.of(round_snapshot(ref), [])
    facts = RoundFacts(TableAssignment(PATH, 7, 3, 0, 1.0), state.round.round_id, 0)
    one = Round(facts, world.clock, container.fence())

    async def store() -> None:
        container.executor().execute(one, (CompleteCheckpoint(ref, state.round, (), state),))
        assert container.checkpoints().needed(7) == state.enumeration().snapshots != ()

    asyncio.run(store())


def test_a_round_that_has_found_nothing_new_is_forgotten_at_once_and_nothing_is_cleaned(world: World) -> None:
    container = world.service_container()
    opened = OpenRound(TableAssignment(PATH, 7, 3, 0, 1.0), 1)

    async def end() -> None:
        executor, tables = container.executor(), container.tables()
        executor.start(opened)
        ended = executor.end(EndRound(7, "idle"))
        assert ended is not None
        assert (tables.rounds, tables.ended, executor.busy) == ((), (), False)

    asyncio.run(end())
