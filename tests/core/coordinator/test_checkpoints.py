"""Rounds that go on from a checkpoint: after a kill, after a failure, with another number of subtasks."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from lakeward.errors import CorruptFileError
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import CommitRequest
from lakeward.model.settings import TableSettings
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.reading import SplitReading
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import PlainBackend, let_writes_end
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.coordinator.service.service import Service
    from lakeward.model.checkpoints import Checkpoint, CheckpointRef, SplitProgress
    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World

OFTEN = {"interval_s": 0.05, "pause_s": 0.0}


@dataclass
class Held:
    """A world whose readers stop in the middle of each split for as long as the gate is there."""

    world: World
    gate: Path

    def service(self, **options: Any) -> Service:  # noqa: ANN401 - fields of any type
        """Make a service that takes checkpoints all the time."""
        source = HeldSource(EmbeddedStore.open(self.world.store.root), self.gate, 2)
        ours: dict[str, Any] = {"source": source, "source_type": "held", **OFTEN}
        return self.world.service(**ours | {"jobs": ThreadJobs(run_subtask, slots=3)} | options)

    @property
    def files(self) -> CheckpointFiles:
        """Where checkpoints lie."""
        return CheckpointFiles(SmallFiles(str(self.world.directory / "state")), self.world.clock)

    def whole(self) -> list[Checkpoint]:
        """Return all checkpoints that completed and were not deleted meanwhile."""
        found: list[Checkpoint] = []
        for info in self.files.list("svc"):
            if info.state is CheckpointState.COMPLETE:
                with suppress(CorruptFileError):  # a service that runs deletes older ones
                    found.append(self.files.load(info.ref))
        return found

    def until(self, seen: Callable[[], bool], **options: Any) -> None:  # noqa: ANN401 - fields of any type
        """Run a service and kill it as soon as something is seen; its subtasks stand still meanwhile."""
        self.gate.touch()
        asyncio.run(_die_when(seen, self.service(**options)))
        let_writes_end()

    def go_on(self, **options: Any) -> None:  # noqa: ANN401 - fields of any type
        """Open the gate and let a service run until every target is settled."""
        self.gate.unlink()
        assert asyncio.run(self.service(**{"once": True, **options}).serve()).failed == ()

    def half_done(self) -> bool:
        """Say whether a checkpoint holds a beginning of every split."""
        return any(len(_progress(one)) == len(one.coordinator.splits) for one in self.whole())


async def _die_when(seen: Callable[[], bool], service: Service) -> None:
    serving = asyncio.create_task(service.serve())
    await until(seen)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def _progress(checkpoint: Checkpoint) -> dict[str, int]:
    return {p.split.split_id: p.rows for part in checkpoint.subtasks for p in part.progress if p.rows}


@pytest.fixture
def held(world: World) -> Iterator[Held]:
    made = Held(world, world.directory / "gate")
    yield made
    made.gate.unlink(missing_ok=True)  # else its readers stand there, and look, for as long as other tests run


def fill(world: World, path: TablePath, batches: int = 6) -> None:
    for number in range(batches):
        world.load(path, number * 20, 20)


def all_ids(world: World, path: TablePath) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(path))


def test_a_killed_service_goes_on_where_its_checkpoint_was(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done)
    kept = {file.path for one in held.whole()[-1:] for part in one.subtasks for p in part.progress for file in p.files}
    assert kept
    held.go_on()
    assert all_ids(world, log) == list(range(120))
    assert kept <= world.lake.files_on_disk(log)
    assert kept <= set(world.lake.referenced(log, kept))


def partitioned(held: Held, *fields: str) -> dict[str, Any]:
    """Options of a service that gives each table a lake partitioning, and closes its files at each checkpoint."""
    rules = TableSettings(mode="mirror", lake_partition=fields, exchange="none")
    held.world.rules = lambda _: rules
    source = HeldSource(EmbeddedStore.open(held.world.store.root), held.gate, 2)
    return {"source": source, "mirrors": True, "source_type": "held", "open_rows": 0}


def test_a_partitioned_table_goes_on_where_its_checkpoint_was(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done, **partitioned(held, "bucket(3, id)"))
    kept = {file.path for one in held.whole()[-1:] for part in one.subtasks for p in part.progress for file in p.files}
    assert held.whole()[-1].coordinator.layout == ("bucket(3, id)",)

    held.go_on(**partitioned(held, "bucket(3, id)"))

    assert all_ids(world, log) == list(range(120))
    assert kept <= set(world.lake.referenced(log, kept))


def test_a_checkpoint_of_another_layout_is_dropped(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done, **partitioned(held, "bucket(3, id)"))

    with capture_logs() as logs:
        held.go_on(**partitioned(held, "name", "id"))

    reasons = [entry["reason"] for entry in logs if entry["event"] == "checkpoint dropped"]
    assert "its lake layout was bucket(3, id), now it is name, id" in reasons
    assert all_ids(world, log) == list(range(120))


def test_a_round_whose_readers_hang_commits_what_they_had_read_once_its_time_is_over(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SplitReading, "stop_s", 0.05)
    world, log = held.world, held.world.table("log")
    world.store.set_option("tiering-timeout-s", "5")  # else the next service waits two minutes for it
    fill(world, log)

    def over() -> bool:  # and the source has heard of it: it gives the table to the next service at once
        tables = world.container.rounds().tables
        return "committed" in world.outcomes(log) and all(one.assignment.epoch > 1 for one in tables)

    held.until(over, max_round_s=0.5)
    assert 0 < len(all_ids(world, log)) < 120
    held.go_on()
    assert all_ids(world, log) == list(range(120))


def test_nothing_is_left_of_checkpoints_once_their_round_has_committed(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done)
    held.go_on()
    assert held.files.list("svc") == ()
    on_disk = world.lake.files_on_disk(log)
    assert on_disk == set(world.lake.referenced(log, on_disk))


def test_snapshots_half_read_go_on_under_a_lease_of_the_next_start(held: Held) -> None:
    world, keyed = held.world, held.world.table("keyed", key=True)
    fill(world, keyed)
    world.store.snapshot(keyed)
    held.until(held.half_done)
    held.go_on()
    assert sorted(row["id"] for row in world.lake.read(keyed, key="id")) == list(range(120))
    assert len(all_ids(world, keyed)) == 120  # nothing was read twice
    assert [lease for lease in world.store.leases() if lease.held] == []


def test_a_checkpoints_copy_of_the_lease_names_its_backend(held: Held) -> None:
    world, keyed = held.world, held.world.table("keyed", key=True)
    fill(world, keyed)
    world.store.snapshot(keyed)
    held.until(held.half_done)
    lease = held.whole()[-1].lease
    assert lease is not None
    assert lease.backend == "plain", "a start without its state file takes the lease over only if it is its backend's"


def test_a_checkpoint_under_another_backends_lease_goes_on_under_one_of_the_backend_that_is_configured_now(
    held: Held,
) -> None:
    world, keyed = held.world, held.world.table("keyed", key=True)
    fill(world, keyed)
    world.store.snapshot(keyed)
    held.until(held.half_done)
    other = PlainBackend()
    with capture_logs() as lines:
        held.go_on(backend=LeaseBackend("other", other))
    told = next(line for line in lines if "another backend's" in line["event"])
    assert (told["was"], told["now"]) == ("plain", "other")
    assert [hook for hook, _ in other.calls if hook == "acquire"]
    assert len(all_ids(world, keyed)) == 120  # nothing was read twice


@pytest.mark.parametrize("slots", [2, 6])
def test_another_number_of_subtasks_goes_on_from_the_same_checkpoint(held: Held, slots: int) -> None:
    world, log = held.world, held.world.table("log", buckets=4)
    fill(world, log, 12)
    held.until(lambda: bool(held.whole()) and len(_progress(held.whole()[-1])) > 1)
    held.go_on(jobs=ThreadJobs(run_subtask, slots=slots))
    assert all_ids(world, log) == list(range(240))


@pytest.mark.parametrize("stamped", [True, False], ids=["stamped", "committed"])
def test_a_checkpoint_is_dropped_where_another_service_has_been_since(held: Held, *, stamped: bool) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done)
    other = Incarnation("other", 1, "0" * 16)
    if stamped:
        world.lake.stamp(log, other)
    else:
        head = world.lake.head(log)
        stamp = head.stamp if head is not None and head.stamp is not None else other
        round_id = RoundId(other, table_id := world.store.table(log).table_id, 1, 1)
        ids = world.lake.new_ids(log)
        world.lake.commit(CommitRequest(log, table_id, stamp, round_id, 1, ids, None, (), {}, None))
    held.go_on()
    assert all_ids(world, log) == list(range(120))
    assert held.files.list("svc") == ()


def test_a_damaged_checkpoint_is_dropped_and_the_round_starts_afresh(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done)
    for metadata in (world.directory / "state").rglob("chk-*/part-*"):
        metadata.write_bytes(b"torn")
    held.go_on()
    assert all_ids(world, log) == list(range(120))


def test_a_checkpoint_whose_files_were_swept_before_it_completed_is_dropped(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done)
    kept = {file.path for one in held.whole() for part in one.subtasks for p in part.progress for file in p.files}
    world.lake.delete(kept)
    held.go_on()
    assert all_ids(world, log) == list(range(120))
    assert kept.isdisjoint(world.lake.files_on_disk(log))


def test_a_dropped_tables_checkpoint_is_deleted_at_the_next_start(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    fill(world, log)
    held.until(held.half_done)
    world.store.drop_table(log)
    held.go_on()
    assert held.files.list("svc") == ()


def test_steps_of_a_round_are_committed_while_it_goes_on(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    world.rules = lambda _: TableSettings(commit_every=0.01)
    fill(world, log)
    held.until(lambda: 0 < len(all_ids(world, log)) < 120 if world.lake.head(log) else False)
    step = all_ids(world, log)
    held.go_on()
    assert all_ids(world, log) == list(range(120))
    assert set(step) < set(range(120))


def test_a_step_that_nobody_lived_to_write_down_is_not_committed_twice(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    world.rules = lambda _: TableSettings(commit_every=0.01)
    fill(world, log)
    state = world.directory / "state"
    saved = world.directory / "saved"

    def before_first_step(_: object) -> None:
        if not saved.exists():
            shutil.copytree(state, saved)

    world.lake.before_commit = before_first_step
    held.until(lambda: 0 < len(all_ids(world, log)) < 120 if world.lake.head(log) else False)
    world.lake.before_commit = lambda _: None
    # Every checkpoint that was written after the step's is lost.
    for chk in state.rglob("chk-*"):
        if not (saved / chk.relative_to(state)).exists():
            shutil.rmtree(chk)
    held.go_on()
    assert all_ids(world, log) == list(range(120))


def test_leases_are_released_when_a_checkpoint_holds_the_finished_split(held: Held) -> None:
    world = held.world
    keyed = world.table("keyed", key=True, buckets=4)
    world.load(keyed, 0, 20)
    world.store.snapshot(keyed)
    for number in range(1, 5):
        world.load(keyed, number * 20, 20)
    held.gate.touch()
    released: list[str] = []
    world.backend.before = released.append
    seen = lambda: "release" in released  # noqa: E731 - a name for the condition
    service = held.service(jobs=ThreadJobs(run_subtask, slots=1))
    asyncio.run(_die_when(seen, service))
    let_writes_end()
    assert "drop" not in released
    held.go_on()
    assert sorted({row["id"] for row in world.lake.read(keyed, key="id")}) == list(range(100))


class Lossy(CheckpointFiles):
    """A store in whose checkpoints each split misses a file."""

    def load(self, ref: CheckpointRef) -> Checkpoint:
        """See `CheckpointFiles`."""
        found = super().load(ref)
        parts = (structs.replace(part, progress=tuple(map(_without_a_file, part.progress))) for part in found.subtasks)
        return replace(found, subtasks=tuple(parts))


def _without_a_file(one: SplitProgress) -> SplitProgress:
    return structs.replace(one, files=one.files[1:])


def lossy(held: Held) -> Lossy:
    return Lossy(SmallFiles(str(held.world.directory / "state")), held.world.clock)


def suspend(held: Held, log: TablePath) -> str:
    """Let a round go on from a checkpoint whose parts miss a file; return why the table was suspended."""
    fill(held.world, log)
    held.until(held.half_done)
    held.gate.unlink()
    ((_, reason),) = asyncio.run(held.service(once=True, checkpoints=lossy(held)).serve()).failed
    held.gate.touch()
    return reason


def test_a_checkpoint_whose_parts_miss_a_file_is_not_committed_and_the_table_is_suspended(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    assert "records were read" in suspend(held, log)
    head = world.lake.head(log)
    assert head is not None
    assert head.commit is None
    held.go_on()
    assert all_ids(world, log) == list(range(120))


def test_a_restart_does_not_go_on_from_a_checkpoint_that_suspended_its_table(held: Held) -> None:
    world, log = held.world, held.world.table("log")
    suspend(held, log)
    held.go_on(checkpoints=lossy(held))
    assert all_ids(world, log) == list(range(120))
