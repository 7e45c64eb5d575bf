"""A checkpoint's snapshots are held until it is used, superseded or given up, whatever happens in between."""

from __future__ import annotations

import asyncio
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lakeward.clock import SystemClock
from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.checkpoints import CheckpointState
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.service_state import FILE
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import FAIL, HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World, let_writes_end
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import LIMIT_S, until, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakeward.coordinator.service.service import Service
    from lakeward.model.checkpoints import (
        Checkpoint,
        CheckpointRef,
        LeaseCopy,
        PartFile,
        RoundSnapshot,
        SubtaskSnapshot,
    )
    from lakeward.model.tables import TablePath

pytestmark = pytest.mark.slow

ROWS = 120
AWAY_S = 150.0
"""Longer than the source's heartbeat timeout, shorter than the lease."""
_OFTEN = {"interval_s": 0.05, "pause_s": 0.0}
_SOON = {"backoff_first_s": 0.1, "backoff_most_s": 0.1}


class ShiftedClock(SystemClock):
    """A clock that a test sets forward."""

    shift_s = 0.0

    def wall_ms(self) -> int:
        """See `Clock`."""
        return super().wall_ms() + int(self.shift_s * 1000)


@dataclass
class Halfway:
    """A keyed table whose first round stands in the middle of its snapshots, with a checkpoint of that."""

    world: World
    clock: ShiftedClock
    gate: Path
    keyed: TablePath
    cleaned: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def create(cls, directory: Path) -> Halfway:
        """Fill the table and take its snapshots."""
        clock = ShiftedClock()
        store = EmbeddedStore.create(directory / "store", clock=clock)
        world = replace(World.create(directory / "world"), store=store, clock=clock)
        keyed = world.table("keyed", key=True, properties={"table.kv.snapshot.num-retained": "1"})
        world.load(keyed, 0, ROWS)
        store.snapshot(keyed)
        gate = directory / "gate"
        gate.touch()
        return cls(world, clock, gate, keyed)

    def service(self, **options: Any) -> Service:  # noqa: ANN401 - fields of any type
        """Make a service that takes checkpoints all the time."""
        source = HeldSource(EmbeddedStore.open(self.world.store.root, clock=self.clock), self.gate, 2)
        ours: dict[str, Any] = {"source": source, "source_type": "held", **_OFTEN, **_SOON}
        ours |= {"jobs": ThreadJobs(run_subtask, slots=3)}
        return self.world.service(**ours | options)

    def whole(self) -> list[Checkpoint]:
        """Return all checkpoints that completed and were not deleted meanwhile."""
        files = CheckpointFiles(SmallFiles(str(self.world.directory / "state")), self.clock)
        found: list[Checkpoint] = []
        for info in files.list("svc"):
            if info.state is CheckpointState.COMPLETE:
                with suppress(CorruptFileError):  # a service that runs deletes older ones
                    found.append(files.load(info.ref))
        return found

    def left(self) -> int:
        """Return how many rows of snapshots the newest checkpoint has not read yet."""
        let_writes_end()
        whole = self.whole()
        assert whole
        progress = CheckpointContents.of(whole[-1].coordinator, whole[-1].subtasks).progress
        return ROWS - sum(one.rows for one in progress.values())

    def half_done(self) -> bool:
        """Say whether two checkpoints hold a beginning of every split.

        The end of a service takes one back that was stored and that it had not heard of.
        """
        begun = [[one for part in found.subtasks for one in part.progress if one.rows] for found in self.whole()]
        return len(begun) > 1 and all(len(splits) > 1 for splits in begun[-2:])

    def clean_up(self) -> None:
        """Take newer snapshots; the source deletes the earlier ones, but for those that are leased."""
        self.world.load(self.keyed, 0, ROWS, change="update")
        self.world.store.snapshot(self.keyed)
        self.world.store.maintain()
        self.cleaned.set()

    def finish(self, *, before: Callable[[HeldSource], None] = lambda _: None, **options: Any) -> int:  # noqa: ANN401 - as above
        """Open the gate, let a service run until all is in the lake; return the rows of snapshots that it read."""
        self.gate.unlink(missing_ok=True)
        service = self.service(once=True, **options)
        source = self.world.container.components().source
        assert isinstance(source, HeldSource)
        before(source)
        assert asyncio.run(service.serve()).failed == ()
        rows = self.world.lake.read(self.keyed, key="id")
        assert sorted(row["id"] for row in rows) == list(range(ROWS))
        return source.snapshot_rows()


