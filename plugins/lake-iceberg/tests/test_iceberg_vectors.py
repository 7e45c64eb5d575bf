"""Tables of format version 3: one deletion vector for each data file, replaced by each round that deletes more."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.manifest import FileFormat, ManifestContent

from lakeward.errors import ConfigError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_lake_iceberg.entries import (
    entries_in,
    first_row_id,
    first_row_id_of,
    live_entries,
    manifests_in,
    named_data_file,
)
from lakeward_lake_iceberg.partitioner import Place
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import Limits, UpsertWriter
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

THREE = {"format-version": "3"}
TINY = Limits(chunk_rows=3, chunk_bytes=1 << 30, window_keys=7, window_bytes=1 << 30)


class Keys:
    """A table of one bucket, and the rows that it must have."""

    def __init__(self, plugin: IcebergLakePlugin, lake: IcebergLake, version: str = "3") -> None:
        """Start empty."""
        self.plugin, self.lake = plugin, lake
        self.table = key_table(buckets=1, lake_properties={"format-version": version})
        self.rows: dict[int, str] = {}
        self.number = 0

    def begin(self, keys: list[int], gone: list[int] | None = None, limits: Limits | None = None) -> TieringRound:
        """Write a round that sets rows and deletes others."""
        self.number += 1
        removed = gone or []
        rows = [{"id": key, "name": f"r{self.number}"} for key in [*removed, *keys]]
        changes = [Change.DELETE] * len(removed) + [Change.UPDATE_AFTER] * len(keys)
        tiering = TieringRound(self.plugin, self.lake, self.table, incarnation(), self.number)
        task, start = unpack_task(tiering.task), 1000 * self.number
        writer = UpsertWriter(task, self.table, Place.of_split(task, log_split(self.table)), 1, limits=limits)
        for at in range(0, len(rows), 5):
            part = slice(at, at + 5)
            writer.write(source_batch(COLUMNS, rows[part], changes=changes[part], start=start + at))
        tiering.files += writer.close()
        self.rows = {key: name for key, name in self.rows.items() if key not in removed}
        self.rows |= dict.fromkeys(keys, f"r{self.number}")
        return tiering

    def tier(self, keys: list[int], gone: list[int] | None = None, limits: Limits | None = None) -> None:
        """Commit such a round."""
        assert self.lake.commit(self.begin(keys, gone, limits).request()) is CommitOutcome.LANDED

    def check(self, catalog: SqlCatalog, read_table: Callable[..., pa.Table]) -> None:
        """Compare the rows by three readers, and the files with what the manifests say of them."""
        table = catalog.load_table(str(PATH))
        snapshot = head_of(self.lake).snapshot_id or 0
        ours = [row for batch in self.lake.read_rows(PATH, snapshot) for row in batch.to_pylist()]
        for rows in (read_table(PATH).to_pylist(), table.scan().to_arrow().to_pylist(), ours):
            assert sorted((row["id"], row["name"]) for row in rows) == sorted(self.rows.items())
        assert list(self.lake.check_files(PATH, snapshot, None)) == []
        assert max(Counter(map(named_data_file, live(catalog, ManifestContent.DELETES))).values(), default=1) == 1
        check_row_ids(catalog)


@pytest.fixture
def keys(plugin: IcebergLakePlugin, lake: IcebergLake) -> Keys:
    """An empty table of format version 3."""
    return Keys(plugin, lake)


def live(catalog: SqlCatalog, content: ManifestContent) -> list[DataFile]:
    """Return the live files of the head."""
    table = catalog.load_table(str(PATH))
    manifests = manifests_in(table.current_snapshot(), table.io)
    return [entry.data_file for entry in live_entries(manifests, table.io, content)]


def check_row_ids(catalog: SqlCatalog) -> None:
    """Check that no two files share a row id, and that each snapshot begins where the one before has ended."""
    table = catalog.load_table(str(PATH))
    ranges = sorted(
        (first_row_id(file) or 0, (first_row_id(file) or 0) + file.record_count)
        for file in live(catalog, ManifestContent.DATA)
    )
    assert all(one[1] <= other[0] for one, other in pairwise(ranges))
    following = 0
    for snapshot in table.snapshots():
        if snapshot.first_row_id is not None:
            assert (snapshot.first_row_id, snapshot.added_rows is None) == (following, False)
            following += snapshot.added_rows or 0
            data = [one for one in manifests_in(snapshot, table.io) if one.content is ManifestContent.DATA]
            assert None not in map(first_row_id_of, data)
    metadata: Any = table.metadata
    assert metadata.next_row_id == following


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
