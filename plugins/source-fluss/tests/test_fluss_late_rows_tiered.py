"""A whole service tiers partitioned tables of Fluss 1.0 to Paimon: late rows of expired ones, and counts of buckets."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.errors import CorruptFileError
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.settings import TableSettings
from lakeward.model.tables import Change, TableBucket
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import Hold
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss_kit.held import HeldFluss, published
from lakeward_source_fluss_kit.late import LATE, MON, LateServer
from lakeward_source_fluss_kit.rescaled import PATH, TABLE_ID, Part
from lakeward_testing.clock import FakeClock
from lakeward_testing.waiting import until

pytest.importorskip("lakeward_lake_paimon", reason="the lake")
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_lake_paimon.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.coordinator.service.service import Service
    from lakeward.ports import Lake

ROWS = 60
TUE = 9


@dataclass
class Late:
    """Services at one server, and a warehouse."""

    world: World
    lake: Lake
    server: LateServer
    gate: Path
    mode: Literal["mirror", "tier"]

    def source(self) -> HeldFluss:
        """Open the source; its readers stop after two batches while the gate is there."""
        options = FlussOptions(bootstrap=str(self.server.server.endpoint))
        return HeldFluss(options, self.world.clock, Hold(self.gate, 2))

    def service(self, source: HeldFluss, *, once: bool = False) -> Service:
        """Make a service that takes checkpoints all the time, of each row that was read."""
        self.world.rules = lambda _: TableSettings(mode=self.mode)
        return self.world.service(
            source=source,
            source_type="held-fluss",
            lake=self.lake,
            lake_type="paimon",
            jobs=ThreadJobs(run_subtask, slots=4),
            interval_s=0.05,
            pause_s=0.0,
            open_rows=0,
            mirrors=self.mode == "mirror",
            once=once,
        )

    def tier(self) -> None:
        """Let a service bring everything into the lake."""
        source = self.source()
        end = asyncio.run(self.service(source, once=True).serve())
        source.close()
        assert end.failed == ()

    def kill_halfway(self) -> int:
        """End a service without a word in the middle of the late rows; return how many a checkpoint has in files."""
        self.gate.touch()
        source = self.source()

        async def killed() -> None:
            serving = asyncio.create_task(self.service(source).serve())
            await until(self.saved)
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

        asyncio.run(killed())
        source.close()
        self.gate.unlink()
        return self.saved()

    def saved(self) -> int:
        """Return how many rows the newest checkpoint has in files."""
        files = CheckpointFiles(SmallFiles(str(self.world.directory / "state")), self.world.clock)
        found = 0
        for info in files.list("svc"):
            if info.state is CheckpointState.COMPLETE:
                with suppress(CorruptFileError):  # a service that runs deletes older ones
                    one = files.load(info.ref)
                    progress = CheckpointContents.of(one.coordinator, one.subtasks).progress
                    found = max(found, sum(split.rows for split in progress.values()))
        return found

    def rows(self) -> list[tuple[int, str, str]]:
        """Return the live rows of the lake table."""
        head = self.lake.head(PATH)
        assert head is not None
        read = (batch.to_pylist() for batch in self.lake.read_rows(PATH, head.snapshot_id or 0))  # type: ignore[attr-defined]
        return sorted((row["id"], row["day"], row["v"]) for some in read for row in some)

    def offsets(self) -> dict[tuple[int | None, int], int]:
        """Return the offsets in the lake by partition and bucket."""
        head = self.lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        return {(one.partition_id, one.bucket): end for one, end in (head.commit.offsets or {}).items()}

    def folders(self) -> set[str]:
        """Return the partitions' folders."""
        table = self.world.directory / "warehouse" / f"{PATH.database}.db" / PATH.table
        return {one.name for one in table.iterdir() if "=" in one.name}


@pytest.fixture(scope="module", autouse=True)
def held_source_is_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Publish the source that stops under an entry point, as an installed package would."""
    with published(tmp_path_factory.mktemp("site")):
        yield


@pytest.fixture(params=["mirror", "tier"])
def mode(request: pytest.FixtureRequest) -> Literal["mirror", "tier"]:
    """Tables are tiered for the source's readers, and mirrored."""
    return "tier" if request.param == "tier" else "mirror"


