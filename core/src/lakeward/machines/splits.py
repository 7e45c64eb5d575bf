"""Split enumeration, and who reads which split: one machine for each round.

Rules
* The books win: a finish that was accepted stays; a new attempt gets only unfinished splits.
* A split is read by one attempt at a time. A subtask's newer attempt replaces the older one; whatever the older one
  says afterwards is rejected.
* A cut hands out nothing new. Log splits stop where they are, started snapshot splits run to their end; a log split
  that was cut is finished at the offset it reached. What comes back after a cut is left out.
* A bucket's offset after the round is the end of its contiguous finished prefix.
* After a restore, a split whose finish had not reached the coordinator is withheld: it is not read again, an attempt
  is given the word of it to send once more. If that attempt is lost first, the next one to register gets it.
* Where splits and attempts may go is in `split_phases.TRANSITIONS`, looked up at every move.
"""

from __future__ import annotations

import heapq
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines import split_phases
from lakeward.machines.enumeration import Enumeration, by_bucket, enumerate_splits
from lakeward.machines.split_phases import TRANSITIONS, AttemptPhase, SplitPhase
from lakeward.machines.split_protocol import (
    Accept,
    AllDone,
    Assign,
    AttemptLost,
    AttemptRegistered,
    CutAsked,
    JobEnded,
    NoMore,
    Reject,
    SplitDone,
    SplitRequested,
    SplitsCommand,
    SplitsEvent,
    SplitsReturned,
    TellCut,
)
from lakeward.model.splits import LogSplit, SnapshotSplit, Split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakeward.model.tables import TableBucket

__all__ = [
    "TRANSITIONS",
    "Accept",
    "AllDone",
    "Assign",
    "AttemptLost",
    "AttemptPhase",
    "AttemptRegistered",
    "CutAsked",
    "Enumeration",
    "JobEnded",
    "NoMore",
    "Reject",
    "SplitDone",
    "SplitPhase",
    "SplitRequested",
    "Splits",
    "SplitsCommand",
    "SplitsEvent",
    "SplitsReturned",
    "TellCut",
    "enumerate_splits",
]

_MACHINE = "splits"

Attempt = tuple[int, int]
"""Subtask and attempt number."""
_RESTORED: Attempt = (-1, 0)
"""Stands for the attempt, of an earlier job, whose finish a checkpoint holds."""


