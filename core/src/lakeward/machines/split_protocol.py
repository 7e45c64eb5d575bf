"""What is said to and by the machine `splits`: its events and its commands.

An attempt is (subtask, attempt number). The numbers of one subtask grow over the whole round, also from one job to
the next: that is how a late word of an earlier attempt is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.splits import Split

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRegistered:
    """A subtask's attempt is ready. An older attempt of the same subtask is replaced: its splits come back.

    The same attempt once more (it reconnected) changes nothing. `restored` names the withheld splits whose finish it
    was given to send again.
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

    Before `stop` only after a cut; a snapshot split always ends at its log offset. Said again, it changes nothing.
    """

    now: float
    subtask: int
    attempt: int
    split_id: str
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """An attempt failed, was cancelled, or its connection is gone for good: its splits come back."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job is over (well or not): all attempts are gone, unfinished splits come back."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutAsked:
    """End early; asking twice is harmless."""

    now: float


SplitsEvent = AttemptRegistered | SplitRequested | SplitDone | AttemptLost | JobEnded | CutAsked

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """Hand this split to this attempt."""

    subtask: int
    attempt: int
    split: Split


@dataclass(frozen=True, slots=True)
class NoMore:
    """Tell this attempt that nothing will come any more."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TellCut:
    """Tell this attempt to end early (it has a split in work)."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Accept:
    """The finish counts: keep the write result of this split."""

    split_id: str


@dataclass(frozen=True, slots=True)
class Reject:
    """What this attempt said does not count: delete the files that this word of it names, cancel it.

    Also sent to an attempt that a newer one replaced, which said nothing. Files of finishes that were accepted stay.
    """

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class SplitsReturned:
    """These came back unfinished and will be read again (for the hook `on_failover`); after a cut nothing is."""

    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class AllDone:
    """Every split is finished or skipped; sent once. `cut` says that something was skipped or stopped early."""

    cut: bool


SplitsCommand = Assign | NoMore | TellCut | Accept | Reject | SplitsReturned | AllDone
