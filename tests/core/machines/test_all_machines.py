"""What holds of each machine: its rules are all used, and a step that is illegal or fails changes nothing.

The stories are in `lakeward_machine_stories`: from each of them every event is tried.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from msgspec import Struct

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.diagrams import TABLES
from lakeward.machines.machine import Machine, Rule, Rules
from lakeward_machine_stories import (
    alignment,
    checkpoints,
    gang,
    gateway,
    launches,
    leases,
    link,
    output,
    recovery,
    rounds,
    splits,
    upkeep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence


class Stories(Protocol):
    """What each module of stories has; in `MORE` it may have other ways to begin, each with stories of its own."""

    STORIES: Sequence[Sequence[Any]]
    TRIED: Sequence[Any]
    ILLEGAL: Collection[tuple[Enum, type[Any]]]
    """The states and events without a rule, of events that are tried."""

    def new(self) -> Machine[Any, Any]:
        """Return the machine before anything has happened."""
        ...


MACHINES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "alignment": (alignment, ("alignment",)),
    "gang": (gang, ("gang",)),
    "link": (link, ("link",)),
    "output": (output, ("output",)),
    "recovery": (recovery, ("recovery",)),
    "splits": (splits, ("round_splits", "splits", "split_attempts", "split_connections")),
    "gateway": (gateway, ("gateway",)),
    "checkpoints": (checkpoints, ("checkpoints", "attempts")),
    "rounds": (rounds, ("service", "heartbeat", "tables")),
    "leases": (leases, ("leases", "bucket_leases")),
    "launches": (launches, ("launches",)),
    "upkeep": (upkeep, ("upkeep",)),
}
"""Stories, and the tables that they use."""
each_machine = pytest.mark.parametrize("name", MACHINES)


def after(new: Callable[[], Machine[Any, Any]], story: Sequence[Any]) -> Machine[Any, Any]:
    """A machine to which all this has happened."""
    machine = new()
    for event in story:
        machine.step(event)
    return machine


def tried(name: str) -> Iterator[tuple[Callable[[], Machine[Any, Any]], Any]]:
    """Each machine of a story, and each event."""
    stories, _ = MACHINES[name]
    for new, known in ((stories.new, stories.STORIES), *getattr(stories, "MORE", ())):
        for story in known:
            for event in stories.TRIED:
                yield partial(after, new, story), event


def held(machine: Machine[Any, Any]) -> object:
    """All that a machine holds, as values that can be compared."""
    return shape({name: value for name, value in vars(machine).items() if name != "undo"})


def shape(value: object) -> object:
    """An object as values that no step can change."""
    if isinstance(value, Mapping):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list | tuple | deque):
        return [shape(one) for one in value]
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, Struct) or is_dataclass(value):
        names = value.__struct_fields__ if isinstance(value, Struct) else [one.name for one in fields(value)]
        return type(value), [shape(getattr(value, name)) for name in names]
    if hasattr(value, "__dict__") and not isinstance(value, Enum):
        return type(value), shape(vars(value))
    return value


class PlantedError(Exception):
    """Raised by a step that has done everything."""


class Searches:
    """Counts how often a rule is looked for; one of the searches finds none.

    Machines on threads that another test has left do not count.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing = self.done = 0
        self.used: set[tuple[str, int, Enum, type[Any]]] = set()
        find, test = Rules.find, threading.get_ident()

        def watched(rules: Rules[Any, Any], held: Any, state: Any, event: object) -> Rule[Any, Any]:  # noqa: ANN401 - of any machine
            if threading.get_ident() != test:
                return find(rules, held, state, event)
            self.done += 1
            if self.done == self.failing:
                raise IllegalEventError(rules.name, "planted", event)
            found = find(rules, held, state, event)
            self.used.add((rules.name, rules.rows.index(found), state, type(event)))
            return found

        monkeypatch.setattr(Rules, "find", watched)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    """Watched searches for rules."""
    return Searches(monkeypatch)


def test_the_stories_are_of_every_table() -> None:
    assert sorted(table for _, tables in MACHINES.values() for table in tables) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_no_rule_comes_after_one_that_always_applies(name: str) -> None:
    cells = TABLES[name].cells
    assert [cell for cell, rows in cells.items() if any(row.when is None for row in rows[:-1])] == []


@pytest.mark.parametrize("name", TABLES)
def test_a_rule_leads_from_states_of_its_table_to_one_of_them(name: str) -> None:
    table = TABLES[name]
    assert {type(state) for state, _ in table.cells} == {table.states}
    assert {type(row.to) for row in table.rows if row.to is not None} == {table.states}


@pytest.mark.parametrize("name", [name for name, (stories, _) in MACHINES.items() if hasattr(stories, "ILLEGAL")])
def test_no_rule_is_forgotten(name: str) -> None:
    stories, tables = MACHINES[name]
    tried = {type(event) for event in stories.TRIED}
    missing = {
        cell
        for rules in (TABLES[table] for table in tables)
        for cell in product(rules.states, tried & {event for _, event in rules.cells})
        if cell not in rules.cells
    }
    assert missing == set(stories.ILLEGAL)


@each_machine
def test_every_rule_is_used_in_each_of_its_states_by_each_of_its_events(name: str, searches: Searches) -> None:
    for make, event in tried(name):
        machine = make()
        try:
            machine.step(event)
        except (IllegalEventError, UsageError):
            continue
    unused = {
        f"{table}: {state.value}, {event.__name__}: {row}"
        for table in MACHINES[name][1]
        for number, row in enumerate(TABLES[table].rows)
        for state, event in row.cells
        if (table, number, state, event) not in searches.used
    }
    assert unused == set()


@each_machine
def test_a_step_that_is_illegal_or_fails_in_its_midst_changes_nothing(name: str, searches: Searches) -> None:
    for make, event in tried(name):
        for number in count(1):
            searches.failing = 0
            machine = make()
            before = held(machine)
            searches.failing, searches.done = number, 0
            try:
                machine.step(event)
            except (IllegalEventError, UsageError):
                assert held(machine) == before, (event, number)
            if searches.done < number:
                break


@each_machine
def test_a_step_that_fails_at_its_end_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stories, _ = MACHINES[name]
    kind = type(stories.new())
    take: Callable[[Machine[Any, Any], object], tuple[Any, ...]] = kind.take
    fails, test = False, threading.get_ident()

    def take_and_fail(machine: Machine[Any, Any], event: object) -> tuple[Any, ...]:
        commands = take(machine, event)
        if fails and threading.get_ident() == test:
            raise PlantedError
        return commands

    monkeypatch.setattr(kind, "take", take_and_fail)
    for make, event in tried(name):
        fails = False
        machine = make()
        before = held(machine)
        fails = True
        with pytest.raises((PlantedError, IllegalEventError, UsageError)):
            machine.step(event)
        assert held(machine) == before, event
