"""A whole service at a Fluss server is killed in mid-snapshot; the next one reads only what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lakeward.clock import SystemClock
from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.service.service import Service
from lakeward.errors import CorruptFileError
from lakeward.model.checkpoints import Checkpoint, CheckpointState
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import Hold
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss_kit.held import HeldFluss, published
from lakeward_source_fluss_kit.oneserver import PATH
from lakeward_source_fluss_kit.tieringserver import TIMEOUT_S, TieringServer
from lakeward_testing.waiting import until

ROWS = 120
LEASE_S = 600.0


class ShiftedClock(SystemClock):
    """A clock that a test sets forward."""

    shift_s = 0.0

    def wall_ms(self) -> int:
        """See `Clock`."""
        return super().wall_ms() + int(self.shift_s * 1000)


@dataclass
class Halfway:
    """Services at one server, of which the first stands in the middle of the table's snapshot."""

    world: World
    clock: ShiftedClock
    server: TieringServer
    gate: Path

    def source(self) -> HeldFluss:
        """Open the source."""
        spool = self.gate.with_name("spool")
        spool.mkdir(exist_ok=True)
        options = FlussOptions(bootstrap=str(self.server.one.server.endpoint), spool=str(spool))
        return HeldFluss(options, self.clock, Hold(self.gate, 2))

    def service(self, source: HeldFluss) -> Service:
        """Make a service that takes checkpoints all the time."""
        return self.world.service(
            source=source,
            source_type="held-fluss",
            jobs=ThreadJobs(run_subtask, slots=2),
            lease_duration_s=LEASE_S,
            heartbeat_timeout_s=TIMEOUT_S,
            interval_s=0.05,
            pause_s=0.0,
            backoff_first_s=0.5,
            backoff_most_s=0.5,
        )

    def read(self) -> list[int]:
        """Return how many rows of the snapshot each checkpoint has."""
        found = [CheckpointContents.of(one.coordinator, one.subtasks).progress for one in self._whole()]
        return [sum(one.rows for one in progress.values()) for progress in found]

    def half_done(self) -> bool:
        """Say whether two checkpoints hold a beginning: the end of a service takes back one that it did not hear of."""
        return len(read := self.read()) > 1 and min(read[-2:]) > 0

    def kill_halfway(self) -> int:
        """Let a service come to the middle of the snapshot, end it without a word; return the rows that are left."""
        source = self.source()

        async def killed() -> None:
            serving = asyncio.create_task(self.service(source).serve())
            await until(self.half_done)
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            await until(self.read)  # the threads of a service that was killed may still write

        asyncio.run(killed())
        source.close()
        return ROWS - self.read()[-1]

    def go_on(self) -> int:
        """Open the gate, let a service commit all; return the rows of snapshots that it read."""
        self.gate.unlink()
        source = self.source()
        service = self.service(source)

        async def committed() -> None:
            serving = asyncio.create_task(service.serve())
            await until(lambda: not self.server.cleans_first and self.server.all_tiered)
            service.stop()
            await serving

        asyncio.run(committed())
        source.close()
        return source.hold.snapshot_rows()

    def _whole(self) -> list[Checkpoint]:
        files = CheckpointFiles(SmallFiles(str(self.world.directory / "state")), self.clock)
        found: list[Checkpoint] = []
        for info in files.list("svc"):
            if info.state is CheckpointState.COMPLETE:
                with suppress(CorruptFileError):  # a service that runs deletes older ones
                    found.append(files.load(info.ref))
        return found


@pytest.fixture(scope="module", autouse=True)
def plugins_are_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Publish the lake and the source under their entry points, as installed packages would."""
    with published(tmp_path_factory.mktemp("site")):
        yield


@pytest.fixture
def halfway(tmp_path: Path, release: Release) -> Iterator[Halfway]:
    """A server with one snapshot; nothing has run yet."""
    clock = ShiftedClock()
    world = replace(World.create(tmp_path / "world"), clock=clock)
    gate = tmp_path / "gate"
    gate.touch()
    (tmp_path / "server").mkdir()
    server = TieringServer(tmp_path / "server", clock, ROWS, release=release)
    yield Halfway(world, clock, server, gate)
    server.close()


@pytest.mark.parametrize("away_s", [0.0, TIMEOUT_S + 30], ids=["within the timeout", "after it"])
def test_a_restart_reads_only_what_is_left_though_the_server_cleans_up_before_the_table_comes_again(
    halfway: Halfway, away_s: float
) -> None:
    server = halfway.server
    left = halfway.kill_halfway()
    assert server.held == {1}
    halfway.clock.shift_s += away_s
    if away_s:
        server.cleans_first = True
    else:
        server.clean_up()
        assert set(server.retained) == {1, 2}

    assert halfway.go_on() == left < ROWS
    assert halfway.world.outcomes(PATH)[0] == "committed"
    rows = {row["id"]: row["v"] for row in halfway.world.lake.read(PATH, key="id")}
    assert rows == {key: server.value(key) for key in range(ROWS)}
    assert set(server.retained) == {1, 2}, "the lease did not protect"
    server.clean_up()
    assert set(server.retained) == {3}, "the lease was not given back"


def test_an_outage_longer_than_the_lease_costs_the_checkpoint_and_no_row(halfway: Halfway) -> None:
    left = halfway.kill_halfway()
    halfway.clock.shift_s += LEASE_S + 1
    halfway.server.clean_up()
    assert set(halfway.server.retained) == {2}

    assert halfway.go_on() == ROWS > left
    rows = {row["id"]: row["v"] for row in halfway.world.lake.read(PATH, key="id")}
    assert rows == {key: halfway.server.value(key) for key in range(ROWS)}
