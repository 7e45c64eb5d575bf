"""What can go wrong, at which step of the protocol; and which of these pairs cannot be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STEPS = (
    "start", "open", "lease", "launch", "read", "close", "cut", "drain", "collect", "store", "settle", "commit",
    "complete", "report", "idle",
)  # fmt: skip
"""A table's round, as its coordinator has it: `close` to `store` are the steps of a checkpoint, `commit` ends and
`complete` begins when the lake has it; `start` is the start of a service, `idle` a table without a round."""

NOW = (
    "subtask crash", "subtask pause", "job crash", "rescale", "coordinator crash", "coordinator pause",
    "second start", "other service", "connection lost", "messages delayed", "messages repeated", "messages reordered",
    "wall clock jump", "snapshots cleaned", "leases expire", "table dropped", "table recreated", "source restart",
    "source away",
)  # fmt: skip
"""Happen as soon as the step is reached."""
CALLS: Mapping[str, tuple[str, ...]] = {
    "store": ("slow", "fails", "unknown", "torn"),
    "lake": ("slow", "fails", "unknown", "conflict"),
    "source": ("slow", "fails", "unknown"),
    "lease": ("slow", "fails", "unknown"),
}
"""Happen to the next call of that service which is made in the step."""
CRASHES = tuple(f"crash in {service}" for service in CALLS)
"""The coordinator dies in the middle of such a call."""
KINDS = (*NOW, *(f"{service} {how}" for service, hows in CALLS.items() for how in hows), *CRASHES)

LONG: Mapping[str, str | None] = {
    "close": None, "cut": None, "drain": None, "collect": None,
    "store": "store", "open": "lake", "commit": "lake", "complete": "source",
}  # fmt: skip
"""Steps that are over in a moment, unless something makes them last: messages that are late, or a call of a service."""


@dataclass(slots=True)
class Fault:
    """One fault that waits for its step. `after` is when it may strike, in seconds."""

    kind: str
    step: str
    after: float = 0.0
    lingered: bool = False


@dataclass(slots=True)
class Faults:
    """The faults of one run, and which of them struck."""

    armed: list[Fault]
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    over: bool = False

    def due(self, steps: Iterable[str], now: float) -> list[Fault]:
        """Return the faults that happen by themselves and wait for one of these steps."""
        if self.over:
            return []
        return [one for one in self.armed if one.step in steps and now >= one.after and one.kind in _NOW]

    def waiting(self, steps: Iterable[str], now: float) -> Fault | None:
        """Return a fault of a call that waits for one of these steps, the first time: the step may have to last."""
        for fault in self.armed:
            if fault.step in steps and fault.step in LONG and not fault.lingered and now >= fault.after:
                fault.lingered = True
                return fault
        return None

    def count(self, fault: Fault) -> None:
        """Count a fault that had something to happen to; it does not happen again."""
        self.armed.remove(fault)
        self.hits[fault.kind, fault.step] += 1

    def strike(self, service: str, step: str, now: float, allowed: Iterable[str]) -> str | None:
        """Take a fault of a service's call, if one waits for this step; return how it goes wrong."""
        if self.over or not self.armed:
            return None
        for fault in self.armed:
            if fault.step != step or now < fault.after:
                continue
            owner, _, how = fault.kind.partition(" ")
            crash = fault.kind == f"crash in {service}"
            if crash or (owner == service and how in allowed):
                self.count(fault)
                return "crash" if crash else how
        return None


_NOW = frozenset(NOW)
