"""Whose turn it is: the most overdue table, tiered or mirrored; what is not ours is given back untouched."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from msgspec import structs

from lakeward.coordinator.rounds.mirroring import configured_tables
from lakeward.coordinator.service.scheduling import MirroringQueue
from lakeward.errors import SourceError
from lakeward.machines.rounds import (
    CommitRound,
    Committed,
    Drained,
    HeartbeatAnswered,
    JobStarted,
    LaunchJob,
    Opened,
    OpenRound,
    Rounds,
    RoundsEvent,
    SendHeartbeat,
    Tick,
)
from lakeward.model.settings import ServiceSettings, TableMode, TableSettings
from lakeward.model.tables import TablePath, TableSpec
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.ports import Source
    from lakeward_service_kit.service_world import World

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.int64(), nullable=False)])
SETTINGS = ServiceSettings(rounds=2, renew_s=20.0, poll_s=1.0, fence_s=45.0)


def spec(number: int, name: str, freshness_s: float = 2.0) -> TableSpec:
    path = TablePath("t", f"{name}{number}")
    return TableSpec(path, number, 1, SCHEMA, ("id", "at"), (), ("id", "at"), 4, freshness_s)


@dataclass
class Queue:
    """The source's own queue: first in, first out; one heartbeat takes `takes_s`."""

    clock: FakeClock
    specs: Sequence[TableSpec]
    enabled: frozenset[int]
    takes_s: float = 0.0
    fails: int = 0
    beats: list[HeartbeatRequest] = field(default_factory=list)
    name: str = "queue"
    leases: object = None

    def __post_init__(self) -> None:
        self.pending = deque(one for one in self.specs if one.table_id in self.enabled)
        self.epochs = dict.fromkeys(self.enabled, 1)
        self.timers: list[tuple[float, int]] = []

    def all_tables(self) -> Sequence[TableSpec]:
        return self.specs

    def tables(self) -> Sequence[TableSpec]:
        return [one for one in self.specs if one.table_id in self.enabled]

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        self.clock.advance(self.takes_s)
        self.beats.append(beat)
        if beat.failed and self.fails:
            self.fails -= 1
            message = "the connection broke"
            raise SourceError(message)
        refused: dict[int, Refusal] = {}
        by_id = {one.table_id: one for one in self.specs}
        for claim in beat.failed:
            if claim.epoch == self.epochs.get(claim.table_id):
                self._append(by_id[claim.table_id])
            else:
                refused[claim.table_id] = Refusal.FENCED
        for claim in beat.finished:
            due = self.clock.now() + (0.0 if claim.table_id in beat.forced else by_id[claim.table_id].freshness_s)
            heapq.heappush(self.timers, (due, claim.table_id))
        while self.timers and self.timers[0][0] <= self.clock.now():
            self._append(by_id[heapq.heappop(self.timers)[1]])
        assignment = None
        if beat.request and self.pending:
            first = self.pending.popleft()
            assignment = TableAssignment(first.path, first.table_id, self.epochs[first.table_id], 0, first.freshness_s)
        return HeartbeatResponse(0, assignment, refused)

    def _append(self, one: TableSpec) -> None:
        self.epochs[one.table_id] += 1
        self.pending.append(one)


def rules(path: TablePath) -> TableSettings:
    mode: TableMode = "mirror" if path.table.startswith("m") else "tier"
    return TableSettings(mode=mode, include=not path.table.startswith("x"))


def scheduled(queue: Queue) -> MirroringQueue:
    return MirroringQueue(cast("Source", queue), rules, queue.clock)


