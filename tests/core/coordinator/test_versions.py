"""A release takes over from another one: state, journals and checkpoints of older formats, and of newer ones."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.clock import SystemClock
from lakeward.errors import NewerFormatError
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.tables import TablePath
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.records import pack, unpack, version_of
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import let_writes_end
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.coordinator.service.service import Service
    from lakeward.model.checkpoints import Checkpoint
    from lakeward_service_kit.service_world import World

KEYED = TablePath("t", "keyed")
ROWS = 120
LATER_FIELDS = {
    "service.state": {"lease_ids", "invalidated"},
    "journal": {"missing_ms"},
    "_metadata": {"layout", "left_out", "empty_offsets", "live"},
    "part": {"exchange", "left_out", "empty_offsets", "live"},
}
"""Fields that a format got after its first version; whoever wrote that left them out."""


class Interrupted:
    """A world whose service was killed in a round with a completed checkpoint."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gate = world.directory / "gate"
        self.state = world.directory / "state"

    def service(self, **options: Any) -> Service:  # noqa: ANN401 - fields of any type
        """Make a service whose readers stop in the middle for as long as the gate is there."""
        self.source = HeldSource(EmbeddedStore.open(self.world.store.root), self.gate, 2)
        ours = {"source": self.source, "source_type": "held", "interval_s": 0.05, "pause_s": 0.0, **options}
        return self.world.service(jobs=ThreadJobs(run_subtask, slots=3), **ours)

    def checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint that holds a beginning of every split, if there is one."""
        store = CheckpointFiles(SmallFiles(str(self.state)), SystemClock())
        for info in reversed(store.list("svc")):
            if info.state is CheckpointState.COMPLETE:
                with suppress(Exception):  # a service that runs deletes older ones
                    one = store.load(info.ref)
                    if sum(bool(p.rows) for part in one.subtasks for p in part.progress) == len(one.coordinator.splits):
                        return one
        return None

    def kill_halfway(self) -> Checkpoint:
        """Run a service until such a checkpoint is there, and kill it."""
        self.gate.touch()

        async def die() -> None:
            serving = asyncio.create_task(self.service().serve())
            await until(self.checkpoint)
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

        asyncio.run(die())
        let_writes_end()
        self.source.snapshot_rows()
        found = self.checkpoint()
        assert found is not None
        return found

    def take_over(self) -> None:
        """Start the next release, which finishes the round."""
        self.gate.unlink()
        backend = LeaseBackend("plain", self.world.backend)
        assert asyncio.run(self.service(once=True, backend=backend).serve()).failed == ()

    def files(self, name: str) -> list[Path]:
        """Return all files of one format."""
        return sorted(path for path in self.state.rglob(f"{name}*") if path.is_file())


@pytest.fixture
def interrupted(world: World) -> Iterator[Interrupted]:
    made = Interrupted(world)
    yield made
    made.gate.unlink(missing_ok=True)  # else its readers stand there, and look, for as long as other tests run


def keyed_table(world: World) -> TablePath:
    """Make a table whose round reads a KV snapshot: the source counts the rows of those that are read."""
    path = world.table("keyed", key=True)
    for number in range(6):
        world.load(path, number * 20, 20)
    world.store.snapshot(path)
    return path


# --- an older release ran before ------------------------------------------------------------------------------


def without(value: Any, fields: set[str]) -> Any:  # noqa: ANN401 - of msgpack
    """Leave fields out at every depth."""
    if isinstance(value, dict):
        return {key: without(item, fields) for key, item in value.items() if key not in fields}
    return [without(item, fields) for item in value] if isinstance(value, list) else value


def rewritten(data: bytes, kind: str, parts_of_version_1: int) -> bytes:
    """Write a record as the first release did: version 1, without what came later."""
    versions = {1: parts_of_version_1, 2: 3 if kind in {"service.state", "_metadata"} else parts_of_version_1}
    _, parts = unpack(data, kind, versions)
    bodies = [without(msgspec.msgpack.decode(part), LATER_FIELDS[kind]) for part in parts[:parts_of_version_1]]
    return pack(1, tuple(map(msgspec.msgpack.encode, bodies)))


def as_the_first_release_wrote_it(interrupted: Interrupted) -> None:
    """Turn all that is on disk into version 1 of each format. It had no lease in its state, and none in checkpoints."""
    sums: dict[tuple[Path, str], tuple[int, int]] = {}
    for file in interrupted.files("part-"):
        data = rewritten(file.read_bytes(), "part", 2)
        file.write_bytes(data)
        sums[file.parent, file.name] = (len(data), zlib.crc32(data))
    for file in interrupted.files("_metadata"):
        _, parts = unpack(rewritten(file.read_bytes(), "_metadata", 2), "_metadata", {1: 2})
        head = msgspec.msgpack.decode(parts[0])
        for part in head["parts"]:
            part["size_bytes"], part["crc"] = sums[file.parent, part["name"]]
        file.write_bytes(pack(1, (msgspec.msgpack.encode(head), parts[1])))
    for kind in ("journal", "service.state"):
        for file in interrupted.files(kind):
            file.write_bytes(rewritten(file.read_bytes(), kind, 1))
    written = [path for kind in ("part-", "_metadata", "journal", "service.state") for path in interrupted.files(kind)]
    assert {version_of(path.read_bytes()) for path in written} == {1}
    assert len(written) >= 4


@pytest.mark.parametrize("older", [False, True], ids=["the same release", "the first release"])
def test_the_next_release_goes_on_where_the_last_checkpoint_was(interrupted: Interrupted, *, older: bool) -> None:
    world, path = interrupted.world, keyed_table(interrupted.world)
    checkpoint = interrupted.kill_halfway()
    done = sum(p.rows for part in checkpoint.subtasks for p in part.progress)
    kept = {file.path for part in checkpoint.subtasks for p in part.progress for file in p.files}
    assert 0 < done < ROWS
    assert version_of(interrupted.files("_metadata")[0].read_bytes()) == 2  # else there is nothing to go back from
    if older:
        as_the_first_release_wrote_it(interrupted)

    interrupted.take_over()

    assert sorted(row["id"] for row in world.lake.read(path)) == list(range(ROWS))  # none lost, none doubled
    assert interrupted.source.snapshot_rows() == ROWS - done  # none read again
    assert kept <= set(world.lake.referenced(path, kept))  # its files are in the lake


# --- a newer release ran before -------------------------------------------------------------------------------


def contents(interrupted: Interrupted) -> dict[str, bytes]:
    """Return the state of the service: all but what it reports of itself while it starts."""
    names = ("service.state", "journal", "_metadata", "part-")
    found = {str(file): file.read_bytes() for name in names for file in interrupted.files(name)}
    return found | dict.fromkeys(interrupted.world.lake.files_on_disk(KEYED), b"")


@pytest.mark.parametrize("kind", ["service.state", "journal", "_metadata", "part-"])
def test_an_older_release_refuses_the_state_of_a_newer_one_and_deletes_nothing(
    interrupted: Interrupted, kind: str
) -> None:
    keyed_table(interrupted.world)
    interrupted.kill_halfway()
    file = interrupted.files(kind)[-1]
    data = file.read_bytes()
    file.write_bytes(data[:4] + (9).to_bytes(2, "big") + data[6:])
    before, leases = contents(interrupted), interrupted.world.store.leases()

    with pytest.raises(NewerFormatError) as refused:
        interrupted.take_over()

    assert str(refused.value).startswith(f"{file}: expected a format version among [1")
    assert "found 9. A newer release of Lakeward wrote it. Nothing was changed: start that release again" in str(
        refused.value
    )
    # Readers of the killed service may still close files: they are not a process of their own here.
    assert before.items() <= contents(interrupted).items()
    assert interrupted.world.store.leases() == leases
