"""Tables that are moved to format version 3: what they have stays, and what was begun before goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.manifest import FileFormat, ManifestContent

from lakeward.errors import ConfigError, LakeError, TableGoneError
from lakeward.model.results import CommitOutcome
from lakeward.ports import UpgradableLake
from lakeward_demo.rest_server import RestCatalogServer
from lakeward_iceberg_kit.checks import orphans_of
from lakeward_iceberg_kit.compacting import compact, delete_rows
from lakeward_iceberg_kit.vectors import Keys, lineage, live
from lakeward_lake_iceberg.catalog import Sent
from lakeward_lake_iceberg.commit import SnapshotBuilder
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.sql import LineageSqlCatalog
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, incarnation, log_table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def keys(plugin: IcebergLakePlugin, lake: IcebergLake) -> Keys:
    """A table of format version 2 with position deletes."""
    keys = Keys(plugin, lake, "2")
    keys.tier(list(range(20)))
    keys.tier([1, 2], [3])
    keys.tier([2, 20])
    return keys


def test_an_upgraded_table_has_its_rows_and_row_ids_for_all_of_them(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    assert isinstance(lake, UpgradableLake)
    assert lake.upgrade(PATH) == (2, 3)
    ids = [one for one, _ in lineage(catalog).values()]
    assert None not in ids
    assert len(set(ids)) == len(keys.rows)
    assert lake.upgrade(PATH) == (3, 3)
    keys.tier([30], [4])
    keys.check(catalog, read_table)


def test_position_deletes_are_folded_into_the_vector_of_a_file_that_is_touched(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    lake.upgrade(PATH)
    keys.tier([5])
    formats = sorted(one.file_format.name for one in live(catalog, ManifestContent.DELETES))
    assert formats == ["PARQUET", "PUFFIN"]
    keys.tier([1, 2, 6])
    assert {one.file_format for one in live(catalog, ManifestContent.DELETES)} == {FileFormat.PUFFIN}
    keys.check(catalog, read_table)


def test_position_deletes_of_several_data_files_are_folded_in_and_stay(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    positions = [(one.file_path, 0) for one in live(catalog, ManifestContent.DATA)]
    delete_rows(catalog.load_table(str(PATH)), positions)
    left = sorted(read_table(PATH)["id"].to_pylist())
    keys.rows = {key: name for key, name in keys.rows.items() if key in left}
    lake.upgrade(PATH)
    keys.tier([10])
    keys.tier([11])
    assert sorted(read_table(PATH)["id"].to_pylist()) == sorted(keys.rows)


def test_rows_of_before_keep_the_ids_that_the_upgrade_gave_them(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    for number in range(30, 33):
        keys.tier([number])
    lake.upgrade(PATH)
    before = lineage(catalog)
    compact(lake)
    for number in range(12):
        keys.tier([100 + number])
    found = lineage(catalog)
    assert {key: found[key] for key in before} == before
    keys.check(catalog, read_table)


def test_a_round_that_was_written_before_the_upgrade_commits_vectors(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    tiering = keys.begin([7, 8], [9])
    lake.upgrade(PATH)
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    keys.tier([10])
    keys.check(catalog, read_table)
    assert {one.file_format for one in live(catalog, ManifestContent.DELETES)} >= {FileFormat.PUFFIN}


def test_a_commit_that_was_built_before_the_upgrade_is_a_conflict(keys: Keys, lake: IcebergLake) -> None:
    request = keys.begin([7, 8], [9]).request()
    table = lake._load(PATH)
    prepared = SnapshotBuilder(table, request.ids, 0).commit(request, lake._storage(table))
    lake.upgrade(PATH)
    assert lake._client.send(table, prepared.requirements, prepared.updates)[0] is Sent.CONFLICT


def test_an_upgrade_that_lost_against_another_commit_is_tried_again_and_leaves_nothing(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_table: Callable[..., object] = lake._client.catalog.commit_table
    rounds = [keys.begin([40])]

    def late(*arguments: object) -> object:
        if rounds:
            assert lake.commit(rounds.pop().request()) is CommitOutcome.LANDED
        return commit_table(*arguments)

    monkeypatch.setattr(lake._client.catalog, "commit_table", late)
    assert lake.upgrade(PATH) == (2, 3)
    assert orphans_of(catalog.load_table(str(PATH))) == set()


def test_an_empty_table_and_one_without_a_key_are_upgraded(lake: IcebergLake, catalog: SqlCatalog) -> None:
    lake.open_table(log_table(), incarnation())
    assert lake.upgrade(PATH) == (2, 3)
    lake.stamp(PATH, incarnation())
    assert catalog.load_table(str(PATH)).format_version == 3


def test_a_table_that_is_not_there_is_not_upgraded(lake: IcebergLake) -> None:
    with pytest.raises(TableGoneError, match=re.escape("shop.orders: the lake has no such table")):
        lake.upgrade(PATH)


def test_a_catalog_whose_metadata_pyiceberg_writes_is_refused_in_words(
    plugin: IcebergLakePlugin, tmp_path: Path
) -> None:
    properties = {"py-catalog-impl": "pyiceberg.catalog.memory.InMemoryCatalog"}
    options = IcebergOptions(warehouse=str(tmp_path), uri="sqlite:///:memory:", properties=properties)
    lake = plugin.open(options, FakeClock())
    with pytest.raises(ConfigError, match=r"format-version: expected 2, as pyiceberg .* InMemoryCatalog, found '3'"):
        lake.open_table(log_table(lake_properties={"format-version": "3"}), incarnation())
    lake.open_table(log_table(), incarnation())
    assert isinstance(lake, UpgradableLake)
    with pytest.raises(LakeError, match=r"expected a catalog .*\(sql, rest\), found InMemoryCatalog"):
        lake.upgrade(PATH)
    lake.close()


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_table_of_a_rest_catalog_is_made_and_upgraded_by_its_server(
    plugin: IcebergLakePlugin,
    options: IcebergOptions,
    catalog: SqlCatalog,
    read_table: Callable[..., pa.Table],
    version: str,
) -> None:
    with RestCatalogServer.running(Path(options.warehouse), catalog=LineageSqlCatalog) as server:
        asked = IcebergOptions(warehouse=server.warehouse, catalog="rest", uri=server.uri)
        lake = plugin.open(asked, FakeClock())
        assert isinstance(lake, IcebergLake)
        keys = Keys(plugin, lake, version)
        keys.tier(list(range(10)))
        assert lake.upgrade(PATH) == (int(version), 3)
        keys.tier([1], [2])
        keys.check(catalog, read_table)
        lake.close()


@pytest.mark.usefixtures("keys")
def test_what_a_killed_upgrade_has_left_goes_with_the_next_one(
    lake: IcebergLake, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(catalog), "commit_table", die)
    with pytest.raises(KeyboardInterrupt):
        lake.upgrade(PATH)
    monkeypatch.undo()
    assert len(orphans_of(catalog.load_table(str(PATH)))) == 1
    assert lake.upgrade(PATH) == (2, 3)
    assert orphans_of(catalog.load_table(str(PATH))) == set()
