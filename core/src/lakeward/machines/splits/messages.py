"""The events and commands of the machine `splits`.

An attempt is (subtask, attempt number). The numbers of one subtask grow over the whole round, also from one job to
the next: that is how a late event of an earlier attempt is recognized.
"""

from __future__ import annotations

from msgspec import Struct

from lakeward.machines.machine import AtTime
from lakeward.model.splits import Split

# --- events: what attempts of subtasks and their job report ---------------------------------------------------------


class _OfAttempt(AtTime, frozen=True, kw_only=True):
    subtask: int
    attempt: int


class AttemptRegistered(_OfAttempt, frozen=True, kw_only=True):
    """A subtask's attempt is ready. An older attempt of the same subtask is replaced: its splits are returned.

    The same attempt once more (it reconnected) changes nothing. `restored` are the withheld splits whose result this
    attempt sends again.
    """

    restored: frozenset[str] = frozenset()


class SplitRequested(_OfAttempt, frozen=True):
    """An attempt has nothing to read, or wants the next split while it still closes files of the last one."""


class SplitDone(_OfAttempt, frozen=True, kw_only=True):
    """An attempt closed all files of a split. `end_offset` is the first offset not contained.

    Before `stop` only while finishing early; a snapshot split ends at its log offset, or later if it is a live scan.
    Repeated, it changes nothing.
    """

    split_id: str
    end_offset: int


class AttemptLost(_OfAttempt, frozen=True):
    """An attempt failed, was cancelled, or its connection is gone for good: its splits are returned."""


class AttemptDisconnected(_OfAttempt, frozen=True):
    """The connection of an attempt closed; it may come back on another one."""


class AttemptReconnected(_OfAttempt, frozen=True):
    """The same attempt goes on over another connection."""


class ConnectionsChecked(AtTime, frozen=True):
    """Time passed: an attempt may have been disconnected for too long."""


class SplitsRested(AtTime, frozen=True):
    """Time passed: a split that failed again and again may be due for its next try."""


class JobEnded(AtTime, frozen=True):
    """The job has ended, successfully or not: all attempts are gone, unfinished splits are returned."""


class FinishEarlyRequested(AtTime, frozen=True):
    """The round is to finish early; repeated, it changes nothing."""


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


class _Attempt(Struct, frozen=True):
    subtask: int
    attempt: int


class SplitAssigned(Struct, frozen=True):
    """An attempt reads a split from now on, or sends the result of a withheld one again."""

    split_id: str
    subtask: int
    attempt: int


class SplitReturned(Struct, frozen=True):
    """The attempt that held a split is gone. `failed`: that says something against the split."""

    now: float
    split_id: str
    failed: bool


class SplitLeftOut(Struct, frozen=True):
    """The round finishes early before anybody reads a split."""

    split_id: str


class AttemptReplaced(Struct, frozen=True):
    """A newer attempt of the same subtask has registered."""

    now: float
    subtask: int
    attempt: int
    by: int


class AttemptEnded(_Attempt, frozen=True):
    """The job of an attempt has ended."""


class AttemptDismissed(_Attempt, frozen=True):
    """Every split has ended while an attempt waits for one."""


class ConnectionOverdue(_Attempt, frozen=True):
    """An attempt has not reconnected in time."""


class SplitsEnded(Struct, frozen=True):
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


class Assign(_Attempt, frozen=True):
    """Assign this split to this attempt."""

    split: Split


class NoMore(_Attempt, frozen=True):
    """Tell this attempt that no more splits will come."""


class SendFinishEarly(_Attempt, frozen=True):
    """Tell this attempt, which holds a split, to finish early."""


class Accept(Struct, frozen=True):
    """The split is finished: keep its write result."""

    split_id: str


class AcceptRestored(Struct, frozen=True):
    """The split is finished: its write result is the restored one, which nobody sends again any more."""

    split_id: str


class Reject(_Attempt, frozen=True):
    """The event of this attempt does not count: delete the files in it, and cancel the attempt.

    Also returned for an attempt that a newer one replaced. Files of accepted results stay.
    """

    reason: str


class SplitsReturned(Struct, frozen=True):
    """These were returned unfinished and will be read again (for the hook `on_failover`)."""

    splits: tuple[Split, ...]


class GiveUp(Struct, frozen=True):
    """These attempts were disconnected for too long: take over what they did, then report each as lost."""

    attempts: tuple[tuple[int, int], ...]
    """Subtask and attempt number."""


class AllDone(Struct, frozen=True):
    """Every split is finished or skipped; returned once. `incomplete`: some split was skipped or stopped early."""

    incomplete: bool


SplitsCommand = Assign | NoMore | SendFinishEarly | Accept | AcceptRestored | Reject | SplitsReturned | GiveUp | AllDone
