"""Primary-key tables: windows, own files, pinned files, deletes that are merged, and a base that is gone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestContent

from lakeward.errors import FencedError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change, TableBucket
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.entries import live_entries
from lakeward_lake_iceberg.partitioner import Place
from lakeward_lake_iceberg.storage import Storage
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import Limits, UpsertWriter
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake, SourceBatch
    from lakeward_lake_iceberg.detail import DeleteFile
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

pytestmark = pytest.mark.slow

KEYS = st.tuples(st.integers(0, 4), st.text("ab", max_size=1))
TINY = Limits(chunk_rows=3, chunk_bytes=1 << 30, window_keys=7, window_bytes=1 << 30)


@pytest.fixture
def tier(plugin: IcebergLakePlugin, lake: Lake) -> Callable[..., TieringRound]:
    """Runs one round of a table's only split, with tiny chunks and windows, up to the commit."""

    def run(number: int, batches: list[SourceBatch], table: TableSpec | None = None) -> TieringRound:
        tiering = TieringRound(plugin, lake, table or key_table(), incarnation(), number)
        split = log_split(tiering.table)
        task = unpack_task(tiering.task)
        writer = UpsertWriter(task, tiering.table, Place.of_split(task, split), 1, limits=TINY)
        for batch in batches:
            writer.write(batch)
        tiering.files += writer.close()
        return tiering

    return run


def _upserts(number: int, keys: list[int]) -> list[SourceBatch]:
    rows = [{"id": key, "name": f"r{number}"} for key in keys]
    return [source_batch(COLUMNS, rows, changes=[Change.UPDATE_AFTER] * len(rows), start=number * 1000)]


def _live(catalog: SqlCatalog, content: ManifestContent) -> list[DataFile]:
    table = catalog.load_table("shop.orders")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [entry.data_file for entry in live_entries(snapshot.manifests(table.io), table.io, content)]


def test_windows_smaller_than_a_round_leave_the_rows_of_a_model(
    tier: Callable[..., TieringRound], lake: Lake, read_table: Callable[..., pa.Table], catalog: SqlCatalog
) -> None:
    model: dict[int, str] = {}
    source = random.Random(7)  # noqa: S311 - reproducible on purpose
    for number in range(1, 7):
        rows, changes = [], []
        for step in range(60):
            key = source.randrange(25)
            gone = key in model and source.random() < 0.3
            changes.append(Change.DELETE if gone else Change.UPDATE_AFTER)
            rows.append({"id": key, "name": f"{number}-{step}"})
            if gone:
                del model[key]
            else:
                model[key] = f"{number}-{step}"
        batches = [
            source_batch(COLUMNS, rows[at : at + 7], changes=changes[at : at + 7], start=at) for at in range(0, 60, 7)
        ]
        assert lake.commit(tier(number, batches).request()) is CommitOutcome.LANDED
        found = read_table(PATH)
        pairs = zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True)
        assert sorted(pairs) == sorted(model.items())
    by_library = catalog.load_table("shop.orders").scan().to_arrow()
    assert sorted(by_library.column("id").to_pylist()) == sorted(model)


def test_a_hot_key_is_deleted_once_for_each_update(
    tier: Callable[..., TieringRound], lake: Lake, catalog: SqlCatalog
) -> None:
    for number in range(1, 13):
        lake.commit(tier(number, _upserts(number, [1])).request())
    deletes = _live(catalog, ManifestContent.DELETES)
    assert sum(file.record_count for file in deletes) == 11


def _many(plugin: IcebergLakePlugin, lake: Lake, keys: int) -> None:
    """One data file of many rows (no tiny chunks)."""
    tiering = TieringRound(plugin, lake, key_table(), incarnation(), 1)
    rows = [{"id": key, "name": "r1"} for key in range(keys)]
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=[Change.INSERT] * keys)])
    lake.commit(tiering.request())


def test_the_fifth_delete_file_replaces_four_and_expiry_deletes_them(  # noqa: PLR0917 - fixtures
    tier: Callable[..., TieringRound],
    lake: Lake,
    plugin: IcebergLakePlugin,
    catalog: SqlCatalog,
    read_table: Callable[..., pa.Table],
    tmp_path: Path,
) -> None:
    _many(plugin, lake, 30)
    replaced: list[DeleteFile] = []
    for number in range(2, 31):
        tiering = tier(number, _upserts(number, [number - 2]))
        replaced += [path for file in tiering.files for path in unpack_detail(file.detail).replaces]
        lake.commit(tiering.request())
    assert len(replaced) >= 4
    live = {file.file_path for file in _live(catalog, ManifestContent.DELETES)}
    assert not live & set(replaced)
    assert sorted(read_table(PATH).column("id").to_pylist()) == list(range(30))
    lake.expire(PATH, frozenset())
    on_disk = {f"file://{path}" for path in tmp_path.rglob("*-deletes.parquet")}
    assert live <= on_disk
    assert set(replaced) - on_disk
    assert sorted(read_table(PATH).column("id").to_pylist()) == list(range(30))


