"""The lookup of the next state in a transition table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, cast

from lakeward.errors import IllegalEventError
from lakeward.machines.machine import MachineState

__all__ = ["MachineState", "next_state"]

State = TypeVar("State", bound=Enum)


def next_state(
    machine: str,
    table: Mapping[Any, Mapping[Any, Enum]],
    state: State,
    event: object,
    guard: Enum,
    *,
    detail: str = "",
) -> State:
    """Look up the next state of an event.

    Args:
        machine: the machine's name, for the error.
        table: (state, type of event) to a row; a row says which state follows under which guard.
        state: the current state.
        event: what happened.
        guard: the condition in which the event finds the machine; it selects one of the states of the row.
        detail: more about the machine, for the error.

    Returns:
        The state that follows.

    Raises:
        IllegalEventError: the table has no row for this event in this state, or none under this guard.
    """
    row = table.get((state, type(event)))
    if row is None or guard not in row:
        raise IllegalEventError(machine, f"{state.value}{detail} ({guard.value})", event)
    return cast("State", row[guard])
