"""Hundreds of tables of mixed size and promise, tiered by the product's own scheduling in virtual time.

Real: the machine `Rounds`, `MirroringQueue` and its queues. Simulated: the source's own queue, how long each step of a
round takes, and the clock. A promise is kept where the round that a table was due for commits before the deadline of
that table; a table that is still waiting when the simulation ends counts as well, once its deadline has passed.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakeward.machines.rounds import (
    CommitRound,
    Committed,
    Drained,
    FinishRoundEarly,
    HeartbeatAnswered,
    JobStarted,
    LaunchJob,
    Opened,
    OpenRound,
    Rounds,
    RoundsCommand,
    RoundsEvent,
    SendHeartbeat,
    Tick,
)
from lakeward.model.settings import ServiceSettings
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, TableAssignment
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.machines.rounds.state import TieringTable

HEARTBEAT_S = 0.005
"""How long a heartbeat takes."""
_SMALL_S = (60.0, 120.0, 120.0, 300.0, 300.0, 300.0, 900.0, 900.0, 900.0)
"""What small tables are promised."""
MIN_JOB_S = 0.2
"""The shortest job."""


@dataclass(frozen=True, slots=True)
class Load:
    """One table. Seconds: what was promised, and what opening it, reading and writing its rows, and committing take."""

    table_id: int
    freshness_s: float
    job_s: float
    open_s: float = 0.05
    commit_s: float = 0.5

    @property
    def path(self) -> TablePath:
        """Its name."""
        return TablePath("sim", f"t{self.table_id}")


class TieringQueue(Protocol):
    """What answers heartbeats."""

    def heartbeat(self, request: HeartbeatRequest, /) -> HeartbeatResponse:
        """See `lakeward.ports.Source`."""
        ...


class SourceQueue:
    """The source's own queue: first in, first out; a table is due one freshness after it was finished."""

    def __init__(self, clock: FakeClock, loads: Sequence[Load], *, all_due: bool = False) -> None:
        """Start with tables that fall due within their first freshness.

        Args:
            clock: of the run.
            loads: the tables.
            all_due: all of them are due at once, as after an outage.
        """
        chance = random.Random(0)  # noqa: S311 - a run has to be repeatable
        self._clock = clock
        self._loads = {load.table_id: load for load in loads}
        self._epochs = dict.fromkeys(self._loads, 0)
        self._due = [
            (clock.now() + (0.0 if all_due else chance.uniform(0.0, load.freshness_s)), load.table_id) for load in loads
        ]
        heapq.heapify(self._due)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """See `lakeward.ports.Source`."""
        now = self._clock.now()
        for epoch in request.finished:
            wait_s = 0.0 if epoch.table_id in request.forced else self._loads[epoch.table_id].freshness_s
            heapq.heappush(self._due, (now + wait_s, epoch.table_id))
        if not request.request or not self._due or self._due[0][0] > now:
            return HeartbeatResponse(0, None, {})
        due, table_id = heapq.heappop(self._due)
        self._epochs[table_id] += 1
        load = self._loads[table_id]
        assignment = TableAssignment(load.path, table_id, self._epochs[table_id], 0, load.freshness_s, now - due)
        return HeartbeatResponse(0, assignment, {})


class FirstInFirstOut(Rounds):
    """The comparison: waiting tables are opened in the order in which they became due, and rounds are not yielded."""

    def order(self, table: TieringTable) -> tuple[float, int]:
        return table.deadline - table.assignment.freshness_s, table.assignment.table_id

    def next_yield(self, now: float) -> None:
        return None


@dataclass(slots=True)
class Delivered:
    """What became of the promises of one run. Seconds."""

    late_s: dict[int, list[float]] = field(default_factory=dict)
    """By table: how late each promise was kept, 0 or less where it was in time."""
    missed: int = 0
    """Promises of tables that still waited at the end, after their deadline."""

    @property
    def promises(self) -> int:
        """How many fell due."""
        return sum(map(len, self.late_s.values())) + self.missed

    @property
    def share_kept(self) -> float:
        """The share of the promises that were kept."""
        kept = sum(late <= 0 for each in self.late_s.values() for late in each)
        return kept / self.promises if self.promises else 1.0

    def latest_s(self, table_ids: Sequence[int]) -> float:
        """Return by how much the latest of these tables was late."""
        return max((late for table_id in table_ids for late in self.late_s.get(table_id, ())), default=0.0)