class SlowCheckpoints(CheckpointFiles):
    """Stands still before it writes the `_metadata` of a checkpoint that holds a beginning of both splits.

    It refuses earlier ones: nothing but the one that is being stored holds the round's snapshots.
    """

    def __init__(self, halfway: Halfway) -> None:
        super().__init__(SmallFiles(str(halfway.world.directory / "state")), halfway.clock)
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.left = ROWS

    def complete(
        self, ref: CheckpointRef, coordinator: RoundSnapshot, parts: Sequence[PartFile], lease: LeaseCopy | None
    ) -> int:
        rows = [one.rows for part in parts for one in self._read_part(ref, part).progress if one.rows]
        if len(rows) < 2 and not self.begun.is_set():
            message = "earlier than the test wants it"
            raise StorageError(message)
        if not self.begun.is_set():
            self.left = ROWS - sum(rows)
            self.begun.set()
            self.go_on.wait(LIMIT_S)
        return super().complete(ref, coordinator, parts, lease)


def _killed_halfway(halfway: Halfway, **options: Any) -> None:  # noqa: ANN401 - fields of any type
    asyncio.run(_die_halfway(halfway, **options))
    let_writes_end()


async def _die_halfway(halfway: Halfway, **options: Any) -> None:  # noqa: ANN401 - fields of any type
    serving = asyncio.create_task(halfway.service(**options).serve())
    await until(halfway.half_done)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


@pytest.fixture
def halfway(tmp_path: Path) -> Iterator[Halfway]:
    made = Halfway.create(tmp_path)
    yield made
    made.gate.unlink(missing_ok=True)  # else its readers stand there, and look, for as long as other tests run


@pytest.mark.parametrize("away_s", [0.0, AWAY_S], ids=["within the timeout", "after it"])
def test_a_restart_reads_only_what_is_left_though_the_source_cleans_up_before_the_table_comes_again(
    halfway: Halfway, away_s: float
) -> None:
    _killed_halfway(halfway)
    left, backend = halfway.left(), halfway.world.backend
    halfway.clock.shift_s += away_s
    backend.calls.clear()

    def taken_over_and_cleaned(source: HeldSource) -> None:
        leases = halfway.world.container.leases()

        def settled() -> bool:
            # A start asks for all that it lets go of before its first heartbeat.
            return "drop" in dict(backend.calls) and not leases.held_leases.releasing

        def before_heartbeat() -> None:
            if not halfway.cleaned.is_set() and away_s:
                wait_until(settled, "the lease of the start before is dropped, and what nobody needs is released")
                halfway.clean_up()

        source.before_heartbeat = before_heartbeat

    if not away_s:
        halfway.clean_up()

    assert halfway.finish(before=taken_over_and_cleaned) == left < ROWS
    assert halfway.cleaned.is_set()
    assert [lease for lease in halfway.world.store.leases() if lease.held] == []


def test_a_start_that_finds_no_state_file_knows_the_lease_from_the_newest_checkpoint(halfway: Halfway) -> None:
    """Else it would be left to run out, and hold its snapshots as long."""
    _killed_halfway(halfway)
    earlier = {lease.lease_id for lease in halfway.world.store.leases() if lease.held}
    assert earlier
    states = list((halfway.world.directory / "state" / "svc").glob(f"*/{FILE}"))
    assert states
    for state in states:
        state.unlink()
    halfway.clock.shift_s += AWAY_S
    halfway.world.backend.calls.clear()
    halfway.finish()
    assert earlier <= {lease_id for hook, lease_id in halfway.world.backend.calls if hook == "drop"}


def _restorer(halfway: Halfway) -> tuple[Restorer, int]:
    halfway.service()
    return halfway.world.container.restorer(), halfway.world.store.table(halfway.keyed).table_id


def test_a_lake_table_that_is_missing_at_one_look_lets_nothing_go(halfway: Halfway, tmp_path: Path) -> None:
    _killed_halfway(halfway)
    restorer, table_id = _restorer(halfway)
    source = EmbeddedSource(halfway.world.store)
    for _ in range(2):  # a look that finds it in between: the next one that does not is the first again
        shutil.move(halfway.world.lake.root, tmp_path / "away")
        restorer.start(source)
        assert restorer.known.needed(table_id)
        shutil.move(tmp_path / "away", halfway.world.lake.root)
        restorer.check_again(source, {table_id})
        assert restorer.known.needed(table_id)


