"""A step that fails in its midst leaves every machine as it was: here each look at a table fails once.

The stories are those of the cells' tests: from each of them every event is tried.
"""

from __future__ import annotations

import importlib.util
import threading
from collections import deque
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.link import machine as link
from lakeward.machines.splits import machine as splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType


class Machine(Protocol):
    """Any of them."""

    def step(self, event: Any, /) -> object:  # noqa: ANN401 - each has its own
        """Take an event."""


class Lookups:
    """Counts in how many rows a guard is looked for; one of them has lost what is looked for."""

    def __init__(self) -> None:
        self.failing = self.done = 0
        self._thread = threading.get_ident()

    def fails(self) -> bool:
        """Count one; machines on threads that another test has left do not count."""
        if threading.get_ident() != self._thread:
            return False
        self.done += 1
        return self.done == self.failing


class Row(dict[Any, Any]):
    """A row of a table."""

    lookups: Lookups

    def __contains__(self, guard: object) -> bool:
        return super().__contains__(guard) and not self.lookups.fails()


def watched(table: Mapping[Any, Mapping[Any, Any]], lookups: Lookups) -> Mapping[Any, Row]:
    """A table whose rows are watched."""
    rows = {cell: Row(row) for cell, row in table.items()}
    for row in rows.values():
        row.lookups = lookups
    return rows


def shape(value: object) -> object:
    """All that an object holds, as values that can be compared."""
    found: object = value
    if isinstance(value, dict):
        found = {key: shape(one) for key, one in value.items()}
    elif isinstance(value, list | tuple | deque):
        found = [shape(one) for one in value]
    elif isinstance(value, set | frozenset):
        found = frozenset(value)
    elif is_dataclass(value):
        found = (type(value).__name__, {one.name: shape(getattr(value, one.name)) for one in fields(value)})
    elif hasattr(value, "__dict__") and not isinstance(value, Enum):
        found = (type(value).__name__, {name: shape(one) for name, one in vars(value).items() if name != "moves"})
    return found


def raises(machine: Machine, event: object) -> bool:
    """Step it; an event may be illegal by itself as well."""
    try:
        machine.step(event)
    except (IllegalEventError, UsageError):
        return True
    return False


def cells(name: str) -> ModuleType:
    """The module of a machine's cells."""
    spec = importlib.util.spec_from_file_location(f"cells_of_{name}", Path(__file__).with_name(f"test_{name}_cells.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Tried = tuple["Callable[[], Machine]", object]


def of_stories(new: Callable[[], Machine], stories: Any, events: Any) -> Iterator[Tried]:  # noqa: ANN401 - of any machine
    """Try every event from each story."""

    def after(story: Any) -> Machine:  # noqa: ANN401 - as above
        machine = new()
        for event in story:
            machine.step(event)
        return machine

    for story in stories:
        for event in events:
            yield partial(after, story), event


def of_links() -> Iterator[Tried]:
    known = cells("link")
    return of_stories(known.link, known.STORIES, known.TRIED)


def of_splits() -> Iterator[Tried]:
    known = cells("splits")
    return of_stories(known.machine, known.STORIES, known.TRIED)


@pytest.mark.parametrize(
    ("modules", "tried", "at_least"),
    [
        ((link,), of_links, 50),
        ((splits,), of_splits, 500),
    ],
    ids=["link", "splits"],
)
def test_a_step_that_finds_no_row_in_its_midst_changes_nothing(
    modules: tuple[ModuleType, ...],
    tried: Callable[[], Iterator[Tried]],
    at_least: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups = Lookups()
    for module in modules:
        monkeypatch.setattr(module, "TRANSITIONS", watched(module.TRANSITIONS, lookups))
    failed = 0
    for make, event in tried():
        for number in count(1):
            lookups.failing = 0
            machine = make()
            before = shape(machine)
            lookups.failing, lookups.done = number, 0
            if raises(machine, event):
                assert shape(machine) == before, (event, number)
            if lookups.done < number:
                break
            failed += 1
    assert failed >= at_least