@pytest.mark.parametrize("deletions", [0, 1, 12, 30])
def test_an_expiry_that_died_in_the_middle_is_finished_by_the_next_start(  # noqa: PLR0917 - fixtures
    tier: Callable[..., TieringRound],
    lake: Lake,
    plugin: IcebergLakePlugin,
    catalog: SqlCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deletions: int,
) -> None:
    _many(plugin, lake, 30)
    for number in range(2, 31):
        lake.commit(tier(number, _upserts(number, [number - 2])).request())
    assert _on_disk(tmp_path) == _named(catalog)
    delete, turns = Storage.delete, iter(range(deletions))

    def die(self: Storage, path: str) -> None:
        if next(turns, None) is None:
            raise KeyboardInterrupt
        delete(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            lake.expire(PATH, frozenset())
    assert _on_disk(tmp_path) - _named(catalog)
    lake.stamp(PATH, incarnation(2000))
    assert _on_disk(tmp_path) == _named(catalog)


def test_what_somebody_else_expired_and_left_lying_stays(
    tier: Callable[..., TieringRound], lake: Lake, catalog: SqlCatalog, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        lake.commit(tier(number, _upserts(number, [1])).request())
    table = catalog.load_table((PATH.database, PATH.table))
    before = _on_disk(tmp_path)
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[1].snapshot_id).commit()
    lake.stamp(PATH, incarnation(2000))
    assert before <= _on_disk(tmp_path)
    assert before - _named(catalog)


def _on_disk(root: Path) -> set[str]:
    return {f"file://{path}" for path in root.rglob("*") if path.is_file() and path.suffix in {".parquet", ".avro"}}


def _named(catalog: SqlCatalog) -> set[str]:
    table = catalog.load_table((PATH.database, PATH.table))
    manifests = [one for snapshot in table.metadata.snapshots for one in snapshot.manifests(table.io)]
    entries = [entry for one in manifests for entry in one.fetch_manifest_entry(table.io, discard_deleted=True)]
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    return {one.manifest_path for one in manifests} | {entry.data_file.file_path for entry in entries} | lists


def test_a_round_whose_base_was_compacted_is_fenced(
    tier: Callable[..., TieringRound],
    lake: Lake,
    catalog: SqlCatalog,
    read_table: Callable[..., pa.Table],
) -> None:
    lake.commit(tier(1, _upserts(1, [1, 2])).request())
    stale = tier(2, _upserts(2, [1]))
    base = _live(catalog, ManifestContent.DATA)
    with catalog.load_table("shop.orders").transaction() as change, change.update_snapshot().overwrite() as rewrite:
        for file in base:
            rewrite.delete_data_file(file)
    with pytest.raises(FencedError, match="gone") as fenced:
        lake.commit(stale.request())
    assert fenced.value.by == ""
    assert lake.commit(tier(3, _upserts(3, [1])).request()) is CommitOutcome.LANDED
    assert read_table(PATH).column("name").to_pylist() == ["r3"]


def test_rows_that_were_widened_later_are_still_found(
    tier: Callable[..., TieringRound], lake: Lake, read_table: Callable[..., pa.Table]
) -> None:
    narrow = pa.schema([pa.field("id", pa.int32(), nullable=False), COLUMNS.field("name")])
    batch = source_batch(narrow, [{"id": 1, "name": "old"}], changes=[Change.INSERT])
    lake.commit(tier(1, [batch], key_table(narrow)).request())
    lake.commit(tier(2, _upserts(2, [1]), key_table()).request())
    assert read_table(PATH).column("name").to_pylist() == ["r2"]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.lists(KEYS, max_size=9), min_size=1, max_size=4))
def test_keys_of_several_columns_are_one_key(
    rounds: list[list[tuple[int, str]]], tmp_path_factory: pytest.TempPathFactory, plugin: IcebergLakePlugin
) -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string(), nullable=False)])
    schema = schema.append(pa.field("value", pa.int64()))
    table = key_table(schema, primary_key=("a", "b"), bucket_key=("a",))
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    lake = plugin.open(plugin.options(warehouse=warehouse), FakeClock())
    model: dict[tuple[int, str], int] = {}
    for number, keys in enumerate(rounds):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [{"a": a, "b": b, "value": 100 * number + at} for at, (a, b) in enumerate(keys)]
        model |= {key: 100 * number + at for at, key in enumerate(keys)}
        task = unpack_task(tiering.task)
        writer = UpsertWriter(task, table, Place.of_split(task, log_split(table)), 1, limits=TINY)
        writer.write(source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * len(rows)))
        tiering.files += writer.close()
        lake.commit(tiering.request({TableBucket(7, None, 0): number}))
    catalog = load_catalog("lakeward", uri=f"sqlite:///{warehouse}/catalog.db")
    found = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    catalog.close()
    lake.close()
    assert sorted((row["a"], row["b"], row["value"]) for row in found) == sorted((*key, model[key]) for key in model)
