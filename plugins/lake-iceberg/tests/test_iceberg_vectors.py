"""Tables of format version 3: one deletion vector for each data file, replaced by each round that deletes more."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import FileFormat, ManifestContent
from pyiceberg.table.snapshots import Operation

from lakeward.errors import ConfigError, FencedError
from lakeward.model.results import CommitOutcome
from lakeward_iceberg_kit.checks import orphans_of
from lakeward_iceberg_kit.newest import NewestPlugin
from lakeward_iceberg_kit.partitioned import World, layout
from lakeward_iceberg_kit.vectors import TINY, Keys, check_row_ids, live
from lakeward_lake_iceberg.commit import SnapshotBuilder
from lakeward_lake_iceberg.entries import (
    entries_in,
    first_row_id,
    manifests_in,
    named_data_file,
)
from lakeward_lake_iceberg.sql import LineageSqlCatalog
from lakeward_lake_iceberg.storage import Storage
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    incarnation,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

THREE = {"format-version": "3"}


@pytest.fixture
def keys(plugin: IcebergLakePlugin, lake: IcebergLake) -> Keys:
    """An empty table of format version 3."""
    return Keys(plugin, lake)


def test_a_vector_is_replaced_by_each_round_that_deletes_more_rows_of_its_file(
    keys: Keys, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    keys.tier(list(range(20)))
    counts = []
    for number in range(1, 6):
        keys.tier([number, 19], [number + 10])
        vectors = live(catalog, ManifestContent.DELETES)
        assert {one.file_format for one in vectors} == {FileFormat.PUFFIN}
        counts.append(max(one.record_count for one in vectors))
        keys.check(catalog, read_table)
    assert counts == [3, 5, 7, 9, 11]


def test_windows_of_one_round_leave_one_vector_and_expiry_deletes_the_others(
    keys: Keys, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    keys.tier(list(range(40)))
    tiering = keys.begin(list(range(30)), [35], TINY)
    written = {file.path for file in tiering.files if file.kind == "deletes"}
    assert keys.lake.commit(tiering.request()) is CommitOutcome.LANDED
    keys.check(catalog, read_table)
    (vector,) = live(catalog, ManifestContent.DELETES)
    assert len(written) > 2
    assert keys.lake.referenced(PATH, written) == written
    for key in range(25):
        keys.tier([100 + key])
    keys.lake.expire(PATH, frozenset())
    assert written & set(keys.lake.list_prefix(PATH, catalog.load_table(str(PATH)).location())) == {vector.file_path}


def test_small_windows_leave_the_rows_of_a_model(
    keys: Keys, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    source = random.Random(5)  # noqa: S311 - reproducible on purpose
    for _ in range(6):
        touched = source.sample(range(30), 20)
        keys.tier(touched[:15], touched[15:], TINY)
        keys.check(catalog, read_table)


def test_an_append_only_table_has_row_ids(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    table = log_table(lake_properties=THREE)
    for number in range(1, 13):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        tiering.write(log_split(table), [source_batch(table.schema, [{"id": number}, {"id": -number}])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    check_row_ids(catalog)
    assert sorted(read_table(PATH)["id"].to_pylist()) == [one for one in range(-12, 13) if one]


def test_a_merged_manifest_has_the_row_ids_that_its_files_had(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    table = log_table(lake_properties=THREE)
    known: dict[str, int | None] = {}
    for number in range(1, 13):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        tiering.write(log_split(table), [source_batch(table.schema, [{"id": number}])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        found = {one.file_path: first_row_id(one) for one in live(catalog, ManifestContent.DATA)}
        assert known.items() <= found.items()
        known = found
    there = catalog.load_table(str(PATH))
    manifests = manifests_in(there.current_snapshot(), there.io)
    assert len(manifests) < len(known) == sum(len(entries_in(one, there.io)) for one in manifests)


@pytest.mark.parametrize("version", ["1", "4", "three"])
def test_a_format_version_that_is_not_written_is_refused(lake: IcebergLake, version: str) -> None:
    with pytest.raises(ConfigError, match=f"lake_properties.format-version: expected one of 2, 3, found '{version}'"):
        lake.open_table(log_table(lake_properties={"format-version": version}), incarnation())
    assert lake.head(PATH) is None


def test_a_table_that_is_there_keeps_its_format_version(lake: IcebergLake, catalog: SqlCatalog) -> None:
    for version in ("2", "3"):
        lake.open_table(log_table(lake_properties={"format-version": version}), incarnation())
    assert catalog.load_table(str(PATH)).format_version == 2


@pytest.mark.parametrize("step", range(0, 16, 2))
def test_a_commit_that_is_killed_leaves_nothing_and_is_done_again(  # noqa: PLR0917 - what is patched, and what is checked
    keys: Keys,
    lake: IcebergLake,
    catalog: SqlCatalog,
    read_table: Callable[..., pa.Table],
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    keys.tier(list(range(20)))
    keys.tier([1, 2], [3])
    request = keys.begin([1, 4], [5], TINY).request()
    steps = iter(range(step))

    def or_die(done: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - of any type
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return done(*given, **named)

        return call

    for kind, name in ((Storage, "create"), (Storage, "open"), (PyArrowFile, "create"), (PyArrowFile, "open")):
        monkeypatch.setattr(kind, name, or_die(getattr(kind, name)))
    monkeypatch.setattr(LineageSqlCatalog, "commit_table", or_die(LineageSqlCatalog.commit_table))
    with suppress(KeyboardInterrupt):
        lake.commit(request)
    monkeypatch.undo()
    if lake.find(PATH, request.round_id, request.step) is None:
        found = lake.commit_leftovers(PATH, request.ids)
        lake.delete(frozenset(found) - lake.referenced(PATH, found))
        assert lake.commit(replace(request, ids=lake.new_ids(PATH))) is CommitOutcome.LANDED
    keys.check(catalog, read_table)
    assert orphans_of(catalog.load_table(str(PATH))) == set()


def test_vectors_of_several_writers_on_a_file_of_an_older_layout_become_one(
    options: IcebergOptions, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    plugin = NewestPlugin()
    lake = plugin.open(options, FakeClock())
    world = World(plugin, lake)
    world.tier([(one, (one, 0, "old")) for one in range(40)], layout())
    world.tier([(0, (0, 0, "new"))], layout())
    for number in range(2):
        tiering = world.write([(one, (one, number, "x")) for one in range(10, 14)], layout("bucket(16, id)"))
        written = [file.path for file in tiering.files if file.kind == "deletes"]
        assert len(written) > 1
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        world.check(query(PATH), catalog.load_table(str(PATH)).scan().to_arrow())
        assert max(Counter(map(named_data_file, live(catalog, ManifestContent.DELETES))).values()) == 1
        assert lake.referenced(PATH, written) == set(written)
    check_row_ids(catalog)
    assert orphans_of(catalog.load_table(str(PATH))) == set()
    lake.close()


def test_a_round_that_replaces_a_vector_which_somebody_has_taken_away_is_fenced(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    keys.tier(list(range(10)))
    keys.tier([1])
    request = keys.begin([2]).request()
    table = catalog.load_table(str(PATH))
    builder = SnapshotBuilder(table, lake.new_ids(PATH), 0)
    data = [one for one in builder._base() if one.content is ManifestContent.DATA]
    prepared = builder._finish(data, Operation.DELETE, {}, {}, {})
    catalog.commit_table(table, prepared.requirements, prepared.updates)
    with pytest.raises(FencedError, match="deletes that the round replaces are gone; enumerate the round afresh"):
        lake.commit(request)