class FreshnessRun:
    """One run: the machine, what answers it, and the events that are to come."""

    def __init__(
        self,
        loads: Sequence[Load],
        settings: ServiceSettings,
        *,
        policy: Callable[[ServiceSettings], Rounds] = Rounds,
        queue: Callable[[FakeClock, Sequence[Load]], TieringQueue] = SourceQueue,
        seed: int = 1,
    ) -> None:
        """Start with every table due.

        Args:
            loads: the tables.
            settings: of the service.
            policy: makes the machine.
            queue: makes what answers heartbeats.
            seed: of the variation of the jobs' durations.
        """
        self.clock = FakeClock(now=0.0)
        self.delivered = Delivered()
        self._loads = {load.table_id: load for load in loads}
        self._machine = policy(settings)
        self._queue = queue(self.clock, loads)
        self._random = random.Random(seed)  # noqa: S311 - a run has to be repeatable
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._left_s: dict[int, float] = {}
        """By table: what its next job takes; kept where a round finished early."""
        self._launched: dict[int, tuple[int, float]] = {}
        """By table with a job: the number of its end, and when it began."""
        self._owed: dict[int, float] = {}
        """By table: the deadline of the rows that wait."""

    def run(self, seconds: float) -> Delivered:
        """Let time pass.

        Args:
            seconds: of virtual time.
        """
        self._step(Tick(now=0.0))
        while True:
            due = self._machine.next_due
            at = self._events[0][0] if self._events else float("inf")
            next_at = min(at, float("inf") if due is None else max(due, self.clock.now()))
            if next_at > seconds:
                break
            self.clock.advance(max(0.0, next_at - self.clock.now()))
            if at <= next_at:
                heapq.heappop(self._events)[2]()
            else:
                self._step(Tick(now=self.clock.now()))
        for status in self._machine.tables:
            table_id = status.assignment.table_id
            self.delivered.missed += self._owed.get(table_id, status.deadline) < seconds
        return self.delivered

    def _after(self, seconds: float, work: Callable[[], None]) -> int:
        self._number += 1
        heapq.heappush(self._events, (self.clock.now() + seconds, self._number, work))
        return self._number

    def _step(self, event: RoundsEvent) -> None:
        for command in self._machine.step(event):
            self._execute(command)

    def _execute(self, command: RoundsCommand) -> None:
        match command:
            case SendHeartbeat():
                self._after(HEARTBEAT_S, lambda: self._heartbeat(command.request))
            case OpenRound():
                table_id = command.assignment.table_id
                self._after(self._loads[table_id].open_s, lambda: self._opened(table_id))
            case LaunchJob():
                self._launch(command.table_id)
            case FinishRoundEarly():
                self._finish_early(command.table_id)
            case CommitRound():
                self._after(self._loads[command.table_id].commit_s, lambda: self._committed(command.table_id))
            case _:
                pass

    def _heartbeat(self, request: HeartbeatRequest) -> None:
        response = self._queue.heartbeat(request)
        given = response.assignment
        if given is not None:
            deadline = self.clock.now() - given.waited_s + given.freshness_s
            self._owed.setdefault(given.table_id, deadline)
        self._step(HeartbeatAnswered(now=self.clock.now(), request=request, response=response))

    def _opened(self, table_id: int) -> None:
        self._step(Opened(now=self.clock.now(), table_id=table_id, splits=1, leases=False))

    def _launch(self, table_id: int) -> None:
        took = self._loads[table_id].job_s * self._random.uniform(0.8, 1.2)
        left = self._left_s.setdefault(table_id, max(MIN_JOB_S, took))
        self._launched[table_id] = (self._after(left, lambda: self._drained(table_id, number)), self.clock.now())
        number = self._launched[table_id][0]
        self._step(JobStarted(now=self.clock.now(), table_id=table_id))

    def _finish_early(self, table_id: int) -> None:
        _, began = self._launched[table_id]
        self._left_s[table_id] -= self.clock.now() - began
        number = self._after(MIN_JOB_S, lambda: self._drained(table_id, number, early=True))
        self._launched[table_id] = (number, began)

    def _drained(self, table_id: int, number: int, *, early: bool = False) -> None:
        if self._launched.get(table_id, (0, 0.0))[0] != number:
            return  # it finished early
        del self._launched[table_id]
        if not early or self._left_s[table_id] <= MIN_JOB_S:
            del self._left_s[table_id]
        self._step(Drained(now=self.clock.now(), table_id=table_id, finished_early=early))

    def _committed(self, table_id: int) -> None:
        complete = table_id not in self._left_s
        if complete:
            late = self.clock.now() - self._owed.pop(table_id)
            self.delivered.late_s.setdefault(table_id, []).append(late)
        self._step(Committed(now=self.clock.now(), table_id=table_id, caught_up=complete))


def mixed_load(tables: int = 500) -> tuple[Load, ...]:
    """Return tables of mixed size and promise: 1 % huge, 9 % large, the others small.

    Args:
        tables: how many.
    """
    return tuple(_load(number) for number in range(tables))


def _load(number: int) -> Load:
    if number % 100 == 0:
        return Load(number, 1800.0, 240.0, commit_s=5.0)
    if number % 100 < 10:
        return Load(number, 600.0, 20.0, commit_s=2.0)
    return Load(number, _SMALL_S[number % len(_SMALL_S)], 0.5)