@pytest.fixture
def late(tmp_path: Path, mode: Literal["mirror", "tier"], request: pytest.FixtureRequest) -> Iterator[Late]:
    """A server with `mon` and a partition for late rows, and an empty warehouse."""
    world = World.create(tmp_path)
    lake = PaimonLakePlugin().open(PaimonOptions(warehouse=str(tmp_path / "warehouse")), FakeClock())
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    with LateServer.made(key=request.param == "key", directory=offsets) as server:
        yield Late(world, lake, server, tmp_path / "gate", mode)
    lake.close()


@pytest.mark.parametrize("late", ["key"], indirect=True)
def test_late_changes_of_an_expired_partition_are_those_of_its_rows(late: Late) -> None:
    inserts = [(Change.INSERT, number, "mon", "old") for number in range(4)]
    late.server.add(MON, 0, *inserts[:2])
    late.server.add(MON, 1, *inserts[2:])
    late.tier()
    late.server.expire("mon")
    late.server.add(LATE, 0, (Change.UPDATE_BEFORE, 0, "mon", "old"), (Change.UPDATE_AFTER, 0, "mon", "late"))
    late.server.add(LATE, 1, (Change.DELETE, 2, "mon", "old"), (Change.INSERT, 2, "sun", "first"))

    late.tier()

    assert late.rows() == [(0, "mon", "late"), (1, "mon", "old"), (2, "sun", "first"), (3, "mon", "old")]
    assert late.folders() == {"day=mon", "day=sun"}
    assert {place: end for place, end in late.offsets().items() if place[0] == LATE} == {(LATE, 0): 2, (LATE, 1): 2}
    if late.mode == "tier":
        assert late.server.prepared == late.offsets(), "the server is told other offsets than the lake has"
        assert late.server.registered is not None


@pytest.mark.parametrize("late", ["log", "key"], indirect=True)
def test_a_service_that_was_killed_in_the_middle_of_late_rows_leaves_each_row_once(late: Late) -> None:
    change = Change.INSERT if "id" in late.server.table.primary_key else Change.APPEND
    rows = [(number, f"d{number % 3}", f"v{number}") for number in range(ROWS)]
    late.server.add(LATE, 0, *[(change, *row) for row in rows])
    assert 0 < late.kill_halfway() < ROWS

    late.tier()

    assert late.rows() == rows
    assert late.folders() == {"day=d0", "day=d1", "day=d2"}
    assert late.offsets()[LATE, 0] == ROWS


@pytest.mark.parametrize("late", ["log"], indirect=True)
def test_rows_that_are_late_once_more_are_read_from_where_the_lake_has_them(late: Late) -> None:
    late.server.add(LATE, 1, (Change.APPEND, 1, "sun", "a"))
    late.tier()
    late.server.add(LATE, 1, (Change.APPEND, 2, "sun", "b"))

    late.tier()

    assert late.rows() == [(1, "sun", "a"), (2, "sun", "b")]
    found = late.lake.head(PATH)
    assert found is not None
    assert found.commit is not None
    assert (found.commit.offsets or {})[TableBucket(TABLE_ID, LATE, 1)] == 2


@pytest.mark.parametrize(("late", "mode"), [("key", "tier")], indirect=True)
def test_each_partition_keeps_its_count_of_buckets_once_the_tables_was_changed(late: Late) -> None:
    late.server.add(MON, 1, (Change.INSERT, 1, "mon", "old"))
    late.tier()
    late.server.table_buckets, late.server.parts["tue"] = 4, Part(TUE, 4)
    table = late.world.directory / "warehouse" / f"{PATH.database}.db" / PATH.table
    schema = json.loads((table / "schema" / "schema-0").read_bytes())  # the coordinator alters the lake's table, too
    altered = schema | {"id": 1, "options": schema["options"] | {"bucket": "4"}}
    (table / "schema" / "schema-1").write_text(json.dumps(altered), encoding="utf-8")
    late.server.add(MON, 1, (Change.UPDATE_AFTER, 1, "mon", "new"))
    late.server.add(TUE, 3, (Change.INSERT, 2, "tue", "first"))

    late.tier()

    assert late.rows() == [(1, "mon", "new"), (2, "tue", "first")]
    found = Table.load(LocalStorage(), str(table), PATH)
    assert found is not None
    files = found.manifests.live(found.latest).values()
    assert {(one.bucket, one.total_buckets) for one in files} == {(1, 2), (3, 4)}
