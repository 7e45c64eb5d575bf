"""What a commit says when the catalog or the disk does not: landed, refused, unknown; and who imports what."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from requests.exceptions import ReadTimeout

from lakeward.errors import ConfigError, LakeError, LakewardError, OutcomeUnknownError, StorageError
from lakeward.model.results import CommitOutcome
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def lake(plugin: IcebergLakePlugin, options: IcebergOptions) -> Iterator[IcebergLake]:
    """An open lake."""
    lake = plugin.open(options, FakeClock())
    assert isinstance(lake, IcebergLake)
    yield lake
    lake.close()


@pytest.fixture
def written(plugin: IcebergLakePlugin, lake: IcebergLake) -> TieringRound:
    """A round with one row, not committed."""
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
    return tiering


def _answer_lost(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, *, landed: bool) -> None:
    send: Callable[..., object] = lake._client.catalog.commit_table

    def lost(*arguments: object) -> object:
        if landed:
            send(*arguments)
        raise ReadTimeout

    # SqlCatalog's own OSErrors are refusals; over HTTP they are not. So the class is no SqlCatalog here.
    monkeypatch.setattr("lakeward_lake_iceberg.catalog.SqlCatalog", int)
    monkeypatch.setattr(lake._client.catalog, "commit_table", lost)


@pytest.mark.parametrize("catalog", ["rest", "hive"])
def test_a_catalog_that_is_reached_by_a_uri_asks_for_it(
    plugin: IcebergLakePlugin, options: IcebergOptions, catalog: str
) -> None:
    options = msgspec.structs.replace(options, catalog=catalog, uri="")
    with pytest.raises(ConfigError, match=rf"^lake\.uri: expected the URI of the {catalog} catalog, found ''"):
        plugin.open(options, FakeClock())


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_is_unknown_and_is_settled_by_looking(
    lake: IcebergLake, written: TieringRound, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    request = written.request()
    with monkeypatch.context() as patched:
        _answer_lost(lake, patched, landed=landed)
        with pytest.raises(OutcomeUnknownError):
            lake.commit(request)
    found = lake.find(PATH, request.round_id, 0)
    assert found == (request.ids.snapshot_id if landed else None)


@pytest.mark.parametrize("landed", [True, False])
def test_a_stamp_whose_answer_was_lost_is_taken_in_the_end(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    lake.open_table(log_table(), incarnation())
    send: Callable[..., object] = lake._client.catalog.commit_table
    answers = iter([True])

    def lost_once(*arguments: object) -> object:
        if next(answers, False):
            if landed:
                send(*arguments)
            raise ReadTimeout
        return send(*arguments)

    monkeypatch.setattr("lakeward_lake_iceberg.catalog.SqlCatalog", int)
    monkeypatch.setattr(lake._client.catalog, "commit_table", lost_once)
    head = lake.stamp(PATH, incarnation())
    assert head.stamp == incarnation()


def test_metadata_files_that_stamps_push_out_of_the_log_are_deleted(lake: IcebergLake, tmp_path: Path) -> None:
    lake.open_table(log_table(), incarnation())
    for start in range(1000, 1015):
        lake.stamp(PATH, incarnation(start))
    assert len(list(tmp_path.rglob("*.metadata.json"))) == 11


@pytest.mark.parametrize("content", ["", "{}"])
def test_the_stamp_of_a_start_deletes_what_the_start_before_it_left_in_the_middle_of_a_swap(
    lake: IcebergLake, tmp_path: Path, content: str
) -> None:
    lake.open_table(log_table(), incarnation())
    folder = next(tmp_path.rglob("*.metadata.json")).parent
    left = folder / "00001-dead.metadata.json", folder / f"snap-7-0-{incarnation(1000)}-stamp.avro"
    others = (
        folder / "00009-in-flight.metadata.json",
        folder / f"snap-8-0-{incarnation(3000)}-stamp.avro",
        folder / f"snap-9-0-{replace(incarnation(1000), service='other')}-stamp.avro",
        folder / "snap-9-0-somebody-stamp.avro",
    )
    for file in (*left, *others):
        file.write_text(content, encoding="utf-8")
    lake.stamp(PATH, incarnation(2000))
    assert not any(file.exists() for file in left)
    assert all(file.exists() for file in others)


def test_a_stamp_succeeds_though_older_metadata_is_gone(lake: IcebergLake, tmp_path: Path) -> None:
    lake.open_table(log_table(), incarnation())
    lake.stamp(PATH, incarnation(1000))
    folder = next(tmp_path.rglob("*.metadata.json")).parent
    (folder / "snap-7-0-somebody.avro").touch()  # so that older metadata is asked for
    next(folder.glob("00000-*.metadata.json")).unlink()
    assert lake.stamp(PATH, incarnation(2000)).stamp == incarnation(2000)


def test_metadata_files_are_kept_where_the_table_says_so(
    lake: IcebergLake, catalog: SqlCatalog, tmp_path: Path
) -> None:
    lake.open_table(log_table(), incarnation())
    with catalog.load_table((PATH.database, PATH.table)).transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    for start in range(1000, 1015):
        lake.stamp(PATH, incarnation(start))
    assert len(list(tmp_path.rglob("*.metadata.json"))) == 17


def test_a_commit_that_lost_the_swap_is_a_conflict_and_leaves_what_can_be_deleted(
    lake: IcebergLake, written: TieringRound, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    send: Callable[..., object] = lake._client.catalog.commit_table

    def overtaken(*arguments: object) -> object:
        monkeypatch.undo()
        with catalog.load_table("shop.orders").transaction() as change:
            change.update_snapshot().fast_append().commit()
        return send(*arguments)

    monkeypatch.setattr(lake._client.catalog, "commit_table", overtaken)
    request = written.request()
    assert lake.commit(request) is CommitOutcome.CONFLICT
    leftovers = lake.commit_leftovers(PATH, request.ids)
    assert leftovers
    assert not lake.referenced(PATH, leftovers)
    again = replace(request, ids=lake.new_ids(request.path))
    assert lake.commit(again) is CommitOutcome.LANDED
    lake.delete(leftovers)
    assert not list(tmp_path.rglob(f"*{request.ids.uuid}*"))


def test_a_metadata_file_that_lost_the_swap_is_among_the_leftovers(
    lake: IcebergLake, written: TieringRound, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert isinstance(lake._client.catalog, SqlCatalog)
    write: Callable[..., object] = lake._client.catalog._write_metadata

    def overtaken(*arguments: object, **named: object) -> None:
        write(*arguments, **named)
        monkeypatch.undo()
        with catalog.load_table("shop.orders").transaction() as transaction:
            transaction.set_properties(somebody="else")

    monkeypatch.setattr(lake._client.catalog, "_write_metadata", overtaken)
    request = written.request()
    assert lake.commit(request) is CommitOutcome.CONFLICT
    leftovers = lake.commit_leftovers(PATH, request.ids)
    assert sum(path.endswith(".metadata.json") for path in leftovers) == 1
    assert not lake.referenced(PATH, leftovers)
    lake.delete(leftovers)
    assert (
        len(list(tmp_path.rglob("*.metadata.json"))) == len(catalog.load_table("shop.orders").metadata.metadata_log) + 1
    )


def test_the_lock_of_another_process_is_waited_out(
    lake: IcebergLake, written: TieringRound, options: IcebergOptions, read_table: Callable[..., pa.Table]
) -> None:
    other = sqlite3.connect(f"{options.warehouse}/catalog.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.5, lambda: other.execute("COMMIT"))
    release.start()
    assert lake.commit(written.request()) is CommitOutcome.LANDED
    release.join()
    other.close()
    assert read_table(PATH).num_rows == 1


def test_a_rest_catalog_that_does_not_answer_is_given_up_in_time(
    plugin: IcebergLakePlugin, options: IcebergOptions
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LakeError):
            plugin.open(msgspec.structs.replace(options, catalog="rest", uri=uri, commit_timeout_s=0.2), FakeClock())


def test_a_catalog_type_that_is_not_known_is_a_configuration_error(
    plugin: IcebergLakePlugin, options: IcebergOptions
) -> None:
    with pytest.raises(ConfigError, match=r"lake\.catalog"):
        plugin.open(msgspec.structs.replace(options, catalog="sqll"), FakeClock())


def test_a_warehouse_that_cannot_be_made_is_named(plugin: IcebergLakePlugin, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match="file/warehouse"):
        plugin.open(plugin.options(warehouse=str(tmp_path / "file" / "warehouse")), FakeClock())


def test_a_catalog_file_that_is_no_database_is_named(plugin: IcebergLakePlugin, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("no database " * 100, encoding="utf-8")
    with pytest.raises(LakewardError, match=r"catalog\.db"):
        plugin.open(plugin.options(warehouse=str(tmp_path)), FakeClock())


def test_a_disk_that_refuses_a_data_file_is_named(
    plugin: IcebergLakePlugin, lake: IcebergLake, options: IcebergOptions
) -> None:
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    data = Path(options.warehouse) / "shop" / "orders" / "data"
    data.write_text("in the way", encoding="utf-8")
    with pytest.raises(StorageError, match="orders/data"):
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])


def test_a_disk_that_refuses_the_metadata_is_a_refusal_and_not_unknown(
    lake: IcebergLake, written: TieringRound, options: IcebergOptions
) -> None:
    metadata = Path(options.warehouse) / "shop" / "orders" / "metadata"
    hidden = metadata.rename(metadata.with_name("hidden"))
    metadata.write_text("in the way", encoding="utf-8")
    with pytest.raises(LakewardError) as refused:
        lake.commit(written.request())
    assert not isinstance(refused.value, OutcomeUnknownError)
    metadata.unlink()
    hidden.rename(metadata)
    assert lake.commit(written.request()) is CommitOutcome.LANDED


def test_files_are_rolled_at_their_target_size_and_hold_every_row(
    plugin: IcebergLakePlugin,
    options: IcebergOptions,
    read_table: Callable[..., pa.Table],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakeward_lake_iceberg.writer.GROUP_ROWS", 10)
    lake = plugin.open(msgspec.structs.replace(options, target_file_size_bytes=1), FakeClock())
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    batches = [source_batch(COLUMNS, [{"id": at + row} for row in range(5)], start=at) for at in range(0, 35, 5)]
    tiering.write(log_split(tiering.table), batches)
    assert [file.rows for file in tiering.files] == [10, 10, 10, 5]
    lake.commit(tiering.request())
    lake.close()
    assert sorted(read_table(PATH).column("id").to_pylist()) == list(range(35))


def test_the_worker_half_imports_neither_pyiceberg_nor_sqlalchemy() -> None:
    code = (
        "import sys, lakeward_lake_iceberg.plugin; "
        "print([name for name in ('pyiceberg', 'sqlalchemy', 'pydantic', 'requests') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert answer.stdout.strip() == "[]"
