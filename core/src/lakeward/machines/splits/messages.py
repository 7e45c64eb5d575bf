"""The events and commands of the machine `splits`.

An attempt is (subtask, attempt number). The numbers of one subtask grow over the whole round, also from one job to
the next: that is how a late event of an earlier attempt is recognized.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.splits import Split

# --- events: what attempts of subtasks and their job report ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRegistered:
    """A subtask's attempt is ready. An older attempt of the same subtask is replaced: its splits are returned.

    The same attempt once more (it reconnected) changes nothing. `restored` are the withheld splits whose result this
    attempt sends again.
    """

    now: float
    subtask: int
    attempt: int
    restored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequested:
    """An attempt has nothing to read, or wants the next split while it still closes files of the last one."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDone:
    """An attempt closed all files of a split. `end_offset` is the first offset not contained.

    Before `stop` only while finishing early; a snapshot split ends at its log offset, or later if it is a live scan.
    Repeated, it changes nothing.
    """

    now: float
    subtask: int
    attempt: int
    split_id: str
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """An attempt failed, was cancelled, or its connection is gone for good: its splits are returned."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDisconnected:
    """The connection of an attempt closed; it may come back on another one."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReconnected:
    """The same attempt goes on over another connection."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsChecked:
    """Time passed: an attempt may have been disconnected for too long."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitsRested:
    """Time passed: a split that failed again and again may be due for its next try."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job has ended, successfully or not: all attempts are gone, unfinished splits are returned."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEarlyRequested:
    """The round is to finish early; repeated, it changes nothing."""

    now: float


SplitsEvent = (
    AttemptRegistered
    | SplitRequested
    | SplitDone
    | AttemptLost
    | AttemptDisconnected
    | AttemptReconnected
    | ConnectionsChecked
    | SplitsRested
    | JobEnded
    | FinishEarlyRequested
)

# --- events of one thing that another one causes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitAssigned:
    """An attempt reads a split from now on, or sends the result of a withheld one again."""

    split_id: str
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SplitReturned:
    """The attempt that held a split is gone. `failed`: that says something against the split."""

    now: float
    split_id: str
    failed: bool


@dataclass(frozen=True, slots=True)
class SplitLeftOut:
    """The round finishes early before anybody reads a split."""

    split_id: str


@dataclass(frozen=True, slots=True)
class AttemptReplaced:
    """A newer attempt of the same subtask has registered."""

    now: float
    subtask: int
    attempt: int
    by: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The job of an attempt has ended."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptDismissed:
    """Every split has ended while an attempt waits for one."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ConnectionOverdue:
    """An attempt has not reconnected in time."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SplitsEnded:
    """Every split is finished or skipped."""


AttemptMoved = (
    AttemptRegistered
    | SplitRequested
    | SplitDone
    | AttemptLost
    | SplitAssigned
    | AttemptReplaced
    | AttemptEnded
    | AttemptDismissed
)
"""What happens to an attempt."""
SplitMoved = SplitAssigned | SplitReturned | SplitLeftOut | SplitDone
"""What happens to a split."""
ConnectionMoved = AttemptDisconnected | AttemptReconnected | ConnectionOverdue
"""What happens to the connection of an attempt."""

# --- commands: what the job does ------------------------------------------------------------------------------------


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