def test_a_lake_table_that_is_missing_at_two_looks_in_a_row_is_gone(halfway: Halfway, tmp_path: Path) -> None:
    _killed_halfway(halfway)
    restorer, table_id = _restorer(halfway)
    source = EmbeddedSource(halfway.world.store)
    shutil.move(halfway.world.lake.root, tmp_path / "away")
    restorer.start(source)
    restorer.check_again(source, {table_id})
    assert restorer.known.needed(table_id) == ()


def test_a_stop_in_the_middle_of_a_round_keeps_what_its_checkpoint_has_to_read(halfway: Halfway) -> None:
    async def stopped_halfway() -> None:
        service = halfway.service(stop_timeout_s=0.3)
        serving = asyncio.create_task(service.serve())
        await until(halfway.half_done)
        service.stop()
        await until(lambda: halfway.world.outcomes(halfway.keyed))
        halfway.gate.unlink()  # the round is over: its readers may end
        await serving

    asyncio.run(stopped_halfway())
    assert halfway.world.outcomes(halfway.keyed) == ["stopped"]
    left = halfway.left()
    halfway.clean_up()

    assert halfway.finish() == left < ROWS


def test_a_stop_while_a_checkpoint_is_being_stored_keeps_it_and_what_it_has_to_read(halfway: Halfway) -> None:
    slow = SlowCheckpoints(halfway)

    async def stopped_meanwhile() -> None:
        service = halfway.service(stop_timeout_s=0.1, checkpoints=slow)
        serving = asyncio.create_task(service.serve())
        await until(slow.begun.is_set)
        service.stop()
        await until(lambda: halfway.world.outcomes(halfway.keyed))
        slow.go_on.set()
        halfway.gate.unlink()
        await serving

    asyncio.run(stopped_meanwhile())
    assert halfway.world.outcomes(halfway.keyed) == ["stopped"]
    halfway.clean_up()

    assert halfway.finish() == slow.left < ROWS


def test_a_round_that_fails_while_a_checkpoint_is_being_stored_goes_on_from_it(halfway: Halfway) -> None:
    slow = SlowCheckpoints(halfway)
    read: list[int] = []

    async def failing_meanwhile() -> None:
        service = halfway.service(checkpoints=slow)
        source = halfway.world.container.components().source
        assert isinstance(source, HeldSource)
        serving = asyncio.create_task(service.serve())
        await until(slow.begun.is_set)
        halfway.gate.write_text(FAIL, encoding="utf-8")
        await until(lambda: "failed" in halfway.world.outcomes(halfway.keyed))
        # All on the loop's own thread: the service cannot try again before the gate is open.
        halfway.clean_up()
        source.snapshot_rows()
        halfway.gate.unlink()
        await until(lambda: len(halfway.world.container.tables().rounds) > 0)
        slow.go_on.set()
        await until(lambda: "committed" in halfway.world.outcomes(halfway.keyed))
        read.append(source.snapshot_rows())
        service.stop()
        await serving

    asyncio.run(failing_meanwhile())
    assert read == [slow.left]
    assert slow.left < ROWS


