"""What is known of the splits of one round, of the attempts that read them, and of their connections."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from lakeward.errors import UsageError
from lakeward.machines.machine import Machine, MachineState, Rules, UndoDict
from lakeward.machines.splits.enumeration import by_bucket
from lakeward.machines.splits.messages import (
    AttemptMoved,
    ConnectionMoved,
    SplitMoved,
    SplitsCommand,
    SplitsEvent,
)
from lakeward.model.backoff import NO_PAUSES, RetryPauses
from lakeward.model.splits import LogSplit, SnapshotSplit, Split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.machines.splits.enumeration import Enumeration
    from lakeward.model.tables import TableBucket

Attempt = tuple[int, int]
"""Subtask and attempt number."""
RESTORED: Attempt = (-1, 0)
"""A placeholder for an attempt of an earlier job whose result is in a checkpoint."""


class ReadingPhase(MachineState):
    """How far the splits of a round are."""

    READING = "reading"
    """Splits are assigned until all are finished."""
    FINISHING_EARLY = "finishing_early"
    """No more splits are assigned; those that are read end soon."""
    DONE = "done"
    """Every split is finished or skipped."""


class SplitPhase(MachineState):
    """The phase of a split."""

    UNASSIGNED = "unassigned"
    WITHHELD = "withheld"
    """Finished before a restore; the first attempt to register sends its result again."""
    ASSIGNED = "assigned"
    FINISHED = "finished"
    SKIPPED = "skipped"
    """Not read, because the round finishes early."""


class AttemptPhase(MachineState):
    """The phase of a subtask's attempt."""

    UNKNOWN = "unknown"
    """It never registered, and no newer attempt of its subtask did."""
    READY = "ready"
    """It registered, holds no split and has not requested one."""
    READING = "reading"
    """It holds at least one split."""
    IDLE = "idle"
    """It requested a split and got none; it is served when a split is returned."""
    DISMISSED = "dismissed"
    """`NoMore` was sent to it."""
    GONE = "gone"
    """It was lost or replaced, or its job ended."""


