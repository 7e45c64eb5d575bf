"""What the states of all machines have in common."""

from __future__ import annotations

from enum import Enum


class MachineState(Enum):
    """A state of a machine. Hashed by identity: a table of transitions is looked up at every step."""

    __hash__ = object.__hash__