class Splits:
    """The machine of one round.

    An idle attempt (it asked and got nothing) is remembered and served when a split comes back; it is told NoMore
    only when all splits are finished or skipped.
    """

    def __init__(
        self,
        enumeration: Enumeration,
        finished: Mapping[str, int] = MappingProxyType({}),
        withheld: Collection[str] = (),
    ) -> None:
        """Start with every split unassigned, or where a checkpoint left them.

        Args:
            enumeration: what `enumerate_splits` gave, snapshots leased; at least one split.
            finished: restored: splits whose finish was accepted, each with the offset that it ended at.
            withheld: restored: splits whose finish a subtask had not been let to send.

        Raises:
            UsageError: no split, two splits of one id, or a restored one that is not of the round.
        """
        self._splits: dict[str, Split] = {split.split_id: split for split in enumeration.splits}
        if not self._splits or len(self._splits) < len(enumeration.splits):
            message = f"splits of a round: expected at least one, each id once, found {len(enumeration.splits)}"
            raise UsageError(message)
        strange = ({*finished} | {*withheld}) - {*self._splits} | ({*finished} & {*withheld})
        if strange:
            message = f"restored splits: expected those of the round, each once, found {sorted(strange)}"
            raise UsageError(message)
        self._before = enumeration.offsets
        self._order = tuple(self._splits)
        self._rank = {split_id: rank for rank, split_id in enumerate(self._order)}
        self._by_bucket = by_bucket(enumeration.splits)
        self._phases = dict.fromkeys(self._splits, SplitPhase.UNASSIGNED)
        self._phases |= dict.fromkeys(finished, SplitPhase.FINISHED) | dict.fromkeys(withheld, SplitPhase.WITHHELD)
        self._withheld = frozenset(withheld)
        ready = (rank for rank, name in enumerate(self._order) if self._phases[name] is SplitPhase.UNASSIGNED)
        self._queue = list(ready)  # a heap of ranks; sorted is a heap
        self._open = len(self._order) - len(finished)
        self._finishes: dict[str, tuple[Attempt, int]] = {name: (_RESTORED, end) for name, end in finished.items()}
        self._attempts: dict[Attempt, AttemptPhase] = {}
        self._newest: dict[int, int] = {}
        self._held: dict[Attempt, set[str]] = {}
        self._holders: dict[str, Attempt] = {}
        self._waiting: dict[Attempt, None] = {}  # asked and not served yet, in that order
        self._cut = False
        self._cut_short = False
        self._done = False

    def step(self, event: SplitsEvent) -> tuple[SplitsCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        match event:
            case AttemptRegistered():
                commands = self._registered(event)
            case SplitRequested():
                commands = self._requested(event)
            case SplitDone():
                commands = self._split_done(event)
            case AttemptLost():
                commands = self._lost(event)
            case JobEnded():
                commands = self._job_ended(event)
            case CutAsked():
                commands = self._cut_asked(event)
            case _:
                assert_never(event)
        return (*commands, *self._serve(event), *self._all_done(event))

    def offsets(self, positions: Mapping[str, int] = MappingProxyType({})) -> Mapping[TableBucket, int]:
        """Return the offsets of all buckets as they may be committed now: finished contiguous prefixes.

        Args:
            positions: how far the log splits are that a checkpoint holds half done; the first one after a bucket's
                finished prefix counts too (`commit_every`).
        """
        offsets = dict(self._before)
        for bucket, splits in self._by_bucket.items():
            for split in self._prefix(splits):
                end = self._finishes[split.split_id][1]
                # A never tiered bucket that a cut stopped at its very start stays never tiered.
                if isinstance(split, SnapshotSplit) or end > split.start:
                    offsets[bucket] = end
            half = self._frontier(splits)
            if half is not None and positions.get(half.split_id, half.start) > half.start:
                offsets[bucket] = positions[half.split_id]
        return offsets

    def frontier(self) -> tuple[LogSplit, ...]:
        """Return the log splits at which the buckets' finished prefixes end: whose beginning may be committed."""
        found = (self._frontier(splits) for splits in self._by_bucket.values())
        return tuple(split for split in found if split is not None)

    def committable(self) -> frozenset[str]:
        """Return the ids of finished splits that lie within those prefixes: their files go into the commit."""
        return frozenset(split.split_id for splits in self._by_bucket.values() for split in self._prefix(splits))

    @property
    def unfinished(self) -> tuple[Split, ...]:
        """Splits not finished and not skipped, in hand-out order."""
        ended = (SplitPhase.FINISHED, SplitPhase.SKIPPED)
        return tuple(split for split_id, split in self._splits.items() if self._phases[split_id] not in ended)

    @property
    def withheld(self) -> frozenset[str]:
        """Splits whose finish has to be sent again and that no attempt was given yet."""
        return frozenset(split_id for split_id in self._withheld if self._phases[split_id] is SplitPhase.WITHHELD)

    @property
    def done(self) -> bool:
        """True once `AllDone` was sent."""
        return self._done

    def held_by(self, subtask: int, attempt: int) -> tuple[Split, ...]:
        """Return the splits that an attempt is reading."""
        return tuple(self._splits[split_id] for split_id in sorted(self._held.get((subtask, attempt), ())))

    def _prefix(self, splits: Iterable[Split]) -> Iterator[Split]:
        """Yield a bucket's finished splits up to the first that is not, or that was stopped early."""
        for split in splits:
            if split.split_id not in self._finishes:
                return
            yield split
            if self._finishes[split.split_id][1] < _end_of(split):
                return

    def _frontier(self, splits: Sequence[Split]) -> LogSplit | None:
        """Return the log split at which a bucket's finished prefix ends; None if a snapshot or nothing comes next."""
        whole = len(list(self._prefix(splits)))
        following = splits[whole] if whole < len(splits) else None
        stopped = whole and self._finishes[splits[whole - 1].split_id][1] != _end_of(splits[whole - 1])
        return following if isinstance(following, LogSplit) and not stopped else None

    def _registered(self, event: AttemptRegistered) -> list[SplitsCommand]:
        attempt, phase = self._own(event)
        if phase is AttemptPhase.GONE:
            return [self._late(attempt)]
        if phase is not AttemptPhase.UNKNOWN:
            return []
        if any(self._phases.get(split_id) is not SplitPhase.WITHHELD for split_id in event.restored):
            raise self._illegal(attempt, event)
        commands: list[SplitsCommand] = []
        older = (event.subtask, self._newest.get(event.subtask, -1))
        if self._phase_of(older) is not AttemptPhase.GONE and older in self._attempts:
            commands += self._give_back([older], event)
            commands.append(Reject(*older, f"replaced by attempt {event.attempt}"))
        self._newest[event.subtask] = event.attempt
        self._move_attempt(attempt, AttemptPhase.READY, event)
        for split_id in sorted(event.restored, key=self._rank.__getitem__):
            self._hold(split_id, attempt, event)
        return commands

    def _requested(self, event: SplitRequested) -> list[SplitsCommand]:
        attempt, phase = self._own(event)
        if phase is AttemptPhase.GONE:
            return [self._late(attempt)]
        if self._done:
            self._move_attempt(attempt, AttemptPhase.DISMISSED, event)
            return [NoMore(*attempt)]
        self._waiting[attempt] = None
        if phase is AttemptPhase.READY and not self._queue:
            self._move_attempt(attempt, AttemptPhase.IDLE, event)
        return []

    def _split_done(self, event: SplitDone) -> list[SplitsCommand]:
        attempt, phase = self._own(event)
        self._check_finish(event)
        if self._finishes.get(event.split_id) == (attempt, event.end_offset):
            return []  # said twice: its files are in the books and must not be rejected
        if phase is AttemptPhase.GONE:
            return [self._late(attempt)]
        split = self._splits[event.split_id]
        if self._holders.get(event.split_id) != attempt or not self._may_end(split, event.end_offset):
            raise self._illegal(attempt, event)
        self._cut_short = self._cut_short or event.end_offset < _end_of(split)
        self._drop(event.split_id)
        self._end(event.split_id, SplitPhase.FINISHED, event)
        self._finishes[event.split_id] = (attempt, event.end_offset)
        if not self._held[attempt]:
            rest = AttemptPhase.IDLE if attempt in self._waiting else AttemptPhase.READY
            self._move_attempt(attempt, rest, event)
        return [Accept(event.split_id)]

    def _lost(self, event: AttemptLost) -> list[SplitsCommand]:
        attempt, phase = self._own(event)
        if phase in (AttemptPhase.UNKNOWN, AttemptPhase.GONE):
            return []
        return self._give_back([attempt], event)

    def _job_ended(self, event: JobEnded) -> list[SplitsCommand]:
        living = [attempt for attempt, phase in self._attempts.items() if phase is not AttemptPhase.GONE]
        return self._give_back(living, event)

    def _cut_asked(self, event: CutAsked) -> list[SplitsCommand]:
        if self._cut:
            return []
        self._cut = True
        for rank in self._queue:
            self._end(self._order[rank], SplitPhase.SKIPPED, event)
        self._cut_short = self._cut_short or bool(self._queue)
        self._queue = []
        return [TellCut(*attempt) for attempt, held in self._held.items() if held]

    def _give_back(self, attempts: Iterable[Attempt], cause: SplitsEvent) -> list[SplitsCommand]:
        """Let these attempts go; what they hold is read again, or left out after a cut."""
        back: list[str] = []
        for attempt in attempts:
            back += self._held[attempt]
            self._waiting.pop(attempt, None)
            self._move_attempt(attempt, AttemptPhase.GONE, cause)
        back.sort(key=self._rank.__getitem__)
        for split_id in back:
            self._drop(split_id)
            if split_id in self._withheld:
                self._move_split(split_id, SplitPhase.WITHHELD, cause)
            elif self._cut:
                self._cut_short = True
                self._end(split_id, SplitPhase.SKIPPED, cause)
            else:
                self._move_split(split_id, SplitPhase.UNASSIGNED, cause)
                heapq.heappush(self._queue, self._rank[split_id])
        again = tuple(self._splits[split_id] for split_id in back if split_id not in self._withheld)
        return [SplitsReturned(again)] if again and not self._cut else []

    def _serve(self, cause: SplitsEvent) -> Iterator[SplitsCommand]:
        """Hand out what is there to those who wait, first come first served."""
        while self._waiting and self._queue:
            attempt = next(iter(self._waiting))
            del self._waiting[attempt]
            split_id = self._order[heapq.heappop(self._queue)]
            self._hold(split_id, attempt, cause)
            yield Assign(*attempt, self._splits[split_id])

    def _all_done(self, cause: SplitsEvent) -> Iterator[SplitsCommand]:
        if self._open or self._done:
            return
        self._done = True
        for attempt in self._waiting:
            self._move_attempt(attempt, AttemptPhase.DISMISSED, cause)
            yield NoMore(*attempt)
        self._waiting = {}
        yield AllDone(self._cut_short)

    def _hold(self, split_id: str, attempt: Attempt, cause: SplitsEvent) -> None:
        self._move_split(split_id, SplitPhase.ASSIGNED, cause)
        self._held[attempt].add(split_id)
        self._holders[split_id] = attempt
        self._move_attempt(attempt, AttemptPhase.READING, cause)

    def _drop(self, split_id: str) -> None:
        self._held[self._holders.pop(split_id)].remove(split_id)

    def _end(self, split_id: str, phase: SplitPhase, cause: SplitsEvent) -> None:
        self._move_split(split_id, phase, cause)
        self._open -= 1

    def _move_split(self, split_id: str, phase: SplitPhase, cause: SplitsEvent) -> None:
        self._check_move(self._phases[split_id], phase, cause)
        self._phases[split_id] = phase

    def _move_attempt(self, attempt: Attempt, phase: AttemptPhase, cause: SplitsEvent) -> None:
        self._check_move(self._phase_of(attempt), phase, cause)
        self._attempts[attempt] = phase
        self._held.setdefault(attempt, set())

    def _check_move(self, before: split_phases.State, after: split_phases.State, cause: SplitsEvent) -> None:
        if after not in split_phases.TRANSITIONS.get((before, type(cause)), ()):
            raise IllegalEventError(_MACHINE, f"{before.value}, which cannot become {after.value}", cause)

    def _phase_of(self, attempt: Attempt) -> AttemptPhase:
        """An attempt that never registered is gone if a newer one of its subtask did."""
        late = attempt[1] < self._newest.get(attempt[0], attempt[1])
        return self._attempts.get(attempt, AttemptPhase.GONE if late else AttemptPhase.UNKNOWN)

    def _own(self, event: AttemptRegistered | SplitRequested | SplitDone | AttemptLost) -> tuple[Attempt, AttemptPhase]:
        """Return who speaks; raise before anything is changed if it may not say this."""
        attempt = (event.subtask, event.attempt)
        phase = self._phase_of(attempt)
        if (phase, type(event)) not in split_phases.TRANSITIONS:
            raise self._illegal(attempt, event)
        return attempt, phase

    def _check_finish(self, event: SplitDone) -> None:
        phase = self._phases.get(event.split_id)
        if phase is None or (phase, SplitDone) not in split_phases.TRANSITIONS:
            raise self._illegal((event.subtask, event.attempt), event)

    def _may_end(self, split: Split, end_offset: int) -> bool:
        if end_offset == _end_of(split):
            return True
        if isinstance(split, SnapshotSplit):
            return split.live and end_offset > split.log_offset
        return self._cut and split.start <= end_offset < split.stop

    def _illegal(self, attempt: Attempt, event: SplitsEvent) -> IllegalEventError:
        state = f"attempt {self._phase_of(attempt).value}"
        if isinstance(event, SplitDone):
            split = self._splits.get(event.split_id)
            phase = "unknown" if split is None else f"{self._phases[event.split_id].value} ({split})"
            state = f"{state}, split {phase}, {'cut' if self._cut else 'not cut'}"
        return IllegalEventError(_MACHINE, state, event)

    def _late(self, attempt: Attempt) -> Reject:
        return Reject(*attempt, f"attempt {attempt[1]} of subtask {attempt[0]} was lost or replaced")


def _end_of(split: Split) -> int:
    return split.log_offset if isinstance(split, SnapshotSplit) else split.stop
