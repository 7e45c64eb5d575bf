from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "core" / "kit"))

from lakeward_service_kit.command_line import configured, flights, lakeward
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock
from lakeward_testing.source_world import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Source, SourceReader

__all__ = ["configured", "flights", "lakeward"]

NO_SNAPSHOTS_OF_ITS_OWN = {"table.kv.snapshot.interval-s": "0"}


class EmbeddedWorld:
    def __init__(self, store: EmbeddedStore, clock: FakeClock) -> None:
        self.source: Source = EmbeddedSource(store)
        self.tiering_timeout_s = 120.0
        self._store = store
        self._clock = clock
        self._readers: list[SourceReader] = []

    def reader(self, table: TableSpec) -> SourceReader:
        self._readers.append(EmbeddedSourcePlugin().reader(self.source.reader_task(table), table))
        return self._readers[-1]

    def create(
        self,
        path: TablePath,
        *,
        primary_key: bool,
        partitioned: bool = False,
        buckets: int = 1,
        freshness_s: float = 60,
    ) -> TableSpec:
        return self._store.create_table(
            path,
            SCHEMA,
            primary_key=(("id", "day") if partitioned else ("id",)) if primary_key else (),
            partition_keys=("day",) if partitioned else (),
            bucket_key=("id",),
            buckets=buckets,
            freshness_s=freshness_s,
            properties=NO_SNAPSHOTS_OF_ITS_OWN,
        )

    def write(self, path: TablePath, rows: Sequence[tuple[str, int, str]], day: str = "mon") -> None:
        operations, ids, names = zip(*rows, strict=True)
        table = pa.table({"id": ids, "name": names, "day": [day] * len(rows)})
        if not self._store.table(path).has_primary_key:
            self._store.load(path, table)
        else:
            self._store.load(path, table.append_column("op", pa.array(operations)), change="op")

    def snapshot(self, path: TablePath) -> None:
        self._store.snapshot(path)

    def drop(self, path: TablePath) -> None:
        self._store.drop_table(path)

    def add_column(self, path: TablePath, name: str) -> None:
        self._store.add_column(path, pa.field(name, pa.string()))

    def append_empty(self, path: TablePath, bucket: int, count: int) -> None:
        self._store.append_empty(path, bucket, count)

    def trim(self, path: TablePath, bucket: int, before: int) -> None:
        self._store.trim_log(path, bucket, before)

    def lose(self, path: TablePath, bucket: int, offset: int) -> None:
        with self._store.database.write() as sql:
            sql.execute("DELETE FROM segments WHERE bucket = ? AND base <= ? AND stop > ?", (bucket, offset, offset))

    def set_lease_api(self, *, on: bool) -> None:
        self._store.set_option("lease-api", "true" if on else "false")

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[EmbeddedStore]:
    with EmbeddedStore.create(tmp_path / "store", clock=clock) as store:
        yield store


@pytest.fixture
def embedded_world(store: EmbeddedStore, clock: FakeClock) -> Iterator[EmbeddedWorld]:
    world = EmbeddedWorld(store, clock)
    yield world
    world.close()
