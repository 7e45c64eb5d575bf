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
    """Send this attempt that no more splits will come."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SendFinishEarly:
    """Send this attempt, which holds a split, that it is to finish early."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Accept:
    """The finish counts: keep the write result of this split."""

    split_id: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The event of this attempt does not count: delete the files that it names, and cancel the attempt.

    Also returned for an attempt that a newer one replaced. Files of finishes that were accepted stay.
    """

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class SplitsReturned:
    """These were returned unfinished and will be read again (for the hook `on_failover`)."""

    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class AllDone:
    """Every split is finished or skipped; returned once. `incomplete`: some split was skipped or stopped early."""

    incomplete: bool


SplitsCommand = Assign | NoMore | SendFinishEarly | Accept | Reject | SplitsReturned | AllDone
