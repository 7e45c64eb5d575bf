"""Whole rounds with an exchange: commits, steps, losses, restarts. The subtasks keep what they read."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from lakeward.errors import CorruptFileError
from lakeward.machines.rounds.state import ONCE_ATTEMPTS
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.settings import TableSettings
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.exchange.recovering import RowsRecovery
from lakeward.subtask.reading import SplitReading
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import let_writes_end
from lakeward_service_kit.stand_in_gang import StandInGang
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.service.service import Service
    from lakeward.model.checkpoints import Checkpoint, CheckpointRef
    from lakeward.model.jobs import JobSpec, SubtaskPlace, UpkeepJob
    from lakeward.model.results import CommitRequest
    from lakeward_service_kit.service_world import World

pytestmark = pytest.mark.slow

ROWS = 120


class GangRounds:
    """A world in which rows of a partitioned log table are exchanged; its readers stop while the gate is there."""

    def __init__(self, world: World, gate: Path) -> None:
        self.world, self.gate = world, gate
        self.log = world.table("log", buckets=3)
        for start in range(0, ROWS, 20):
            world.load(self.log, start, 20)
        self.commits: list[CommitRequest] = []
        world.lake.after_commit = self.commits.append
        self.gang = StandInGang()
        self.jobs = ThreadJobs(self.gang, slots=3, attempts=1)
        self.rules = TableSettings(mode="mirror", lake_partition=("bucket(3, id)",))

    def service(self, **options: Any) -> Service:  # noqa: ANN401 - fields of any type
        self.world.rules = lambda _: self.rules
        source = HeldSource(EmbeddedStore.open(self.world.store.root), self.gate, 2)
        ours: dict[str, Any] = {
            "source": source,
            "mirrors": True,
            "source_type": "held",
            "interval_s": 0.05,
            "pause_s": 0.0,
            "jobs": self.jobs,
        }
        return self.world.service(**ours | options)

    def once(self, **options: Any) -> None:  # noqa: ANN401 - fields of any type
        assert asyncio.run(self.service(once=True, **options).serve()).failed == ()

    def until(self, seen: Callable[[], bool], **options: Any) -> None:  # noqa: ANN401 - fields of any type
        """Run a service with the gate closed, and kill it when something is seen."""
        self.gate.touch()
        asyncio.run(_die_when(seen, self.service(**options)))
        let_writes_end()
        self.gate.unlink()

    def checkpoints(self) -> list[Checkpoint]:
        files = CheckpointFiles(SmallFiles(str(self.world.directory / "state")), self.world.clock)
        found = []
        for info in files.list("svc"):
            if info.state is CheckpointState.COMPLETE:
                with suppress(CorruptFileError):  # a service that runs deletes older ones
                    found.append(files.load(info.ref))
        return found

    def segments(self) -> list[Path]:
        """Return the files of rows beside checkpoints."""
        state = self.world.directory / "state"
        names = (entry.name for entry in SmallFiles(str(state)).entries("svc"))
        return [state / name for name in names if "/segments/" in name]

    def has_rows(self) -> bool:
        """Whether a checkpoint holds rows of each split."""
        found = self.checkpoints()[-1:]
        return any(sum(s.exchange.rows for s in one.subtasks if s.exchange is not None) >= 30 for one in found)

    def has_step(self) -> bool:
        """Whether a commit was made."""
        return bool(self.commits)

    def check(self) -> None:
        """Each row is there once, and no file is left over."""
        assert sorted(row["id"] for row in self.world.lake.read(self.log)) == list(range(ROWS))
        files = self.world.lake.files_on_disk(self.log)
        assert self.world.lake.referenced(self.log, files) == files


async def _die_when(seen: Callable[[], bool], service: Service) -> None:
    serving = asyncio.create_task(service.serve())
    await until(seen)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


@pytest.fixture
def rounds(world: World, tmp_path: Path) -> GangRounds:
    """Rounds whose rows are exchanged."""
    return GangRounds(world, tmp_path / "gate")


def test_a_round_commits_what_its_writers_wrote_and_its_job_says_that_it_exchanges(rounds: GangRounds) -> None:
    rounds.once()
    rounds.check()
    (spec,) = rounds.jobs.launched
    assert spec.exchange
    assert spec.subtasks == 2, "one slot is kept free for another round"
    assert "in 3 splits, 2 subtasks with an exchange; round" in spec.title


def test_a_round_commits_in_steps_of_cuts_that_close_all_files(rounds: GangRounds) -> None:
    rounds.rules = TableSettings(mode="mirror", lake_partition=("bucket(3, id)",), commit_every=0.02)
    rounds.until(rounds.has_step)
    rounds.once()
    rounds.check()
    assert len(rounds.commits) > 1
    assert True in rounds.gang.closes, "a step was due when a checkpoint was triggered"


def test_a_round_whose_subtask_fails_goes_back_to_its_checkpoint_and_ends(rounds: GangRounds) -> None:
    failed: list[SubtaskPlace] = []

    def fails_once(place: SubtaskPlace) -> bool:
        due = not failed and rounds.has_rows()
        failed.extend([place] if due else [])
        return due

    rounds.gang.fails = fails_once
    rounds.gate.touch()

    async def run() -> None:
        serving = asyncio.create_task(rounds.service(once=True, job_attempts=4).serve())
        await until(rounds.has_rows)
        rounds.gate.unlink()
        assert (await serving).failed == ()

    asyncio.run(run())
    rounds.check()
    assert failed
    assert [spec.job_attempt for spec in rounds.jobs.launched] == [1, 2]
    assert rounds.gang.restored[-1] >= 30


def test_rows_of_checkpoints_that_never_completed_are_deleted_when_their_round_is_over(rounds: GangRounds) -> None:
    """Until then a later checkpoint may refer to them; afterwards nothing deletes them but the next start."""
    rounds.gang.declines = True
    rounds.gate.touch()

    async def run() -> None:
        service = rounds.service(tolerated=1000)
        serving = asyncio.create_task(service.serve())
        await until(lambda: bool(rounds.segments()))
        rounds.gate.unlink()
        await until(lambda: bool(rounds.commits))
        await until(lambda: not rounds.segments())
        service.stop()
        await serving

    asyncio.run(run())
    rounds.check()


@pytest.mark.parametrize("slots", [2, 4])
def test_a_killed_service_goes_on_from_its_checkpoint_with_fewer_and_with_more_subtasks(
    rounds: GangRounds, slots: int
) -> None:
    rounds.until(rounds.has_rows)
    kept = {file.path for part in rounds.checkpoints()[-1].subtasks if part.exchange for file in part.exchange.files}
    rounds.jobs.slots = slots
    rounds.once()
    rounds.check()
    assert rounds.jobs.launched[-1].subtasks == slots - 1
    assert rounds.gang.restored[-1] >= 30
    assert kept <= rounds.world.lake.referenced(rounds.log, kept)


def test_a_checkpoint_with_an_exchange_is_dropped_where_rows_are_exchanged_no_more(rounds: GangRounds) -> None:
    rounds.until(rounds.has_rows)
    rounds.rules = TableSettings(mode="mirror", lake_partition=("bucket(3, id)",), exchange="none")
    with capture_logs() as logs:
        rounds.once(jobs=ThreadJobs(run_subtask, slots=3))
    dropped = [entry["reason"] for entry in logs if entry["event"] == "checkpoint dropped"]
    assert "its rows were written with an exchange, now they are without an exchange" in dropped
    rounds.check()


def test_a_stop_commits_what_was_read_and_the_next_start_the_rest(
    rounds: GangRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SplitReading, "stop_s", 0.1)  # the reads hang
    rounds.gate.touch()

    async def run() -> None:
        service = rounds.service()
        serving = asyncio.create_task(service.serve())
        await until(rounds.has_rows)
        service.stop()
        await serving

    asyncio.run(run())
    rounds.gate.unlink()
    before = rounds.world.lake.read(rounds.log)
    assert 30 <= len(before) < ROWS
    rounds.once()
    rounds.check()


def test_a_round_that_asks_for_more_slots_than_there_are_is_launched_again_with_those_that_are_there(
    rounds: GangRounds,
) -> None:
    """Spark has fewer executors than `spark.slots` says: such a job would never start."""
    rounds.jobs.slots, rounds.jobs.missing = 8, 5
    rounds.once(job_attempts=2)
    rounds.check()
    assert [spec.subtasks for spec in rounds.jobs.launched] == [7, 2]


def test_two_rounds_never_ask_for_more_slots_together_than_there_are(rounds: GangRounds) -> None:
    """Each would ask for two of the three: neither would ever start if Spark gave each of them some."""
    other = rounds.world.table("other", buckets=3)
    for start in range(0, ROWS, 20):
        rounds.world.load(other, start, 20)
    rounds.until(lambda: len(rounds.jobs.launched) == 2)
    assert sorted(spec.subtasks for spec in rounds.jobs.launched) == [1, 2]
    rounds.once()
    rounds.check()
    assert sorted(row["id"] for row in rounds.world.lake.read(other)) == list(range(ROWS))


class BusyJobs(ThreadJobs):
    """All slots are taken by somebody else: no task starts until its job is cancelled."""

    def __init__(self, gang: StandInGang, *, refused: int = 0, run: int = 0) -> None:
        """Refuse some launches first, then run some."""
        super().__init__(gang, slots=3, attempts=1)
        self._refused, self._busy_from = refused, refused + run
        self._waiting: list[Callable[[str | None], None]] = []

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        number = len(self.launched)
        if self._refused <= number < self._busy_from:
            super().launch(job, on_done)
            return
        self.launched.append(job)
        if number < self._refused:
            on_done("refused")
        else:
            self._waiting.append(on_done)

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        super().cancel(job)
        if self._waiting:
            self._waiting.pop()("cancelled")


@pytest.mark.parametrize(
    ("refused", "run", "stopped_at"),
    [(0, 0, 1), (2, 0, 2), (1, 0, 2), (0, 1, 2)],
    ids=["the first launch", "between two launches", "after a refused one", "after one that failed"],
)
def test_a_round_that_waits_for_slots_and_has_no_rows_ends_at_once_when_its_service_stops(
    rounds: GangRounds, refused: int, run: int, stopped_at: int
) -> None:
    """Its subtasks would wait for one another to write nothing."""
    rounds.gang.fails = lambda _: True
    jobs = BusyJobs(rounds.gang, refused=refused, run=run)
    pause_s = 1000.0 * (stopped_at == refused)

    async def stop_while_it_waits() -> None:
        service = rounds.service(
            jobs=jobs,
            stop_timeout_s=60.0,
            interval_s=1000.0,
            backoff_first_s=pause_s,
            backoff_most_s=pause_s,
            job_attempts=9,
        )
        serving = asyncio.ensure_future(service.serve())
        await until(lambda: len(jobs.launched) == stopped_at)
        service.stop()
        await asyncio.wait_for(serving, LIMIT_S)

    asyncio.run(stop_while_it_waits())
    assert len(jobs.launched) == stopped_at
    assert rounds.world.lake.read(rounds.log) == []
    rounds.gang.fails = lambda _: False
    rounds.once()
    rounds.check()


def test_a_table_of_keys_keeps_its_snapshots_leased_until_a_checkpoint_or_the_commit_holds_their_rows(
    world: World, tmp_path: Path
) -> None:
    keyed = world.table("keyed", key=True)
    world.load(keyed, 0, 100)
    world.store.snapshot(keyed)
    world.rules = lambda _: TableSettings(mode="mirror", lake_partition=("bucket(3, id)",))
    seen: list[int] = []
    world.lake.before_commit = lambda _: seen.append(sum(len(lease.held) for lease in world.store.leases()))
    source = HeldSource(EmbeddedStore.open(world.store.root), tmp_path / "gate", 2)
    jobs = ThreadJobs(StandInGang(), slots=3, attempts=1)
    service = world.service(once=True, source=source, mirrors=True, source_type="held", jobs=jobs)
    assert asyncio.run(service.serve()).failed == ()
    assert seen == [2]
    assert sum(len(lease.held) for lease in world.store.leases()) == 0
    assert sorted(row["id"] for row in world.lake.read(keyed)) == list(range(100))


@pytest.fixture
def real(rounds: GangRounds) -> GangRounds:
    """The same with real subtasks: they exchange rows over Arrow Flight, and write them."""
    rounds.jobs = ThreadJobs(run_subtask, slots=3, attempts=1)
    return rounds


def test_real_subtasks_write_each_row_once(real: GangRounds) -> None:
    real.once()
    real.check()
    assert [spec.exchange for spec in real.jobs.launched] == [True]
    assert all("partition" in record.timings_s for record in real.world.rounds)


def test_real_subtasks_commit_in_steps_and_go_on_after_a_kill(real: GangRounds) -> None:
    real.rules = TableSettings(mode="mirror", lake_partition=("bucket(3, id)",), commit_every=0.02)
    real.until(real.has_step)
    real.once()
    real.check()
    assert len(real.commits) > 1


def test_real_subtasks_go_on_from_the_checkpoint_of_a_killed_service(real: GangRounds) -> None:
    real.until(real.has_rows)
    with capture_logs() as logs:
        real.once()
    real.check()
    assert any(log["event"] == "the round goes on from a checkpoint" for log in logs)


@pytest.mark.parametrize("slots", [2, 4])
def test_real_subtasks_commit_steps_behind_a_recovery_that_is_checkpointed(
    real: GangRounds, tmp_path: Path, slots: int
) -> None:
    """A step is committed in the launch that recovers, the next launch begins with another such recovery."""
    (spill := tmp_path / "spill").mkdir()
    options: dict[str, Any] = {"during_recovery": True, "spill_dirs": (str(spill),)}
    real.until(real.has_rows, **options)
    assert real.segments(), "there is something to recover"
    assert real.commits == []
    real.rules = TableSettings(mode="mirror", lake_partition=("bucket(3, id)",), commit_every=0.02)
    real.jobs.slots = slots
    real.until(real.has_step, **options)
    real.jobs.slots = 3
    real.once(**options)
    real.check()
    assert len(real.commits) > 1
    assert [*spill.iterdir()] == []


def newer_checkpoint(real: GangRounds, damage: Callable[[Path], None]) -> tuple[Checkpoint, Path]:
    """Write a newer checkpoint that says the same as the newest one, of which one file of rows is damaged."""
    state = real.world.directory / "state"
    files = CheckpointFiles(SmallFiles(str(state)), real.world.clock)
    newest = real.checkpoints()[-1]
    # The next number is what the dead service may have been writing.
    ref = replace(newest.ref, number=newest.ref.number + 100)
    parts, damaged = [], None
    for part in newest.subtasks:
        assert part.exchange is not None
        open_rows = part.exchange.open_rows
        if damaged is None and open_rows:
            (first, *others), name = open_rows[0].segments, f"{ref.number}-0-999-0.arrow"
            copy = files.write_segment(ref, name, files.read_segment(first))
            damaged = state / copy.name
            rows = structs.replace(open_rows[0], segments=(copy, *others))
            exchange = structs.replace(part.exchange, open_rows=(rows, *open_rows[1:]))
            part = structs.replace(part, exchange=exchange)  # noqa: PLW2901 - the same with another file
        parts.append(files.write_part(ref, part))
    assert damaged is not None
    files.complete(ref, newest.coordinator, parts, newest.lease)
    damage(damaged)
    return newest, damaged


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-40] ^= 0x10
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9]), flip_a_byte],
    ids=["gone", "cut off", "changed"],
)
def test_a_checkpoint_whose_rows_are_damaged_is_dropped_and_the_older_one_is_taken(
    real: GangRounds, damage: Callable[[Path], None]
) -> None:
    """The warning names the file, and what is wrong with it."""
    real.world.lake.target_bytes = 1 << 20
    real.until(real.has_rows)
    older, damaged = newer_checkpoint(real, damage)
    with capture_logs() as logs:
        real.once()
    real.check()
    (dropped,) = [log for log in logs if log["event"] == "checkpoint dropped"]
    assert dropped["log_level"] == "warning"
    assert str(damaged) in dropped["reason"]
    assert "expected" in dropped["reason"]
    resumed = [log["checkpoint"] for log in logs if log["event"] == "the round goes on from a checkpoint"]
    assert resumed[-1] == str(older.ref)


def test_checkpoints_that_a_person_deletes_beside_a_running_round_cost_later_ones_no_row(real: GangRounds) -> None:
    """Rows of files that are still open are stored once, and every later checkpoint refers to them."""
    real.world.lake.target_bytes = 1 << 20
    files = CheckpointFiles(SmallFiles(str(real.world.directory / "state")), real.world.clock)
    deleted: list[CheckpointRef] = []

    def seen() -> bool:
        if not deleted and real.has_rows():
            for info in files.list("svc"):
                files.delete(info.ref, keep_segments=True)
                deleted.append(info.ref)
        return any(deleted and one.ref.number > deleted[-1].number for one in real.checkpoints())

    real.until(seen)
    with capture_logs() as logs:
        real.once()
    real.check()
    assert any(log["event"] == "the round goes on from a checkpoint" for log in logs)
    assert not [log for log in logs if log["event"] == "checkpoint dropped"]


def test_a_round_of_which_every_checkpoint_is_damaged_begins_anew(real: GangRounds) -> None:
    real.world.lake.target_bytes = 1 << 20
    real.until(real.has_rows)
    for file in (real.world.directory / "state").rglob("*.arrow"):
        flip_a_byte(file)
    with capture_logs() as logs:
        real.once()
    real.check()
    assert [log["event"] for log in logs if log["log_level"] == "warning"].count("checkpoint dropped") >= 1


def test_a_service_that_runs_once_goes_through_more_damaged_checkpoints_than_it_has_tries(real: GangRounds) -> None:
    """Each is given up, so there is an end to it."""
    real.world.lake.target_bytes = 1 << 20
    real.until(lambda: real.has_rows() and len(real.checkpoints()) > ONCE_ATTEMPTS, retained=9)
    for file in (real.world.directory / "state").rglob("*.arrow"):
        flip_a_byte(file)
    with capture_logs() as logs:
        real.once(retained=9)
    real.check()
    assert [log["event"] for log in logs].count("checkpoint dropped") >= ONCE_ATTEMPTS


# --- the keys of recoveries ---------------------------------------------------------------------------------------

KEYS = [
    (during_recovery, unaligned, aligned_timeout_s, spill_dirs, memory)
    for during_recovery, unaligned in product((True, False), repeat=2)
    for aligned_timeout_s in (0.0, 0.1)
    for spill_dirs, memory in (((1, 1), (2, 1 << 20)) if during_recovery else ((0, 1), (2, 1 << 20)))
]


def watch_recoveries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets a line for each recovery that begins, and the name of each thread that starts."""
    seen: list[str] = []
    start, begin = threading.Thread.start, RowsRecovery.__init__

    def started(self: threading.Thread) -> None:
        seen.append(self.name)
        start(self)

    def begun(self: RowsRecovery, *arguments: Any) -> None:  # noqa: ANN401 - passed on
        seen.append("recovery")
        begin(self, *arguments)

    monkeypatch.setattr(threading.Thread, "start", started)
    monkeypatch.setattr(RowsRecovery, "__init__", begun)
    return seen