class ConnectionPhase(MachineState):
    """Where the connection of an attempt stands; an attempt that is gone has none."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """It closed; the attempt may reconnect."""
    GIVEN_UP = "given_up"
    """It was closed for too long: the attempt is about to be reported as lost."""


class RoundSplits(Machine[SplitsEvent, SplitsCommand]):
    """Who reads which split of a round, and what is finished."""

    split_rules: ClassVar[Rules[Any, SplitsCommand]]
    attempt_rules: ClassVar[Rules[Any, SplitsCommand]]
    connection_rules: ClassVar[Rules[Any, SplitsCommand]]

    def __init__(
        self,
        enumeration: Enumeration,
        finished: Mapping[str, int] = MappingProxyType({}),
        withheld: Mapping[str, int] = MappingProxyType({}),
        *,
        begun: Collection[str] = (),
        reconnect_s: float = inf,
        retries: RetryPauses = NO_PAUSES,
    ) -> None:
        """Start with every split unassigned, or restored from a checkpoint.

        `enumeration`: from `enumerate_splits`, its snapshots leased; at least one split. `finished`: restored splits
        whose result was accepted, each with the offset that it ended at. `withheld`: the same of those whose result was
        held back by the gateway of their subtask. `begun`: restored splits that are read to their end even if the round
        finishes early: with an exchange, some of their rows are already among those of other splits. `reconnect_s`:
        seconds in which an attempt whose connection closed may reconnect, > 0; infinite: no limit. `retries`: how long
        a split rests by the number of its attempts that were lost.

        Raises:
            UsageError: no split, two splits of one id, or a restored one that is not of the round.
        """
        super().__init__()
        self.splits: Mapping[str, Split] = MappingProxyType({split.split_id: split for split in enumeration.splits})
        if not self.splits or len(self.splits) < len(enumeration.splits):
            message = f"splits of a round: expected at least one, each id once, found {len(enumeration.splits)}"
            raise UsageError(message)
        unexpected = ({*finished} | {*withheld}) - {*self.splits} | ({*finished} & {*withheld})
        if unexpected:
            message = f"restored splits: expected those of the round, each once, found {sorted(unexpected)}"
            raise UsageError(message)
        self._before = enumeration.offsets
        self.order = tuple(self.splits)
        self.rank: Mapping[str, int] = MappingProxyType({split_id: rank for rank, split_id in enumerate(self.order)})
        self._by_bucket = MappingProxyType(by_bucket(enumeration.splits))
        self.restored_withheld = MappingProxyType(dict(withheld))
        self.begun = frozenset(begun)
        self.reconnect_s = reconnect_s
        self.retries = retries

        self.phase = ReadingPhase.READING
        phases = dict.fromkeys(self.splits, SplitPhase.UNASSIGNED)
        phases |= dict.fromkeys(finished, SplitPhase.FINISHED) | dict.fromkeys(withheld, SplitPhase.WITHHELD)
        self.phases = UndoDict(self.undo, phases)
        self.attempts = UndoDict[Attempt, AttemptPhase](self.undo)
        self.connections = UndoDict[Attempt, ConnectionPhase](self.undo)
        """Of each attempt that is not gone."""
        self._fresh = tuple(
            rank for rank, split_id in enumerate(self.order) if phases[split_id] is SplitPhase.UNASSIGNED
        )
        self._next_fresh = 0
        self._again: tuple[int, ...] = ()
        """Ranks of free splits that were assigned before, in order: each is lower than those of all fresh ones."""
        self.failures = UndoDict[str, int](self.undo)
        """By split: how many attempts were lost while they held it."""
        self.resting = UndoDict[str, float](self.undo)
        """By unassigned split that is not free: when it may be assigned again."""
        self.open = len(self.order) - len(finished)
        """How many splits are neither finished nor skipped."""
        self.finishes = UndoDict[str, tuple[Attempt, int]](
            self.undo, {split_id: (RESTORED, end) for split_id, end in finished.items()}
        )
        self.disconnected_at = UndoDict[Attempt, float](self.undo)
        self.newest = UndoDict[int, int](self.undo)
        """By subtask: the number of its newest attempt."""
        self.held = UndoDict[Attempt, frozenset[str]](self.undo)
        self.holders = UndoDict[str, Attempt](self.undo)
        self.waiting: tuple[Attempt, ...] = ()
        """Those that requested a split and were not served yet, in that order."""
        self.finishing_early = False
        """True once the round was asked to finish early."""
        self.incomplete = False
        """True once a split was skipped, or stopped before its end."""

    # --- what others read -----------------------------------------------------------------------------------

    @property
    def detail(self) -> str:
        """How many splits are left, and whether they may end early, for errors."""
        early = "finishing early" if self.finishing_early else "not finishing early"
        return f", {self.open} of {len(self.order)} splits open, {early}"

    @property
    def done(self) -> bool:
        """True once `AllDone` was sent."""
        return self.phase is ReadingPhase.DONE

    @property
    def unfinished(self) -> tuple[Split, ...]:
        """Splits not finished and not skipped, in the order of assignment."""
        ended = (SplitPhase.FINISHED, SplitPhase.SKIPPED)
        return tuple(split for split_id, split in self.splits.items() if self.phases[split_id] not in ended)

    @property
    def skipped(self) -> frozenset[str]:
        """The splits that an early finish has left out."""
        return frozenset(split_id for split_id, phase in self.phases.items() if phase is SplitPhase.SKIPPED)

    @property
    def withheld(self) -> frozenset[str]:
        """Splits whose result has to be sent again and that no attempt was given yet."""
        return frozenset(one for one in self.restored_withheld if self.phases[one] is SplitPhase.WITHHELD)

    @property
    def reconnect_by(self) -> float:
        """When the first disconnected attempt is overdue; infinite if all are connected."""
        return min(self.disconnected_at.values(), default=inf) + self.reconnect_s

    @property
    def rested_by(self) -> float:
        """When the first resting split may be assigned again; infinite if none rests."""
        return min(self.resting.values(), default=inf)

    def rests_until(self, split_id: str) -> float | None:
        """Return when a split that rests may be assigned again; None if it does not rest."""
        return self.resting.get(split_id)

    def held_by(self, subtask: int, attempt: int) -> tuple[Split, ...]:
        """Return the splits that an attempt is reading."""
        return tuple(self.splits[split_id] for split_id in sorted(self.held.get((subtask, attempt), ())))

    def offsets(self, positions: Mapping[str, int] = MappingProxyType({})) -> Mapping[TableBucket, int]:
        """Return the offsets of all buckets that may be committed now: the ends of contiguous finished prefixes.

        `positions`: of log splits in progress in a checkpoint; that of the first one after a bucket's finished prefix
        counts as well (`commit_every`).
        """
        offsets = dict(self._before)
        for bucket, splits in self._by_bucket.items():
            for split in self.prefix(splits):
                end = self.finishes[split.split_id][1]
                # A never tiered bucket that stopped at its first offset because the round finished early stays never
                # tiered.
                if isinstance(split, SnapshotSplit) or end > split.start:
                    offsets[bucket] = end
            half = self._frontier(splits)
            if half is not None and positions.get(half.split_id, half.start) > half.start:
                offsets[bucket] = positions[half.split_id]
        return offsets

    def frontier(self) -> tuple[LogSplit, ...]:
        """Return the log splits right after the buckets' finished prefixes: the part read so far may be committed."""
        found = (self._frontier(splits) for splits in self._by_bucket.values())
        return tuple(split for split in found if split is not None)

    def committable(self) -> frozenset[str]:
        """Return the ids of finished splits that lie within those prefixes: their files go into the commit."""
        return frozenset(split.split_id for splits in self._by_bucket.values() for split in self.prefix(splits))

    def prefix(self, splits: Iterable[Split]) -> Iterator[Split]:
        """Yield a bucket's finished splits up to the first that is not, or that was stopped early."""
        for split in splits:
            if split.split_id not in self.finishes:
                return
            yield split
            if self.finishes[split.split_id][1] < end_of(split):
                return

    def _frontier(self, splits: Sequence[Split]) -> LogSplit | None:
        """Return the log split at which a bucket's finished prefix ends; None if a snapshot or nothing comes next."""
        done = list(self.prefix(splits))
        following = splits[len(done)] if len(done) < len(splits) else None
        stopped = done and self.finishes[done[-1].split_id][1] != end_of(done[-1])
        return following if isinstance(following, LogSplit) and not stopped else None

    # --- what the rules use ---------------------------------------------------------------------------------

    def step_split(self, event: SplitMoved) -> tuple[SplitsCommand, ...]:
        """Take an event of a split."""
        return self.split_rules.step(self, self.phases, event.split_id, event)

    def step_attempt(self, event: AttemptMoved) -> tuple[SplitsCommand, ...]:
        """Take an event of an attempt; one that is older than its subtask's newest counts as gone."""
        attempt = (event.subtask, event.attempt)
        late = event.attempt < self.newest.get(event.subtask, event.attempt)
        default = AttemptPhase.GONE if late else AttemptPhase.UNKNOWN
        return self.attempt_rules.step(self, self.attempts, attempt, event, default)

    def step_connection(self, event: ConnectionMoved) -> tuple[SplitsCommand, ...]:
        """Take an event of a connection."""
        return self.connection_rules.step(self, self.connections, (event.subtask, event.attempt), event)

    def finish(self, split_id: str, by: Attempt, end_offset: int) -> None:
        """Note that a split is finished, and up to which offset."""
        self.incomplete = self.incomplete or end_offset < end_of(self.splits[split_id])
        self.finishes[split_id] = (by, end_offset)
        self.open -= 1

    @property
    def has_free(self) -> bool:
        """Whether a split can be assigned now."""
        return bool(self._again) or self._next_fresh < len(self._fresh)

    @property
    def free(self) -> tuple[str, ...]:
        """All splits that can be assigned now, in order."""
        return tuple(self.order[rank] for rank in (*self._again, *self._fresh[self._next_fresh :]))

    def take_free(self) -> str:
        """Return the free split of the lowest rank; it is free no more."""
        if self._again:
            rank, *rest = self._again
            self._again = tuple(rest)
        else:
            rank = self._fresh[self._next_fresh]
            self._next_fresh += 1
        return self.order[rank]

    def put_back(self, split_id: str) -> None:
        """Let a split that was assigned before be assigned again."""
        self._again = tuple(sorted((*self._again, self.rank[split_id])))

    def keep_free(self, split_ids: Iterable[str]) -> None:
        """Let no other splits be assigned any more."""
        self._again = tuple(sorted(self.rank[split_id] for split_id in split_ids))
        self._fresh, self._next_fresh = (), 0


def end_of(split: Split) -> int:
    """Return the offset at which a split is whole."""
    return split.log_offset if isinstance(split, SnapshotSplit) else split.stop
