"""What must be true of an Iceberg warehouse whatever happened: asked of the files themselves."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from lakeward.model.lake_offsets import OFFSETS, OFFSETS_FILE, unpack_offsets
from lakeward.model.tables import Change
from lakeward_lake_iceberg.head import read_head
from lakeward_lake_iceberg.moves import MOVES_FILE
from lakeward_lake_iceberg.offsets import TABLE_ID
from lakeward_lake_iceberg.storage import local_path
from lakeward_testing.lake_tables import PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from lakeward_testing.interruptions import Changelog

Row = tuple[int, str]


class Shelf:
    """Files that were read before: what is written once never changes."""

    def __init__(self) -> None:
        """Know nothing."""
        self._rows: dict[str, list[Row]] = {}
        self._positions: dict[str, list[tuple[str, int]]] = {}
        self._entries: dict[str, tuple[tuple[bool, str, bool], ...]] = {}
        self._lists: dict[str, tuple[str, ...]] = {}

    def manifests(self, table: Table, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the manifests of a snapshot; they and its list must be there."""
        place = local_path(snapshot.manifest_list)
        assert Path(place).exists(), f"snapshot {snapshot.snapshot_id}: manifest list {place} is gone"
        if place not in self._lists:
            found = snapshot.manifests(table.io)
            for one in found:
                self._read(table, one)
            self._lists[place] = tuple(local_path(one.manifest_path) for one in found)
        return self._lists[place]

    def entries(self, table: Table, snapshot: Snapshot) -> list[tuple[bool, str]]:
        """Return whether each live file of a snapshot is a data file, and its path.

        Every file that it names must be there, also those that it names as removed.
        """
        found = [entry for one in self.manifests(table, snapshot) for entry in self._entries[one]]
        for path in (*self.manifests(table, snapshot), *(path for _, path, _ in found)):
            assert Path(path).exists(), f"snapshot {snapshot.snapshot_id}: {path} is gone"
        return [(is_data, path) for is_data, path, is_live in found if is_live]

    def rows(self, table: Table, snapshot: Snapshot) -> list[Row]:
        """Return a snapshot's rows."""
        deleted: dict[str, set[int]] = defaultdict(set)
        entries = self.entries(table, snapshot)
        for is_data, path in entries:
            for target, position in () if is_data else self._deletes(path):
                deleted[target].add(position)
        return sorted(
            row
            for is_data, path in entries
            if is_data
            for position, row in enumerate(self._data(path))
            if position not in deleted[path]
        )

    def named_by(self, table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
        """Return all files that some snapshots name."""
        found: set[str] = set()
        for snapshot in snapshots:
            found |= {local_path(snapshot.manifest_list), *self.manifests(table, snapshot)}
            self.entries(table, snapshot)
            found |= {path for one in self.manifests(table, snapshot) for _, path, _ in self._entries[one]}
            said = {} if snapshot.summary is None else snapshot.summary.additional_properties
            beside = {local_path(said[name]) for name in (OFFSETS_FILE, MOVES_FILE) if name in said}
            assert all(Path(path).exists() for path in beside), f"snapshot {snapshot.snapshot_id}: {beside} is gone"
            found |= beside
        return found

    def _read(self, table: Table, manifest: ManifestFile) -> None:
        place = local_path(manifest.manifest_path)
        assert Path(place).exists(), f"manifest {place} is gone"
        if place not in self._entries:
            self._entries[place] = tuple(
                (
                    entry.data_file.content is DataFileContent.DATA,
                    local_path(entry.data_file.file_path),
                    entry.status is not ManifestEntryStatus.DELETED,
                )
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            )

    def _data(self, path: str) -> list[Row]:
        if path not in self._rows:
            read = pq.read_table(path, columns=["id", "name"])
            self._rows[path] = list(zip(read["id"].to_pylist(), read["name"].to_pylist(), strict=True))
        return self._rows[path]

    def _deletes(self, path: str) -> list[tuple[str, int]]:
        if path not in self._positions and path.endswith(".puffin"):
            vectors = deletion_vectors_from_puffin_file(PuffinFile(Path(path).read_bytes()))
            self._positions[path] = [
                (local_path(one.referenced_data_file), position)
                for one in vectors
                for position in one.to_vector().to_pylist()
            ]
        if path not in self._positions:
            read = pq.read_table(path)
            targets = [local_path(target) for target in read["file_path"].to_pylist()]
            self._positions[path] = list(zip(targets, read["pos"].to_pylist(), strict=True))
        return self._positions[path]


def check_tables(
    catalog: Catalog, logs: Mapping[int, Changelog], acknowledged: Mapping[int, int], shelf: Shelf
) -> None:
    """Check every table: each retained snapshot is whole and has the rows that its offsets say, each once.

    Args:
        catalog: where the tables are, with no gateway before it.
        logs: what the source had, by table id.
        acknowledged: by table id, the offset up to which a commit was said to have landed.
        shelf: what was read before.
    """
    reached: dict[int, int] = {}
    for identifier in catalog.list_tables("shop") if catalog.namespace_exists("shop") else ():
        table = catalog.load_table(identifier)
        table_id = int(table.metadata.properties[TABLE_ID])
        found = _check(table, logs[table_id], shelf)
        # A start that was paused may have created an old table once more: then one of them is empty.
        assert not (found and reached.get(table_id)), f"two tables of the id {table_id} have commits"
        reached[table_id] = max(found, reached.get(table_id, 0))
    for table_id, offset in acknowledged.items():
        assert table_id in reached, f"the table of id {table_id} is gone"
        assert reached[table_id] >= offset, f"table id {table_id}: committed up to {offset}, found {reached[table_id]}"


def rows_at(log: Changelog, offset: int) -> list[Row]:
    """Return the rows that a table has after the changes below an offset."""
    rows: dict[int, str] = {}
    for row, change in list(zip(log.rows, log.changes, strict=True))[:offset]:
        key = int(str(row["id"]))
        if change == Change.DELETE:
            rows.pop(key)
        elif change != Change.UPDATE_BEFORE:
            rows[key] = str(row["name"])
    return sorted(rows.items())


def orphans_of(table: Table) -> set[str]:
    """Return the files under a table that no retained snapshot and no metadata names."""
    shelf = Shelf()
    named = shelf.named_by(table, table.metadata.snapshots) | {local_path(table.metadata_location)}
    named |= {local_path(entry.metadata_file) for entry in table.metadata.metadata_log}
    copied = table.metadata.properties.get(OFFSETS_FILE)
    named |= set() if copied is None else {local_path(copied)}
    return {str(path) for path in Path(local_path(table.location())).rglob("*") if path.is_file()} - named


def _check(table: Table, log: Changelog, shelf: Shelf) -> int:
    """Return up to which offset the head is."""
    known = {one.snapshot_id: one for one in table.metadata.snapshots}
    reached = 0
    for snapshot in table.metadata.snapshots:
        current: Snapshot | None = snapshot
        offset: int | None = None
        while current is not None and offset is None:
            offset = _offset(current)
            if offset is None and current.sequence_number == 1:
                offset = 0
            current = known.get(current.parent_snapshot_id or 0)
        is_head = snapshot.snapshot_id == table.metadata.current_snapshot_id
        if offset is None and is_head:
            # Somebody expired the commit below; its offsets outlive it as a copy.
            commit = read_head(PATH, table).commit
            offset = 0 if commit is None else max((commit.offsets or {}).values())
        rows = shelf.rows(table, snapshot)
        if offset is None:
            continue
        expected = rows_at(log, offset)
        assert rows == expected, (
            f"{'.'.join(table.name())}: snapshot {snapshot.snapshot_id} at offset {offset}: rows too many "
            f"{sorted(set(rows) - set(expected))}, missing {sorted(set(expected) - set(rows))}, {len(rows)} in all"
        )
        if is_head:
            reached = offset
    return reached


def _offset(snapshot: Snapshot) -> int | None:
    text = {} if snapshot.summary is None else snapshot.summary.additional_properties
    if OFFSETS not in text:
        return None
    return next(iter(unpack_offsets(text[OFFSETS], "a test").values()))
