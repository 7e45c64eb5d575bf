"""The commands of the machine `splits`: what the job does, in the order in which they are returned."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.splits import Split


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign this split to this attempt."""

    subtask: int
    attempt: int
    split: Split


@dataclass(frozen=True, slots=True)
class NoMore:
    """Tell this attempt that no more splits will come."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SendFinishEarly:
    """Tell this attempt, which holds a split, to finish early."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Accept:
    """The split is finished: keep its write result."""

    split_id: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The event of this attempt does not count: delete the files in it, and cancel the attempt.

    Also returned for an attempt that a newer one replaced. Files of accepted results stay.
    """

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class SplitsReturned:
    """These were returned unfinished and will be read again (for the hook `on_failover`)."""

    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """These attempts were disconnected for too long: take over what they did, then report each as lost."""

    attempts: tuple[tuple[int, int], ...]
    """Subtask and attempt number."""


@dataclass(frozen=True, slots=True)
class AllDone:
    """Every split is finished or skipped; returned once. `incomplete`: some split was skipped or stopped early."""

    incomplete: bool


SplitsCommand = Assign | NoMore | SendFinishEarly | Accept | Reject | SplitsReturned | GiveUp | AllDone
