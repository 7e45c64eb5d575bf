"""Split enumeration, and who reads which split: one machine for each round.

Rules
* The books win: a finish that was accepted stays; a new attempt gets only unfinished splits.
* A split is read by one attempt at a time. A subtask's newer attempt replaces the older one; whatever the older one
  says afterwards is rejected.
* A cut hands out nothing new. Log splits stop where they are, started snapshot splits run to their end; a log split
  that was cut is finished at the offset it reached.
* A bucket's offset after the round is the end of its contiguous finished prefix.
"""
# CONTRACT: functions, events and commands below are agreed; the bodies are to be written.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lakeward.model.splits import Split
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket


@dataclass(frozen=True, slots=True)
class Enumeration:
    """What one look at the buckets gave.

    `splits` in the order in which they are handed out: snapshot splits first, then log splits, longest first.
    `offsets` are the offsets of ALL buckets before the round (a bucket never tiered and without records is left
    out). `snapshots` are to be leased. `behind` says that a snapshot split leaves log records to the next round.
    """

    splits: tuple[Split, ...]
    offsets: Mapping[TableBucket, int]
    snapshots: tuple[KvSnapshot, ...]
    behind: bool


def enumerate_splits(
    buckets: Sequence[BucketState],
    tiered: Mapping[TableBucket, int],
    *,
    primary_key: bool,
    cut_rows: int,
) -> Enumeration:
    """Make the splits of a round (rules: Fluss 4.4, and better).

    Args:
        buckets: every bucket's state now.
        tiered: the next offset to tier, by bucket, from the lake's head; absent = never tiered.
        primary_key: a primary-key table: never tiered and a snapshot is there = snapshot split.
        cut_rows: log splits of append-only tables are cut into ranges of about this many offsets; 0 = never.

    Returns:
        The enumeration. A bucket with `end` <= its tiered offset gives no split.

    Raises:
        LogTruncatedError: records between the tiered offset (or 0 on a never tiered primary-key bucket without a
            snapshot that covers the gap) and the log's start are gone; names buckets, offsets expected and found.
            A never tiered append-only bucket starts at the log's start: what retention removed before anybody
            tiered the table was never promised.
    """
    raise NotImplementedError


class SplitPhase(Enum):
    """Where a split stands."""

    UNASSIGNED = "unassigned"
    ASSIGNED = "assigned"
    FINISHED = "finished"
    SKIPPED = "skipped"
    """Left out by a cut."""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRegistered:
    """A subtask's attempt is ready. An older attempt of the same subtask is replaced: its splits come back."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequested:
    """An attempt has nothing to read."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDone:
    """An attempt closed all files of a split. `end_offset` is the first offset not contained."""

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
    """What this attempt said does not count: delete the files it names, cancel it."""

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class SplitsReturned:
    """These came back unfinished and will be read again (for the hook `on_failover`)."""

    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class AllDone:
    """Every split is finished or skipped; sent once. `cut` says that something was skipped or stopped early."""

    cut: bool


SplitsCommand = Assign | NoMore | TellCut | Accept | Reject | SplitsReturned | AllDone


class Splits:
    """The machine of one round. An idle attempt (it asked and got nothing) is remembered and served when a split
    comes back; it is told NoMore only when all splits are finished or skipped.
    """

    def __init__(self, enumeration: Enumeration) -> None:
        """Start with every split unassigned.

        Args:
            enumeration: what `enumerate_splits` gave, snapshots leased; at least one split.
        """
        raise NotImplementedError

    def step(self, event: SplitsEvent) -> tuple[SplitsCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        raise NotImplementedError

    def offsets(self) -> Mapping[TableBucket, int]:
        """Return the offsets of all buckets as they may be committed now: finished contiguous prefixes."""
        raise NotImplementedError

    def committable(self) -> frozenset[str]:
        """Return the ids of finished splits that lie within those prefixes: their files go into the commit."""
        raise NotImplementedError

    @property
    def unfinished(self) -> tuple[Split, ...]:
        """Splits not finished and not skipped, in hand-out order."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """True once `AllDone` was sent."""
        raise NotImplementedError
