"""Decides which subtask reads which split, and which results count: one machine for each round.

Rules
* An accepted result stays accepted; a new attempt gets only unfinished splits.
* A split is read by one attempt at a time. A subtask's newer attempt replaces the older one; what the older one sends
  afterwards is rejected.
* A round that finishes early assigns no more splits. Log splits stop where they are, started snapshot splits run to
  their end; a log split that stopped is finished at the offset it reached. A split that is returned later is skipped.
  A restored split of `begun` is not skipped then: it is assigned as before. If its attempt is lost after that, it ends
  like the others; with an exchange the launch ends with it, and a new machine begins from the checkpoint.
* A bucket's offset after the round is the end of its contiguous finished prefix.
* An attempt whose connection closed may reconnect. After `reconnect_s` it is given up: its job takes over what it did
  and reports it as lost. The connections of one executor's subtasks close one after the other, so those that closed
  within a moment of one another are given up together.
* A split whose attempts were lost again and again rests before its next try, longer each time; others are read
  meanwhile. No split rests beyond the end of its job, whose next launch waits by itself.
* After a restore, a finished split whose result had not reached the coordinator is withheld: it is not read again, an
  attempt sends its result once more. If that attempt is lost before, the next one to register sends it.
* `transitions.TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

import heapq
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.machine_state import next_state
from lakeward.machines.splits.commands import (
    Accept,
    AllDone,
    Assign,
    GiveUp,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitsCommand,
    SplitsReturned,
)
from lakeward.machines.splits.enumeration import Enumeration, by_bucket
from lakeward.machines.splits.events import (
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    FinishEarlyRequested,
    JobEnded,
    SplitDone,
    SplitRequested,
    SplitsEvent,
    SplitsRested,
)
from lakeward.machines.splits.transitions import TRANSITIONS, AttemptPhase, ConnectionPhase, SplitGuard, SplitPhase
from lakeward.model.backoff import NO_PAUSES, RetryPauses
from lakeward.model.splits import LogSplit, SnapshotSplit, Split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakeward.model.tables import TableBucket

_MACHINE = "splits"

Attempt = tuple[int, int]
"""Subtask and attempt number."""
_RESTORED: Attempt = (-1, 0)
"""A placeholder for an attempt of an earlier job whose result is in a checkpoint."""
_MOMENT_S = 1.0
"""Longest time in seconds in which the connections of one lost executor are seen to close."""
_MOMENT_SHARE = 0.2
"""It is at most this share of the time in which an attempt may reconnect."""


class Splits:
    """The machine of one round.

    An idle attempt (it requested a split and got none) is served when a split is returned; it is sent `NoMore` only
    when all splits are finished or skipped.
    """

    def __init__(
        self,
        enumeration: Enumeration,
        finished: Mapping[str, int] = MappingProxyType({}),
        withheld: Collection[str] = (),
        *,
        begun: Collection[str] = (),
        reconnect_s: float = inf,
        retries: RetryPauses = NO_PAUSES,
    ) -> None:
        """Start with every split unassigned, or restored from a checkpoint.

        Args:
            enumeration: from `enumerate_splits`, its snapshots leased; at least one split.
            finished: restored splits whose result was accepted, each with the offset that it ended at.
            withheld: restored splits whose result was held back by the gateway of their subtask.
            begun: restored splits that are read to their end even if the round finishes early: with an exchange, some
                of their rows are already among those of other splits.
            reconnect_s: seconds in which an attempt whose connection closed may reconnect, > 0; infinite: no limit.
            retries: how long a split rests by the number of its attempts that were lost.

        Raises:
            UsageError: no split, two splits of one id, or a restored one that is not of the round.
        """
        self._splits: dict[str, Split] = {split.split_id: split for split in enumeration.splits}
        if not self._splits or len(self._splits) < len(enumeration.splits):
            message = f"splits of a round: expected at least one, each id once, found {len(enumeration.splits)}"
            raise UsageError(message)
        unexpected = ({*finished} | {*withheld}) - {*self._splits} | ({*finished} & {*withheld})
        if unexpected:
            message = f"restored splits: expected those of the round, each once, found {sorted(unexpected)}"
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
        self._retries = retries
        self._failures: dict[str, int] = {}
        """By split: how many attempts were lost while they held it."""
        self._resting: dict[str, float] = {}
        """By unassigned split that is not in the queue: when it may be assigned again."""
        self._open = len(self._order) - len(finished)
        self._finishes: dict[str, tuple[Attempt, int]] = {name: (_RESTORED, end) for name, end in finished.items()}
        self._attempts: dict[Attempt, AttemptPhase] = {}
        self._connections: dict[Attempt, ConnectionPhase] = {}
        """Of each attempt that is not gone."""
        self._disconnected_at: dict[Attempt, float] = {}
        self._reconnect_s = reconnect_s
        self._newest: dict[int, int] = {}
        self._held: dict[Attempt, set[str]] = {}
        self._holders: dict[str, Attempt] = {}
        self._waiting: dict[Attempt, None] = {}  # requested a split and not served yet, in that order
        self._begun = frozenset(begun)
        self._finishing_early = False
        self._incomplete = False
        """True once a split was skipped, or stopped before its end."""
        self._done = False

    def step(self, event: SplitsEvent) -> tuple[SplitsCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: the table does not allow this event here; nothing was changed.
        """
        guard = self._check(event)
        before = self._copied()
        try:
            return self._take(event, guard)
        except BaseException:
            vars(self).update(before)
            raise

    def _copied(self) -> dict[str, object]:
        """Return everything that a step changes, as it is now."""
        return {
            **vars(self),
            "_phases": dict(self._phases),
            "_queue": list(self._queue),
            "_failures": dict(self._failures),
            "_resting": dict(self._resting),
            "_finishes": dict(self._finishes),
            "_attempts": dict(self._attempts),
            "_newest": dict(self._newest),
            "_held": {attempt: set(held) for attempt, held in self._held.items()},
            "_holders": dict(self._holders),
            "_waiting": dict(self._waiting),
            "_connections": dict(self._connections),
            "_disconnected_at": dict(self._disconnected_at),
        }

    def _take(self, event: SplitsEvent, guard: SplitGuard) -> tuple[SplitsCommand, ...]:
        """Do what an event that is legal asks for."""
        match event:
            case AttemptRegistered():
                commands = self._registered(event, guard)
            case SplitRequested():
                commands = self._requested(event, guard)
            case SplitDone():
                commands = self._split_done(event, guard)
            case AttemptLost():
                commands = self._lose([(event.subtask, event.attempt)], event) if guard is SplitGuard.LOST else []
            case AttemptDisconnected() | AttemptReconnected():
                commands = self._note_connection(event)
            case ConnectionsChecked():
                commands = self._give_up(event)
            case SplitsRested():
                self._wake(event.now)
                commands = []
            case JobEnded():
                self._wake(inf)
                alive = [attempt for attempt, phase in self._attempts.items() if phase is not AttemptPhase.GONE]
                commands = self._lose(alive, event)
            case FinishEarlyRequested():
                commands = self._finish_early(event)
            case _:
                assert_never(event)
        return (*commands, *self._serve(event), *self._all_done(event))

    def offsets(self, positions: Mapping[str, int] = MappingProxyType({})) -> Mapping[TableBucket, int]:
        """Return the offsets of all buckets that may be committed now: the ends of contiguous finished prefixes.

        Args:
            positions: positions of log splits in progress in a checkpoint; that of the first one after a bucket's
                finished prefix counts as well (`commit_every`).
        """
        offsets = dict(self._before)
        for bucket, splits in self._by_bucket.items():
            for split in self._prefix(splits):
                end = self._finishes[split.split_id][1]
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
        return frozenset(split.split_id for splits in self._by_bucket.values() for split in self._prefix(splits))

    @property
    def unfinished(self) -> tuple[Split, ...]:
        """Splits not finished and not skipped, in the order of assignment."""
        ended = (SplitPhase.FINISHED, SplitPhase.SKIPPED)
        return tuple(split for split_id, split in self._splits.items() if self._phases[split_id] not in ended)

    @property
    def skipped(self) -> frozenset[str]:
        """The splits that an early finish has left out."""
        return frozenset(split_id for split_id, phase in self._phases.items() if phase is SplitPhase.SKIPPED)

    @property
    def withheld(self) -> frozenset[str]:
        """Splits whose result has to be sent again and that no attempt was given yet."""
        return frozenset(split_id for split_id in self._withheld if self._phases[split_id] is SplitPhase.WITHHELD)

    @property
    def reconnect_by(self) -> float:
        """When the first disconnected attempt is overdue; infinite if all are connected."""
        return min(self._disconnected_at.values(), default=inf) + self._reconnect_s

    @property
    def rested_by(self) -> float:
        """When the first resting split may be assigned again; infinite if none rests."""
        return min(self._resting.values(), default=inf)

    def rests_until(self, split_id: str) -> float | None:
        """Return when a split that rests may be assigned again; None if it does not rest."""
        return self._resting.get(split_id)

    @property
    def done(self) -> bool:
        """True once `AllDone` was sent."""
        return self._done

    @property
    def finishing_early(self) -> bool:
        """True once the round was asked to finish early."""
        return self._finishing_early

    @property
    def incomplete(self) -> bool:
        """True once a split was skipped, or stopped before its end."""
        return self._incomplete

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
        done = list(self._prefix(splits))
        following = splits[len(done)] if len(done) < len(splits) else None
        stopped = done and self._finishes[done[-1].split_id][1] != _end_of(done[-1])
        return following if isinstance(following, LogSplit) and not stopped else None

    # --- which events are legal -----------------------------------------------------------------------------

    def _check(self, event: SplitsEvent) -> SplitGuard:
        """Return the guard of an event; raise before anything is changed if the table does not allow the event."""
        if isinstance(event, JobEnded | FinishEarlyRequested | ConnectionsChecked | SplitsRested):
            return SplitGuard.ALWAYS
        phase = self._phase_of((event.subtask, event.attempt))
        guard = self._guard(event, phase)
        row = TRANSITIONS.get((phase, type(event)), {})
        state = f"attempt {phase.value}"
        if isinstance(event, SplitDone):
            split = self._phases.get(event.split_id)
            row = TRANSITIONS.get((split, SplitDone), {}) if row and split is not None else {}
            known = "unknown" if split is None else f"{split.value} ({self._splits[event.split_id]})"
            state = f"{state}, split {known}, {'finishing early' if self._finishing_early else 'not finishing early'}"
        if guard not in row:
            raise IllegalEventError(_MACHINE, f"{state} ({guard.value})", event)
        return guard

    def _guard(self, event: SplitsEvent, phase: AttemptPhase) -> SplitGuard:
        guard = SplitGuard.UNCHANGED
        match event:
            case AttemptRegistered() if phase is AttemptPhase.UNKNOWN:
                withheld = all(self._phases.get(split_id) is SplitPhase.WITHHELD for split_id in event.restored)
                guard = SplitGuard.ALWAYS if withheld else SplitGuard.NOT_ALLOWED
            case SplitRequested() if phase in {AttemptPhase.READY, AttemptPhase.DISMISSED} and self._done:
                guard = SplitGuard.ALL_DONE
            case SplitRequested() if phase is AttemptPhase.READY:
                guard = SplitGuard.ASSIGNED if self._queue else SplitGuard.NONE_FREE
            case SplitDone() if phase is not AttemptPhase.GONE and not self._is_repeated(event):
                held = self._holders.get(event.split_id) == (event.subtask, event.attempt)
                guard = SplitGuard.COUNTS if held and self._may_end(event) else SplitGuard.NOT_ALLOWED
            case AttemptLost() if phase not in {AttemptPhase.UNKNOWN, AttemptPhase.GONE}:
                guard = SplitGuard.LOST
            case _:
                pass
        return guard

    def _is_repeated(self, event: SplitDone) -> bool:
        return self._finishes.get(event.split_id) == ((event.subtask, event.attempt), event.end_offset)

    def _may_end(self, event: SplitDone) -> bool:
        split = self._splits[event.split_id]
        if event.end_offset == _end_of(split):
            return True
        if isinstance(split, SnapshotSplit):
            return split.live and event.end_offset > split.log_offset
        return self._finishing_early and split.start <= event.end_offset < split.stop

    # --- what happens ---------------------------------------------------------------------------------------

    def _registered(self, event: AttemptRegistered, guard: SplitGuard) -> list[SplitsCommand]:
        attempt = (event.subtask, event.attempt)
        if guard is SplitGuard.UNCHANGED:
            return self._reject_if_gone(attempt)
        commands: list[SplitsCommand] = []
        older = (event.subtask, self._newest.get(event.subtask, -1))
        if self._phase_of(older) is not AttemptPhase.GONE and older in self._attempts:
            commands += self._lose([older], event)
            commands.append(Reject(*older, f"replaced by attempt {event.attempt}"))
        self._newest[event.subtask] = event.attempt
        self._held[attempt] = set()
        self._connections[attempt] = ConnectionPhase.CONNECTED
        self._move_attempt(attempt, guard, event)
        for split_id in sorted(event.restored, key=self._rank.__getitem__):
            self._assign(split_id, attempt, event)
        return commands

    def _requested(self, event: SplitRequested, guard: SplitGuard) -> list[SplitsCommand]:
        attempt = (event.subtask, event.attempt)
        if self._phase_of(attempt) is AttemptPhase.GONE:
            return self._reject_if_gone(attempt)
        if guard is SplitGuard.ALL_DONE:
            self._move_attempt(attempt, guard, event)
            return [NoMore(*attempt)]
        self._waiting[attempt] = None
        if guard is SplitGuard.NONE_FREE:
            self._move_attempt(attempt, guard, event)
        return []

    def _split_done(self, event: SplitDone, guard: SplitGuard) -> list[SplitsCommand]:
        attempt = (event.subtask, event.attempt)
        if self._is_repeated(event):
            return []  # its files count and must not be rejected
        if guard is SplitGuard.UNCHANGED:
            return self._reject_if_gone(attempt)
        self._incomplete = self._incomplete or event.end_offset < _end_of(self._splits[event.split_id])
        self._release(event.split_id)
        self._end(event.split_id, guard, event)
        self._finishes[event.split_id] = (attempt, event.end_offset)
        if not self._held[attempt]:
            self._move_attempt(
                attempt, SplitGuard.NONE_FREE if attempt in self._waiting else SplitGuard.NONE_HELD, event
            )
        return [Accept(event.split_id)]

    def _finish_early(self, event: FinishEarlyRequested) -> list[SplitsCommand]:
        if self._finishing_early:
            return []
        self._finishing_early = True
        self._wake(inf)
        skipped = [rank for rank in self._queue if self._order[rank] not in self._begun]
        for rank in skipped:
            self._end(self._order[rank], SplitGuard.ALWAYS, event)
        self._incomplete = self._incomplete or bool(skipped)
        self._queue = [rank for rank in self._queue if self._order[rank] in self._begun]
        return [SendFinishEarly(*attempt) for attempt, held in self._held.items() if held]

    def _note_connection(self, event: AttemptDisconnected | AttemptReconnected) -> list[SplitsCommand]:
        attempt = (event.subtask, event.attempt)
        closed = isinstance(event, AttemptDisconnected)
        if self._connections.get(attempt) is (ConnectionPhase.CONNECTED if closed else ConnectionPhase.DISCONNECTED):
            self._move_connection(attempt, SplitGuard.ALWAYS, event)
            if closed:
                self._disconnected_at[attempt] = event.now
            else:
                del self._disconnected_at[attempt]
        return []

    def _give_up(self, event: ConnectionsChecked) -> list[SplitsCommand]:
        """Give up who is overdue, and with it those whose connection closed within a moment of it."""
        if event.now < self.reconnect_by:
            return []
        moment_s = min(_MOMENT_S, _MOMENT_SHARE * self._reconnect_s)
        overdue = max(self.reconnect_by - self._reconnect_s + moment_s, event.now - self._reconnect_s)
        found = sorted(attempt for attempt, at in self._disconnected_at.items() if at <= overdue)
        for attempt in found:
            self._move_connection(attempt, SplitGuard.OVERDUE, event)
            del self._disconnected_at[attempt]
        return [GiveUp(tuple(found))]

    def _lose(self, attempts: Iterable[Attempt], cause: SplitsEvent) -> list[SplitsCommand]:
        """Remove lost attempts; the splits that they hold are read again, or skipped if the round finishes early."""
        returned: list[str] = []
        for attempt in attempts:
            returned += self._held[attempt]
            self._waiting.pop(attempt, None)
            del self._connections[attempt]
            self._disconnected_at.pop(attempt, None)
            self._move_attempt(attempt, SplitGuard.LOST, cause)
        returned.sort(key=self._rank.__getitem__)
        for split_id in returned:
            self._release(split_id)
            if split_id in self._withheld:
                self._move_split(split_id, SplitGuard.RETURNED_WITHHELD, cause)
            elif self._finishing_early:
                self._incomplete = True
                self._end(split_id, SplitGuard.RETURNED_EARLY, cause)
            else:
                self._move_split(split_id, SplitGuard.RETURNED, cause)
                self._put_back(split_id, cause)
        unread = tuple(self._splits[split_id] for split_id in returned if split_id not in self._withheld)
        return [SplitsReturned(unread)] if unread and not self._finishing_early else []

    def _put_back(self, split_id: str, cause: SplitsEvent) -> None:
        """Let a split be assigned again, once it has rested; the end of a job says nothing against its splits."""
        pause_s = 0.0
        if not isinstance(cause, JobEnded):
            self._failures[split_id] = self._failures.get(split_id, 0) + 1
            pause_s = self._retries.after(self._failures[split_id])
        if pause_s > 0:
            self._resting[split_id] = cause.now + pause_s
        else:
            heapq.heappush(self._queue, self._rank[split_id])

    def _wake(self, now: float) -> None:
        """Put the splits that have rested back into the queue."""
        for split_id in [split_id for split_id, at in self._resting.items() if at <= now]:
            del self._resting[split_id]
            heapq.heappush(self._queue, self._rank[split_id])

    def _serve(self, cause: SplitsEvent) -> Iterator[SplitsCommand]:
        """Assign free splits to the attempts that wait, first come first served."""
        while self._waiting and self._queue:
            attempt = next(iter(self._waiting))
            del self._waiting[attempt]
            split_id = self._order[heapq.heappop(self._queue)]
            self._assign(split_id, attempt, cause)
            yield Assign(*attempt, self._splits[split_id])

    def _all_done(self, cause: SplitsEvent) -> Iterator[SplitsCommand]:
        if self._open or self._done:
            return
        self._done = True
        for attempt in self._waiting:
            self._move_attempt(attempt, SplitGuard.ALL_DONE, cause)
            yield NoMore(*attempt)
        self._waiting = {}
        yield AllDone(self._incomplete)

    def _assign(self, split_id: str, attempt: Attempt, cause: SplitsEvent) -> None:
        self._move_split(split_id, SplitGuard.ASSIGNED, cause)
        self._held[attempt].add(split_id)
        self._holders[split_id] = attempt
        self._move_attempt(attempt, SplitGuard.ASSIGNED, cause)

    def _release(self, split_id: str) -> None:
        self._held[self._holders.pop(split_id)].remove(split_id)

    def _end(self, split_id: str, guard: SplitGuard, cause: SplitsEvent) -> None:
        self._move_split(split_id, guard, cause)
        self._open -= 1

    def _phase_of(self, attempt: Attempt) -> AttemptPhase:
        """Return an attempt's phase; one that never registered is gone if a newer one of its subtask has registered."""
        late = attempt[1] < self._newest.get(attempt[0], attempt[1])
        return self._attempts.get(attempt, AttemptPhase.GONE if late else AttemptPhase.UNKNOWN)

    def _reject_if_gone(self, attempt: Attempt) -> list[SplitsCommand]:
        if self._phase_of(attempt) is not AttemptPhase.GONE:
            return []
        return [Reject(*attempt, f"attempt {attempt[1]} of subtask {attempt[0]} was lost or replaced")]

    # --- moves: only these change a state -------------------------------------------------------------------

    def _move_split(self, split_id: str, guard: SplitGuard, cause: SplitsEvent) -> None:
        self._phases[split_id] = next_state(_MACHINE, TRANSITIONS, self._phases[split_id], cause, guard)

    def _move_attempt(self, attempt: Attempt, guard: SplitGuard, cause: SplitsEvent) -> None:
        self._attempts[attempt] = next_state(_MACHINE, TRANSITIONS, self._phase_of(attempt), cause, guard)

    def _move_connection(self, attempt: Attempt, guard: SplitGuard, cause: SplitsEvent) -> None:
        self._connections[attempt] = next_state(_MACHINE, TRANSITIONS, self._connections[attempt], cause, guard)


def _end_of(split: Split) -> int:
    return split.log_offset if isinstance(split, SnapshotSplit) else split.stop