@pytest.mark.parametrize(("during_recovery", "unaligned", "aligned_timeout_s", "spill_dirs", "memory"), KEYS)
def test_each_combination_of_the_keys_of_a_recovery_ends_a_round(
    real: GangRounds,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    during_recovery: bool,
    unaligned: bool,
    aligned_timeout_s: float,
    spill_dirs: int,
    memory: int,
) -> None:
    """Where it is off, the directories need not even be there."""
    disks, on = [tmp_path / f"disk-{number}" for number in range(spill_dirs)], during_recovery and unaligned
    for disk in disks if on else []:
        disk.mkdir()
    keys = {
        "during_recovery": during_recovery,
        "unaligned": unaligned,
        "aligned_timeout_s": aligned_timeout_s,
        "spill_dirs": tuple(map(str, disks)),
        "memory": memory,
    }
    seen = watch_recoveries(monkeypatch)
    real.world.lake.target_bytes = 1 << 20
    real.until(real.has_rows, **keys)
    assert {"recovery", "restore-rows"}.isdisjoint(seen), "nothing was restored yet"
    with capture_logs() as logs:
        real.once(**keys)
    real.check()
    assert [log["event"] for log in logs].count("the round goes on from a checkpoint") == 1
    assert ("recovery" in seen) is on
    assert seen.count("restore-rows") == 2, "what is restored is read by one thread of each subtask, spilled or not"
    assert [disk.exists() for disk in disks] == [on] * spill_dirs
    assert [path for disk in disks for path in disk.glob("*")] == []
