"""Steps a machine: one event at a time, each command with the event that caused it, the last steps kept."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.machines.machine import Machine

Event = TypeVar("Event")
Command = TypeVar("Command")

STEPS_KEPT = 32
_LONGEST_STEP = 500
"""Most characters of one step in an error's notes: a heartbeat lists every table."""


class Step(Struct, Generic[Event, Command], frozen=True):
    """One step of a machine: the event and the commands that it returned."""

    event: Event
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        """Return one line, shortened if it is too long to read."""
        line = f"{self.event!r} -> {', '.join(map(repr, self.commands)) or 'nothing'}"
        return line if len(line) <= _LONGEST_STEP else f"{line[:_LONGEST_STEP]}..."


class MachineDriver(Generic[Event, Command]):
    """Steps one machine: `post` also has its commands executed, `step` leaves them to the caller.

    Posted events are queued: one that is posted while a command is executed waits until all commands of that step are
    done. Not thread-safe: only the thread that owns the machine may use it.
    """

    def __init__(
        self,
        machine: Machine[Event, Command],
        execute: Callable[[Command, Event], None] | None = None,
        *,
        on_step: Callable[[Step[Event, Command]], None] | None = None,
        kept: int = STEPS_KEPT,
    ) -> None:
        """Begin with nothing stepped; only this driver steps the machine.

        `execute` executes one command, given the event that caused it; None where the caller of `step` does. `on_step`
        sees each step before its commands are executed. `kept`: how many of the last steps are kept.
        """
        self._machine = machine
        self._execute = execute
        self._on_step = on_step
        self._queue: deque[Event] = deque()
        self._steps: deque[Step[Event, Command]] = deque(maxlen=kept)
        self._stepping = False
        self._closed = False

    @property
    def steps(self) -> tuple[Step[Event, Command], ...]:
        """The last steps, the oldest first."""
        return tuple(self._steps)

    def post(self, event: Event) -> None:
        """Step the machine with an event and execute its commands, after the events that were posted before.

        An error of the machine or of `execute` is raised to the outermost caller of `post`. The other commands of that
        step are not executed; queued events are stepped at the next `post`. After `close` events are ignored.

        Raises:
            IllegalEventError: the machine does not allow the event; the error's notes list the last steps.
        """
        if self._closed:
            return
        self._queue.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._queue:
                event = self._queue.popleft()
                for command in self.step(event):
                    if self._execute is not None:
                        self._execute(command, event)
        finally:
            self._stepping = False

    def close(self) -> None:
        """Stop stepping the machine; drop queued events."""
        self._closed = True
        self._queue.clear()

    def step(self, event: Event) -> tuple[Command, ...]:
        """Step the machine with an event; the commands are the caller's to execute.

        Raises:
            IllegalEventError: the machine does not allow the event; the error's notes list the last steps.
        """
        try:
            commands = self._machine.step(event)
        except Exception as error:
            error.add_note(self._history())
            raise
        step = Step(event, commands)
        self._steps.append(step)
        if self._on_step is not None:
            self._on_step(step)
        return commands

    def _history(self) -> str:
        lines = [f"the last {len(self._steps)} steps before, the oldest first:", *map(str, self._steps)]
        return "\n  ".join(lines)