def longest_waits(queue: Queue, round_s: float, until_s: float) -> dict[TablePath, float]:
    """Let the machine `rounds` serve, each round taking so long; return the longest time between two commits."""
    source, rounds, clock = scheduled(queue), Rounds(SETTINGS), queue.clock
    todo: list[tuple[float, int, RoundsEvent]] = []
    paths = {one.table_id: one.path for one in queue.specs}
    start = clock.now()
    last = dict.fromkeys(paths.values(), start)
    longest = dict.fromkeys(last, 0.0)
    event: RoundsEvent = Tick(now=start)
    number = count()
    while clock.now() < start + until_s:
        for command in rounds.step(event):
            after: list[tuple[float, RoundsEvent]] = []
            match command:
                case SendHeartbeat():
                    answer = source.heartbeat(command.request)
                    after = [(0.005, HeartbeatAnswered(now=0.0, request=command.request, response=answer))]
                case OpenRound():
                    table = command.assignment.table_id
                    after = [(0.0, Opened(now=0.0, table_id=table, splits=1, leases=False))]
                case LaunchJob():
                    table = command.table_id
                    after = [
                        (0.0, JobStarted(now=0.0, table_id=table)),
                        (round_s, Drained(now=0.0, table_id=table, finished_early=False)),
                    ]
                case CommitRound():
                    path = paths[command.table_id]
                    longest[path] = max(longest[path], clock.now() - last[path])
                    last[path] = clock.now()
                    after = [(0.0, Committed(now=0.0, table_id=command.table_id, caught_up=True))]
                case _:
                    pass
            for wait, one in after:
                heapq.heappush(todo, (clock.now() + wait, next(number), one))
        due = rounds.next_due
        if todo and (due is None or todo[0][0] <= due):
            at, _, event = heapq.heappop(todo)
        else:
            at, event = due if due is not None else clock.now() + 1.0, Tick(now=0.0)
        clock.advance(max(0.0, at - clock.now()))
        event = structs.replace(event, now=clock.now())
    return {path: max(longest[path], clock.now() - at) for path, at in last.items()}


@pytest.mark.parametrize(("tiered", "mirrored"), [(40, 3), (3, 40), (20, 20), (1, 1)])
def test_no_table_starves_where_there_is_always_one_due(tiered: int, mirrored: int) -> None:
    specs = [spec(number, "t") for number in range(tiered)] + [spec(100 + n, "m") for n in range(mirrored)]
    queue = Queue(FakeClock(), specs, frozenset(range(tiered)))
    fair = max(2.0, (tiered + mirrored) * 0.5 / SETTINGS.rounds)
    waits = longest_waits(queue, round_s=0.5, until_s=30 * fair)
    assert max(waits.values()) < 1.6 * fair + 2.0


def test_tables_that_another_service_has_in_hand_are_not_waited_for() -> None:
    specs = [spec(number, "t") for number in range(23)] + [spec(100, "m")]
    queue = Queue(FakeClock(), specs, frozenset(range(23)))
    taken = [queue.pending.popleft().path for _ in range(3)]  # by another service, for ever
    waits = longest_waits(queue, round_s=0.5, until_s=200.0)
    assert max(wait for path, wait in waits.items() if path not in taken) < 10.0


def test_an_excluded_table_is_given_back_in_the_same_call_and_costs_nobody_a_turn() -> None:
    specs = [spec(0, "x"), spec(1, "x"), spec(2, "t")]
    queue = Queue(FakeClock(), specs, frozenset(range(3)))
    answer = scheduled(queue).heartbeat(HeartbeatRequest(request=True))
    assert answer.assignment is not None
    assert answer.assignment.table_id == 2
    assert [one.table_id for one in queue.pending] == [0, 1]
    assert [[claim.table_id for claim in beat.failed] for beat in queue.beats] == [[], [0], [1]]
    assert not any(beat.finished or beat.renewed for beat in queue.beats)


def test_where_only_excluded_tables_are_due_each_is_given_back_once_and_none_is_kept() -> None:
    queue = Queue(FakeClock(), [spec(number, "x") for number in range(5)], frozenset(range(5)))
    answer = scheduled(queue).heartbeat(HeartbeatRequest(request=True))
    assert answer.assignment is None
    assert len(queue.pending) == 5
    assert len(queue.beats) == 5 + 2


