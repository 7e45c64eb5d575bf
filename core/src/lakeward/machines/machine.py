"""One row, one rule: a machine is a table of rules, and a step executes the one that applies.

A rule names states, events, a condition, the next state and what is done; the first rule of a state and an event whose
condition holds is executed. An event that no rule allows is illegal. A step that raises changes nothing: attributes of
the machine are put back, and what was changed in its `UndoDict`s. All else that a machine holds is immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from lakeward.errors import IllegalEventError

Event = TypeVar("Event")
Command = TypeVar("Command")
Held = TypeVar("Held")
"""What the rules of a table read and change: a machine."""
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_MISSING: Any = object()


class MachineState(Enum):
    """A state of a machine. Hashed by identity: it is looked up at every step."""

    __hash__ = object.__hash__


class AtTime(Struct, frozen=True, kw_only=True):
    """The base of events that happen at a time, in seconds on the holder's clock."""

    now: float


class Rule(Struct, Generic[Held, Command], frozen=True):
    """One row: in these states, at these events, under this condition, go there and do that.

    `when` and `do` get the machine and the event. Without `when` a rule always applies, so it is the last one of its
    states and events. Without `to` the state stays. `do` runs after the state was changed, and returns what is to be
    done, in this order; `then` is done after that, always the same.
    """

    at: Enum | tuple[Enum, ...]
    on: type[Any] | tuple[type[Any], ...]
    when: Callable[[Held, Any], bool] | None = None
    to: Enum | None = None
    do: Callable[[Held, Any], tuple[Command, ...]] | None = None
    then: tuple[Command, ...] = ()

    @property
    def cells(self) -> tuple[tuple[Enum, type[Any]], ...]:
        """Each state and event for which it is looked at."""
        states = self.at if isinstance(self.at, tuple) else (self.at,)
        events = self.on if isinstance(self.on, tuple) else (self.on,)
        return tuple((state, event) for state in states for event in events)

    def execute(self, held: Held, event: object) -> tuple[Command, ...]:
        """Change what `held` knows; return what is to be done."""
        return self.then if self.do is None else self.do(held, event) + self.then


class Rules(Generic[Held, Command]):
    """A table of rules about one kind of state."""

    def __init__(self, name: str, states: type[Enum], *rows: Rule[Held, Command]) -> None:
        """Keep the rows in their order; the first of `states` is the one to begin in."""
        self.name = name
        self.states = states
        self.rows = rows
        cells: dict[tuple[Enum, type[Any]], tuple[Rule[Held, Command], ...]] = {}
        for row in rows:
            for cell in row.cells:
                cells[cell] = (*cells.get(cell, ()), row)
        self.cells: Mapping[tuple[Enum, type[Any]], tuple[Rule[Held, Command], ...]] = cells

    def find(self, held: Held, state: Enum, event: object) -> Rule[Held, Command]:
        """Return the rule that applies.

        Raises:
            IllegalEventError: there is none.
        """
        for rule in self.cells.get((state, type(event)), ()):
            if rule.when is None or rule.when(held, event):
                return rule
        raise IllegalEventError(self.name, f"{state.value}{getattr(held, 'detail', '')}", event)

    def step(
        self, held: Held, states: MutableMapping[Key, Any], key: Key, event: object, default: Enum | None = None
    ) -> tuple[Command, ...]:
        """Take an event of one of the things that a machine keeps a state of; one not in `states` is in `default`.

        Raises:
            IllegalEventError: no rule allows it.
        """
        state = states.get(key, default)
        rule = self.find(held, state, event)
        if rule.to is not None and rule.to is not state:
            states[key] = rule.to
        return rule.execute(held, event)


class Undo:
    """What a step has changed in the dicts of its machine, the oldest first."""

    def __init__(self) -> None:
        self.changes: list[tuple[dict[Any, Any], Any, Any]] = []
        """The dict, the key, and its value before; `_MISSING` where there was none."""

    def put_back(self) -> None:
        """Undo everything, the newest change first."""
        while self.changes:
            changed, key, before = self.changes.pop()
            if before is _MISSING:
                dict.pop(changed, key, None)
            else:
                dict.__setitem__(changed, key, before)


class UndoDict(dict[Key, Value]):
    """A dict of a machine: what a step has changed in it is put back if the step fails.

    Its values are immutable: they are replaced, never changed. Only the methods below may change it. A key that is put
    back after it was removed comes last: nothing may depend on the order of the keys of a dict that loses some.
    """

    __slots__ = ("_undo",)

    def __init__(self, undo: Undo, content: Mapping[Key, Value] | Iterable[tuple[Key, Value]] = ()) -> None:
        """Begin with some content; `undo` is that of its machine."""
        super().__init__(content)
        self._undo = undo

    def __setitem__(self, key: Key, value: Value) -> None:
        self._undo.changes.append((self, key, self.get(key, _MISSING)))
        super().__setitem__(key, value)

    def __delitem__(self, key: Key) -> None:
        """Remove a key.

        Raises:
            KeyError: it is not there.
        """
        self._undo.changes.append((self, key, self[key]))
        super().__delitem__(key)

    def drop(self, key: Key) -> None:
        """Remove a key, if it is there."""
        if key in self:
            del self[key]

    def replace(self, content: Mapping[Key, Value]) -> None:
        """Hold this content only."""
        for key in [key for key in self if key not in content]:
            del self[key]
        for key, value in content.items():
            self[key] = value

    def __reduce__(self) -> tuple[type[dict[Key, Value]], tuple[dict[Key, Value]]]:
        """Copy it as a plain dict."""
        return dict, (dict(self),)


class Machine(Generic[Event, Command]):
    """A machine that takes one event at a time; one of a single state has it in `phase`."""

    rules: ClassVar[Rules[Any, Any]]
    phase: Any

    def __init__(self) -> None:
        self.undo = Undo()

    @property
    def detail(self) -> str:
        """More than its state, for errors."""
        return ""

    def step(self, event: Event) -> tuple[Command, ...]:
        """Take one event and return what is to be done, in this order.

        Raises:
            IllegalEventError: no rule allows this event now; nothing was changed.
        """
        before = self.__dict__.copy()
        try:
            commands = self.take(event)
        except BaseException:
            self.__dict__.update(before)
            self.undo.put_back()
            raise
        self.undo.changes.clear()
        return commands

    def take(self, event: Event) -> tuple[Command, ...]:
        """Do what an event asks for; a machine that keeps several states says here whose event it is."""
        return self.follow(event)

    def follow(self, event: object) -> tuple[Command, ...]:
        """Execute the rule of the machine's phase, also for an event that follows from another one."""
        rule: Rule[Any, Command] = self.rules.find(self, self.phase, event)
        if rule.to is not None:
            self.phase = rule.to
        return rule.execute(self, event)
