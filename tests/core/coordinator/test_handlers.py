"""Nothing that a machine commands, and nothing that a round wants done, is left without a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from lakeward.coordinator.rounds import effects
from lakeward.coordinator.rounds.effects import Effect, Tell
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.round import Round
from lakeward.machines.checkpoints.messages import CheckpointsCommand
from lakeward.machines.gang import GangCommand
from lakeward.machines.launches import LaunchesCommand
from lakeward.machines.splits import SplitsCommand

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