def test_a_search_in_vain_takes_a_tenth_of_the_time_at_the_most() -> None:
    queue = Queue(FakeClock(), [spec(number, "x") for number in range(50)], frozenset(range(50)), takes_s=0.01)
    source = scheduled(queue)
    for _ in range(1000):
        source.heartbeat(HeartbeatRequest(request=True))
        queue.clock.advance(0.1)
    searching = sum(beat.request for beat in queue.beats) * queue.takes_s
    assert searching < 0.12 * queue.clock.now()


def test_a_table_whose_give_back_failed_is_given_back_by_the_next_heartbeat() -> None:
    queue = Queue(FakeClock(), [spec(0, "x")], frozenset({0}), fails=1)
    source = scheduled(queue)
    assert source.heartbeat(HeartbeatRequest(request=True)).assignment is None
    assert not queue.pending
    source.heartbeat(HeartbeatRequest())
    assert [one.table_id for one in queue.pending] == [0]


def test_a_mirrored_table_that_another_service_tiers_is_given_back_to_it() -> None:
    queue = Queue(FakeClock(), [spec(0, "m"), spec(1, "t")], frozenset({0, 1}))
    source = scheduled(queue)
    offers = [source.heartbeat(HeartbeatRequest(request=True)).assignment for _ in range(2)]
    assert {assignment.table_id for assignment in offers if assignment is not None} == {0, 1}
    assert [one.table_id for one in queue.pending] == [0]
    mirror = next(assignment for assignment in offers if assignment is not None and assignment.table_id == 0)
    claim = TableEpoch(0, mirror.epoch, mirror.coordinator_epoch)
    assert source.heartbeat(HeartbeatRequest(renewed=(claim,), request=True)).refused == {}


def test_a_mirrored_table_that_is_bound_elsewhere_in_its_round_is_lost_and_the_source_hears_nothing_of_its_epoch() -> (
    None
):
    """The source may know the same epoch of that table from another service, whose round it would end."""
    queue = Queue(FakeClock(), [spec(0, "m"), spec(1, "t")], frozenset({0, 1}))
    bound_elsewhere: set[TablePath] = set()

    def changing(path: TablePath) -> TableSettings:
        return structs.replace(rules(path), include=path not in bound_elsewhere)

    source = MirroringQueue(cast("Source", queue), changing, queue.clock)
    offers = [source.heartbeat(HeartbeatRequest(request=True)).assignment for _ in range(2)]
    mirror = next(assignment for assignment in offers if assignment is not None and assignment.table_id == 0)
    claim = TableEpoch(0, mirror.epoch, mirror.coordinator_epoch)
    bound_elsewhere.add(mirror.path)
    queue.clock.advance(10)
    queue.beats.clear()
    for request in (HeartbeatRequest(renewed=(claim,)), HeartbeatRequest(finished=(claim,))):
        assert source.heartbeat(request).refused == {0: Refusal.NOT_TIERING}
    assert not any(beat.renewed or beat.finished or beat.failed for beat in queue.beats)


def test_a_mirrored_table_has_no_bucket_key_for_the_lake_to_partition_by() -> None:
    source = cast("Source", Queue(FakeClock(), [spec(0, "m"), spec(1, "t")], frozenset({1})))
    found = configured_tables(source, rules, mirrors=True)
    assert [one.bucket_key for one in found] == [(), ("id", "at")]
    assert [one.union_read for one in found] == [False, True]
    assert [one.primary_key for one in found] == [("id", "at"), ("id", "at")]


def test_an_excluded_table_stays_due_for_other_services(world: World) -> None:
    mine, other = world.table("mine"), world.table("other")
    world.load(mine, 0, 10)
    world.load(other, 0, 10)
    world.rules = lambda path: TableSettings(include=path == mine)
    below = EmbeddedSource(EmbeddedStore.open(world.store.root))
    assert world.once(source=below, mirrors=True).failed == ()
    assert len(world.lake.read(mine)) == 10
    assert world.lake.head(other) is None
    world.rules = lambda path: TableSettings(include=path == other)
    assignment = below.heartbeat(HeartbeatRequest(request=True)).assignment
    assert assignment is not None
    assert assignment.path == other
