"""What can go wrong, at which step of the protocol; and which of these pairs cannot be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

STEPS = (
    "start", "open", "lease", "launch", "recover", "read", "close", "cut", "drain", "collect", "store", "settle",
    "commit", "complete", "report", "idle",
)  # fmt: skip
"""A table's round, as its coordinator has it: at `recover` subtasks restore rows, in runs that take checkpoints
meanwhile; `close` to `store` are the steps of a checkpoint, `commit` ends and `complete` begins when the lake has it;
`start` is the start of a service, `idle` a table without a round."""

NOW = (
    "subtask crash", "subtask pause", "executor lost", "job crash", "rescale", "coordinator crash", "coordinator pause",
    "second start", "other service", "connection lost", "messages delayed", "messages repeated", "messages reordered",
    "wall clock jump", "snapshots cleaned", "leases expire", "table dropped", "table recreated", "source restart",
    "source away", "long outage", "cleaned while away", "graceful stop",
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
EXCHANGE = ("channel lost", "channel stalled", "channel slow", "credit late")
"""Happen to the channels of an exchange, as soon as the step is reached; only runs with an exchange draw them."""
DISK = ("disk slow", "disk fails", "disk full", "disk damaged")
"""Happen to the next call of a disk that restored rows are spilled to; only runs with such recoveries draw them."""
ROWS = ("rows damaged", "rows gone")
"""Happen, as soon as the step is reached, to a file of rows beside a checkpoint; as `DISK`."""
BUCKETS = ("buckets changed", "buckets changed while away")
"""Happen, as soon as the step is reached, to the count of a table's buckets; only runs of their own draw them."""
COMMON = (*NOW, *(f"{service} {how}" for service, hows in CALLS.items() for how in hows), *CRASHES)
"""Any run draws these."""
KINDS = (*COMMON, *EXCHANGE, *DISK, *ROWS, *BUCKETS)

NEEDS = ("checkpoint", "restored", "stepped")
"""A completed checkpoint; a beginning that was restored from one; a commit, while it goes on. Themes of an exchange
know `relaunched` as well: this start has launched the round's job again; `rows`: its newest checkpoint holds some that
are in no closed file; and `recovering`: rows are restored."""
PATIENCE_S = 12.0
"""Seconds that a fault waits for its step; then any is good enough."""
AMID = (
    "subtask crash", "executor lost", "job crash", "coordinator crash", "coordinator pause", "second start",
    "other service", "connection lost", "snapshots cleaned", "leases expire", "table dropped", "table recreated",
    "source restart", "source restart", "source away",
)  # fmt: skip
"""What may happen while a call takes long: most bugs lie where two things meet that each go well alone."""
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
    needs: str = ""
    """What the round must have as well (`NEEDS`), empty for nothing."""
    times: int = 1
    """So many calls in a row go wrong."""
    amid: tuple[str, ...] = ()
    """What happens in the midst of a slow call; empty for anything, as often as the run has it."""
    patience: float = PATIENCE_S
    """See there."""
    call: str = ""
    """A word in the name of the call that it happens to; empty for any."""
    brief: bool = False
    """A slow call, with `amid`, has its answer within two seconds."""


@dataclass(slots=True)
class Faults:
    """The faults of one run, and which of them struck."""

    armed: list[Fault]
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    over: bool = False
    amid: float = 0.0
    """Share of slow calls in whose midst something else happens."""

    def may_strike(self, now: float) -> bool:
        """Say whether it matters to `due` or `waiting` where the tables are."""
        return any(
            now >= one.after and (one.kind in _NOW or (one.step in LONG and not one.lingered)) for one in self.armed
        )

    def due(self, steps: Mapping[str, Collection[str]], now: float) -> list[Fault]:
        """Return the faults that happen by themselves, and whose step and need are there.

        Args:
            steps: where the tables are, with what their rounds have.
            now: seconds.
        """
        if self.over:
            return []
        found = [one for one in self.armed if one.kind in _NOW and any(_met(one, *at, now) for at in steps.items())]
        for one in found:
            if one.step not in steps:  # it has waited for too long
                one.step = next(iter(steps))
        return found

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

    def strike(
        self, service: str, step: str, now: float, allowed: Iterable[str], *, has: Collection[str] = (), what: str = ""
    ) -> tuple[str, Fault] | None:
        """Take a fault of a service's call, if one waits for this step; return how it goes wrong."""
        if self.over or not self.armed:
            return None
        for fault in self.armed:
            if fault.call not in what or not _met(fault, step, has, now):
                continue
            owner, _, how = fault.kind.partition(" ")
            crash = fault.kind == f"crash in {service}"
            if crash or (owner == service and how in allowed):
                fault.times, fault.step = fault.times - 1, step
                if fault.times <= 0:
                    self.count(fault)
                return ("crash" if crash else how), fault
        return None


def _met(fault: Fault, step: str, has: Collection[str], now: float) -> bool:
    """Say whether a fault may strike: at its step, or at any once it has waited for long."""
    waited = now - fault.after
    here = fault.step == step and (not fault.needs or fault.needs in has)
    return (waited >= 0 and here) or waited > fault.patience


_NOW = frozenset({*NOW, *EXCHANGE, *ROWS, *BUCKETS})
