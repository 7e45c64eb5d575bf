"""A key table of format version 3, what three readers read of it, and what its rows have inherited."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestContent

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_lake_iceberg.entries import (
    delete_file,
    first_row_id,
    first_row_id_of,
    live_entries,
    manifests_in,
    named_data_file,
)
from lakeward_lake_iceberg.partitioner import Place
from lakeward_lake_iceberg.positions import read_positions
from lakeward_lake_iceberg.storage import Storage, local_path
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
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

TINY = Limits(chunk_rows=3, chunk_bytes=1 << 30, window_keys=7, window_bytes=1 << 30)
"""Limits of a writer that looks for older versions several times in a round."""


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


def lineage(catalog: SqlCatalog) -> dict[int, tuple[int | None, int | None]]:
    """Return id and last change of each live row by its key, as the specification has readers find them."""
    table = catalog.load_table(str(PATH))
    manifests = manifests_in(table.current_snapshot(), table.io)
    deletes = [entry.data_file for entry in live_entries(manifests, table.io, ManifestContent.DELETES)]
    storage, found = Storage(table.location(), {}), {}
    for entry in live_entries(manifests, table.io, ManifestContent.DATA):
        path, first = entry.data_file.file_path, first_row_id(entry.data_file)
        named = [delete_file(one) for one in deletes if named_data_file(one) == path]
        gone = set(read_positions(storage, named, path).tolist())
        for position, row in enumerate(pq.read_table(local_path(path)).to_pylist()):
            if position not in gone:
                own = None if first is None else first + position
                row_id, changed = row.get("_row_id"), row.get("_last_updated_sequence_number")
                found[row["id"]] = own if row_id is None else row_id, changed or entry.sequence_number
    return found
