"""The objects of a round form no circle: each knows what it works with, and nobody that works with it."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import TYPE_CHECKING

import pytest

from lakeward_service_kit.gang_world import gang_world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.coordinator.rounds.round import Round
    from lakeward_service_kit.service_world import World

CONTAINERS = (dict, list, tuple, set, frozenset, deque, partial, MethodType, CellType, MappingProxyType)
ELSEWHERE = (type, ModuleType, BuiltinFunctionType, Enum)


def is_ours(one: object) -> bool:
    return type(one).__module__.startswith("lakeward.")


def is_elsewhere(one: object) -> bool:
    """Behind a connection is the transport with all connections, and whoever receives what comes over them."""
    return isinstance(one, ELSEWHERE) or type(one).__module__.startswith("lakeward.sockets")


def referents(one: object) -> Iterator[object]:
    """What an object refers to, as far as it is the product's or holds something of it."""
    found = [*(one.__closure__ or ())] if isinstance(one, FunctionType) else gc.get_referents(one)
    for other in found:
        if not is_elsewhere(other) and (
            is_ours(other) or isinstance(other, (*CONTAINERS, FunctionType)) or hasattr(other, "__dict__")
        ):
            yield other


def circles(root: object) -> list[list[str]]:
    """The groups of objects that refer to one another in a circle, each as the names of the product's classes in it."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    kept: dict[int, object] = {}
    path: list[int] = []
    found = []
    work: list[tuple[object, Iterator[object]]] = [(root, referents(root))]
    index[id(root)] = low[id(root)] = 0
    kept[id(root)] = root
    path.append(id(root))
    while work:
        one, others = work[-1]
        other = next(others, None)
        if other is not None:
            if id(other) not in index:
                index[id(other)] = low[id(other)] = len(index)
                kept[id(other)] = other
                path.append(id(other))
                work.append((other, referents(other)))
            elif id(other) in path:
                low[id(one)] = min(low[id(one)], index[id(other)])
            continue
        work.pop()
        if work:
            below = id(work[-1][0])
            low[below] = min(low[below], low[id(one)])
        if low[id(one)] == index[id(one)]:
            group = path[path.index(id(one)) :]
            del path[path.index(id(one)) :]
            names = sorted({type(kept[each]).__name__ for each in group if is_ours(kept[each])})
            if len(group) > 1 and names:
                found.append(names)
    return found


class Knot:
    """Refers to what refers to it."""

    def __init__(self) -> None:
        self.back = partial(self.tie)

    def tie(self) -> None:
        """Do nothing."""


def test_a_circle_through_a_bound_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Knot, "__module__", "lakeward.knots")
    assert circles([Knot()]) == [["Knot"]]


@pytest.mark.parametrize("restored", [False, True])
def test_the_objects_of_a_running_round_with_an_exchange_form_no_circle(tmp_path: Path, *, restored: bool) -> None:
    world = gang_world(tmp_path)
    members = world.connect()
    world.start_checkpoint(members)
    for member in members:
        member.take_part(member.state())
    if restored:
        members[0].finish(world.job.plan.enumeration.splits[0])
        world.jobs.end()
        world.connect()
    assert circles(world.round.round) == []


def test_the_objects_of_a_round_of_a_running_service_form_no_circle(world: World) -> None:
    log, keyed = world.table("log"), world.table("keyed", key=True)
    for path in (log, keyed):
        world.load(path, 0, 100)
    world.store.snapshot(keyed)
    found: list[list[str]] = []
    seen: set[str] = set()

    def look(_: object) -> None:
        rounds: tuple[Round, ...] = world.container.tables().rounds
        for one in rounds:
            if one.job is not None:
                seen.add(str(one.facts.assignment.path))
                found.extend(circles(one))

    service = world.service(once=True, interval_s=0.05, on_report=look)

    assert asyncio.run(service.serve()).failed == ()
    assert seen
    assert found == []
