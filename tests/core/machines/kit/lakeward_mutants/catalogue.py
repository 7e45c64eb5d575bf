"""All mutants by name, each as a change of the product that the simulator can run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakeward.coordinator.checkpoints import contents
from lakeward.coordinator.rounds import checkpoints as checkpointing
from lakeward.coordinator.rounds import gang, job
from lakeward.coordinator.rounds import progress as books
from lakeward.machines.checkpoints import CheckpointCoordinator
from lakeward.machines.checkpoints.gateway import Gateway
from lakeward.machines.exchange import BarrierAlignment, OutputQueue
from lakeward.machines.gang import GangMachine
from lakeward.machines.link import LinkMachine
from lakeward.machines.recovery import Recovery
from lakeward.machines.splits import Splits
from lakeward.subtask import checkpointing as subtasks
from lakeward.subtask import link
from lakeward.subtask.exchange import inputs, outputs, recovering
from lakeward_mutants import (
    checkpoints,
    exchange,
    gangs,
    gateways,
    links,
    queues,
    recovery,
    recovery_shells,
    rounds,
    seams,
    shells,
    splits,
    wiring,
)
from lakeward_mutants.killers import COST_TIME, KILLERS
from lakeward_mutants.leases import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    import pytest

_PLACES: Mapping[type, tuple[ModuleType, ...]] = {
    Gateway: (job, subtasks),
    CheckpointCoordinator: (checkpointing,),
    Splits: (books, contents),
    LinkMachine: (link,),
    BarrierAlignment: (inputs,),
    OutputQueue: (outputs,),
    GangMachine: (gang,),
    Recovery: (recovering,),
}
"""Who makes a machine."""
_MACHINES: tuple[tuple[ModuleType, type], ...] = (
    (gateways, Gateway),
    (checkpoints, CheckpointCoordinator),
    (splits, Splits),
    (links, LinkMachine),
    (exchange, BarrierAlignment),
    (exchange, OutputQueue),
    (gangs, GangMachine),
    (recovery, Recovery),
)
"""Modules of mutants, and the machine that they change."""


def mutants() -> Mapping[str, Callable[[pytest.MonkeyPatch], None]]:
    """Return every mutant, in words, and what puts it in the machine's place."""
    found: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}
    for module, machine in _MACHINES:
        for kind in _kinds(module, machine):
            found[f"{machine.__name__}: {kind.__name__}"] = partial(_replace, machine, kind)
    for change in (rounds.commits_on_any_heartbeat, rounds.forgets_to_renew_what_rests, rounds.keeps_what_is_refused,
                   rounds.opens_the_latest_deadline_first, rounds.counts_a_renewal_from_its_answer,
                   *rounds.OF_DEADLINES):  # fmt: skip
        found[f"Rounds: {change.__name__}"] = change
    for name, (target, member, wrong) in LEASES.items():
        found[f"Leases: {name}"] = partial(_set, target, member, wrong)
    found |= {f"recovery: {change.__name__}": change for change in recovery_shells.SHELLS}
    found |= {f"shell: {change.__name__}": change for change in shells.SHELLS}
    found |= {f"wiring: {change.__name__}": change for change in wiring.WIRING}
    found |= {f"queue: {change.__name__}": change for change in queues.QUEUES}
    return found | {f"seam: {change.__name__}": change for change in seams.SEAMS}


def killer(name: str) -> str | None:
    """Return the test of a mutant of what lies around the machines, None if it is one of theirs."""
    return next((test for change, test in KILLERS.items() if _bears(name, change)), None)


def harmless(name: str) -> str:
    """Return why a mutant loses nothing, empty where it does."""
    return next((why for change, why in COST_TIME.items() if _bears(name, change)), "")


def _bears(name: str, change: Callable[[pytest.MonkeyPatch], None]) -> bool:
    return name.partition(": ")[2] == change.__name__


def _kinds(module: ModuleType, machine: type) -> Iterator[type]:
    return (
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, machine) and kind is not machine
    )


def _replace(machine: type, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in _PLACES[machine]:
        monkeypatch.setattr(place, machine.__name__, kind)


def _set(target: type, member: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, member, wrong)
