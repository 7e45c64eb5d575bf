"""A coordinator and its subtasks take checkpoints over a network that loses connections; mutants must die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.errors import LakewardError
from lakeward.machines.checkpoints.gateway import CloseFor, Gateway, MessageReceived
from lakeward.model.checkpoints import Origin
from lakeward.model.events import RequestSplit, SplitFinished
from lakeward.model.results import WriteResult
from lakeward.model.tables import TableBucket
from lakeward_cuts.game import QUICK, Game
from lakeward_cuts.scripts import (
    abort_lost_with_a_connection,
    finished_after_its_snapshot,
    opened_one_by_one,
    overtaken_by_its_own_message,
)
from lakeward_cuts.world import World
from lakeward_mutants.checkpoints import (
    AdmitsOpen,
    ClosesOnlySome,
    CutsTooEarly,
    ForgetsTheDeadline,
    GoesOnWithoutTheLost,
    LeavesItsOwnEndClosed,
    LeavesOutTheFinished,
    LeavesTheirEndsClosed,
    OpensAll,
    RejectsNobody,
    ReturnsSplitsTooLate,
    ReturnsSplitsTwice,
    ReusesNumbers,
    SendsNothingAgain,
    SnapsBeforeItCloses,
    StoresTooEarly,
    TriggersTooEarly,
)
from lakeward_mutants.gateways import (
    CountsFinishesOnly,
    ForgetsRestoredOrigins,
    ForgetsWhatItHeld,
    HoldsControl,
    LetsDataPass,
    NeverOpensOnAbort,
    SendsBackwards,
    SendsRestoredLast,
    SendsRestoredTwice,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.machines.checkpoints import CheckpointCoordinator

pytestmark = pytest.mark.slow

FINISH = SplitFinished(result=WriteResult("a", TableBucket(1, None, 0), 10, -1, 1, ()))


def test_the_machines_hold_every_invariant() -> None:
    """After every step of a world that does anything it may, and to the end of every round."""
    play(Game, settings=QUICK)


# --- mutants ----------------------------------------------------------------------------------------------------

# What is tried depends on every module that is loaded: wide margins, for a hunt ends where it finds something.
HUNT = settings(QUICK, max_examples=5000, phases=[Phase.generate], print_blob=False)
GATEWAYS = [
    LetsDataPass,
    HoldsControl,
    SendsBackwards,
    ForgetsWhatItHeld,
    SendsRestoredTwice,
    SendsRestoredLast,
    ForgetsRestoredOrigins,
    NeverOpensOnAbort,
]
MACHINES = [
    TriggersTooEarly,
    SnapsBeforeItCloses,
    ClosesOnlySome,
    LeavesItsOwnEndClosed,
    LeavesTheirEndsClosed,
    AdmitsOpen,
    StoresTooEarly,
    ReusesNumbers,
    ForgetsTheDeadline,
    GoesOnWithoutTheLost,
    ReturnsSplitsTooLate,
    ReturnsSplitsTwice,
    RejectsNobody,
]
SCRIPTED = [
    (OpensAll, opened_one_by_one),
    (LeavesOutTheFinished, finished_after_its_snapshot),
    (SendsNothingAgain, abort_lost_with_a_connection),
    (CutsTooEarly, overtaken_by_its_own_message),
]
"""Too rare for the game."""


@pytest.mark.parametrize("mutant", [*GATEWAYS, *MACHINES])
@pytest.mark.mutant
def test_a_mutant_of_the_protocol_dies(mutant: type[Gateway | CheckpointCoordinator]) -> None:
    """The same game finds it: an invariant is broken, or a machine sees what cannot be."""
    part = "gateway" if issubclass(mutant, Gateway) else "machine"
    kind = type(f"{mutant.__name__}World", (World,), {part: mutant})
    game = type(f"{mutant.__name__}Game", (Game,), {"kind": kind})
    with pytest.raises((AssertionError, KeyError, LakewardError, ExceptionGroup)):
        play(game, settings=HUNT)


@pytest.mark.parametrize(("mutant", "script"), SCRIPTED)
@pytest.mark.mutant
def test_a_rare_mutant_of_the_protocol_dies(
    mutant: type[CheckpointCoordinator], script: Callable[[type[World]], None]
) -> None:
    """A script finds it that the real machines play without harm."""
    script(World)
    with pytest.raises(AssertionError, match="A-I"):
        script(type(f"{mutant.__name__}World", (World,), {"machine": mutant}))


@pytest.mark.mutant
def test_the_mutant_that_counts_finishes_only_dies() -> None:
    """A finish that is held behind another data event is kept under a number that it is not sent with."""

    def number(kind: type[Gateway]) -> int:
        gateway = kind()
        for event in (CloseFor(1), MessageReceived(RequestSplit()), MessageReceived(FINISH)):
            gateway.step(event)
        (kept,) = gateway.held_as(Origin(1, 0, 1, 0))
        return kept.origin.sequence

    assert number(Gateway) == 2
    assert number(CountsFinishesOnly) == 1