def test_parts_that_are_stored_after_the_round_has_ended_are_deleted(
    halfway: Halfway, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_while_parts_are_written(halfway, monkeypatch, checkpoints=1, stop_timeout_s=0.1)


def test_parts_of_earlier_checkpoints_that_are_stored_after_the_round_has_ended_are_deleted(
    halfway: Halfway, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_while_parts_are_written(halfway, monkeypatch, checkpoints=2, stop_timeout_s=0.1, checkpoint_timeout_s=0.2)


def _stop_while_parts_are_written(
    halfway: Halfway,
    monkeypatch: pytest.MonkeyPatch,
    *,
    checkpoints: int,
    **options: float,
) -> None:
    """Let subtasks write the parts of so many checkpoints once their round is over: nothing may be left of them."""
    begun: set[int] = set()
    go_on = threading.Event()
    write = CheckpointFiles.write_part

    def write_slowly(store: CheckpointFiles, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
        begun.add(ref.number)
        go_on.wait(LIMIT_S)
        return write(store, ref, snapshot)

    monkeypatch.setattr(CheckpointFiles, "write_part", write_slowly)

    async def stopped_meanwhile() -> None:
        service = halfway.service(**options)
        serving = asyncio.create_task(service.serve())
        await until(lambda: len(begun) >= checkpoints)
        service.stop()
        await until(lambda: halfway.world.outcomes(halfway.keyed))
        go_on.set()
        halfway.gate.unlink()
        await serving

    asyncio.run(stopped_meanwhile())
    assert CheckpointFiles(SmallFiles(str(halfway.world.directory / "state")), halfway.clock).list("svc") == ()


def test_a_failed_round_in_back_off_keeps_what_its_checkpoint_has_to_read(halfway: Halfway) -> None:
    read: list[int] = []

    async def failing_halfway() -> None:
        service = halfway.service()
        source = halfway.world.container.components().source
        assert isinstance(source, HeldSource)
        serving = asyncio.create_task(service.serve())
        await until(halfway.half_done)
        halfway.gate.write_text(FAIL, encoding="utf-8")
        await until(lambda: "failed" in halfway.world.outcomes(halfway.keyed))
        read.append(halfway.left())
        # All on the loop's own thread: the service cannot try again before the gate is open.
        halfway.clean_up()
        source.snapshot_rows()
        halfway.gate.unlink()
        await until(lambda: "committed" in halfway.world.outcomes(halfway.keyed))
        read.append(source.snapshot_rows())
        service.stop()
        await serving

    asyncio.run(failing_halfway())
    assert halfway.world.outcomes(halfway.keyed)[:2] == ["failed", "committed"]
    assert read[1] == read[0] < ROWS


@pytest.mark.parametrize("away_h", [5.9, 6.1])
def test_an_outage_of_less_than_six_hours_is_what_a_lease_of_six_hours_promises(
    halfway: Halfway, away_h: float
) -> None:
    ours: dict[str, Any] = {"lease_duration_s": 6 * 3600.0}

    _killed_halfway(halfway, **ours)
    left = halfway.left()
    halfway.clock.shift_s += away_h * 3600
    halfway.clean_up()

    assert halfway.finish(**ours) == (left if away_h < 6 else ROWS)
    assert left < ROWS


def test_a_final_stop_keeps_nothing(halfway: Halfway) -> None:
    async def stopped_halfway() -> None:
        service = halfway.service(stop_timeout_s=0.3, final=True)
        serving = asyncio.create_task(service.serve())
        await until(halfway.half_done)
        service.stop()
        await until(lambda: halfway.world.outcomes(halfway.keyed))
        halfway.gate.unlink()  # the round is over: its readers may end
        await serving

    asyncio.run(stopped_halfway())
    assert halfway.world.store.leases() == ()


def test_a_checkpoint_that_somebody_deleted_holds_nothing_after_the_next_start(halfway: Halfway) -> None:
    _killed_halfway(halfway)
    files = CheckpointFiles(SmallFiles(str(halfway.world.directory / "state")), halfway.clock)
    for info in files.list("svc"):
        files.delete(info.ref)
    halfway.clock.shift_s += AWAY_S

    async def idle() -> None:
        service = halfway.service(poll_s=600.0, paused=lambda: frozenset({"t.keyed"}))
        serving = asyncio.create_task(service.serve())
        await until(lambda: not any(lease.held for lease in halfway.world.store.leases()))
        service.stop()
        await serving

    asyncio.run(idle())


def test_a_table_that_was_dropped_holds_nothing_any_more(halfway: Halfway) -> None:
    async def dropped() -> None:
        service = halfway.service()
        serving = asyncio.create_task(service.serve())
        await until(halfway.half_done)
        halfway.world.store.drop_table(halfway.keyed)
        await until(lambda: "dropped" in halfway.world.outcomes(halfway.keyed))
        leases = halfway.world.container.leases()
        await until(lambda: not leases.held_leases.held and not leases.held_leases.releasing)
        halfway.gate.unlink()  # the round is over: its readers may end
        service.stop()
        await serving

    asyncio.run(dropped())


def test_a_snapshot_that_is_gone_is_named_in_the_log_and_is_why_the_round_is_stale(halfway: Halfway) -> None:
    _killed_halfway(halfway)
    bucket, number = next(iter(halfway.world.store.leases()[0].held.items()))
    halfway.clock.shift_s += 700.0  # longer than the lease
    halfway.clean_up()
    with capture_logs() as lines:
        read = halfway.finish()
    assert read == ROWS
    told = [line for line in lines if line["event"] == "a snapshot is gone"]
    assert {(line["bucket"], line["snapshot_id"]) for line in told} >= {(str(bucket), number)}
    assert halfway.world.reports[-1].snapshots_gone == 2
