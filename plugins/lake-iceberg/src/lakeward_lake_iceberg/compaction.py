"""Says which data files of a table are to be merged: small ones of one partition, and those with many deleted rows.

A partition's files are taken in the order of their data sequence numbers, so that rows stay in the order in which they
were committed. Of the small ones the newest are merged, and then older ones as long as these are not much larger than
what is taken already: a row is written anew a few times, not with each merge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent

from lakeward.model.tables import OFFSET_COLUMN
from lakeward.model.upkeep import FileCounts
from lakeward_lake_iceberg.entries import live_entries, manifests_in, named_data_file
from lakeward_lake_iceberg.records import stored_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.detail import Value
    from lakeward_lake_iceberg.options import IcebergOptions

MOST_BYTES = 1 << 30
"""Beyond so many bytes no further file is taken: a job that has to give way has done nothing."""
_SMALL = 0.75
"""A file of less than this share of the target size is small (as in Iceberg's own rewrite)."""
_RATIO = 2
"""An older file is taken that is at most so many times as large as what is taken already."""
Partition = tuple[int, tuple["Value", ...]]
"""The id of a partition spec, and the values of its fields."""


@dataclass(slots=True)
class Live:
    """The live files of a table's head. Files are named by their paths."""

    data: dict[str, ManifestEntry] = field(default_factory=dict)
    single: dict[str, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    """Position deletes of one data file, by that file."""
    shared: dict[Partition, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    """Others, which may be about any data file of their partition."""
    is_plain: bool = True
    """Whether all deletes are position deletes in Parquet files, or deletion vectors."""

    @classmethod
    def of(cls, table: Table) -> Live:
        """Read the manifests."""
        found, head = cls(), table.metadata.current_snapshot()
        manifests = manifests_in(head, table.io)
        for entry in live_entries(manifests, table.io, ManifestContent.DATA):
            found.data[entry.data_file.file_path] = entry
        for entry in live_entries(manifests, table.io, ManifestContent.DELETES):
            file = entry.data_file
            target = named_data_file(file)
            if file.content is not DataFileContent.POSITION_DELETES or not _is_read(file, target):
                found.is_plain = False
            elif target is not None:
                found.single[target].append(file)
            else:
                found.shared[partition_of(file)].append(file)
        return found

    def deletes_of(self, file: DataFile) -> list[DataFile]:
        """Return the deletes that may be about a data file."""
        return [*self.single.get(file.file_path, ()), *self.shared.get(partition_of(file), ())]


def _is_read(file: DataFile, target: str | None) -> bool:
    return file.file_format is FileFormat.PARQUET or (file.file_format is FileFormat.PUFFIN and target is not None)


def partition_of(file: DataFile) -> Partition:
    """Return the partition of a data file or a delete file."""
    return file.spec_id, tuple(stored_value(file.partition[position]) for position in range(len(file.partition)))


def count_files(live: Live, target_bytes: int) -> FileCounts:
    """Count a table's files. Deletes of rows that are deleted twice count twice."""
    sizes = [entry.data_file.file_size_in_bytes for entry in live.data.values()]
    deletes = [file for files in (*live.single.values(), *live.shared.values()) for file in files]
    small = sum(size < _SMALL * target_bytes for size in sizes)
    # Several deletion vectors may lie in one file.
    files = {file.file_path: file.file_size_in_bytes for file in deletes}
    size_bytes = sum(sizes) + sum(files.values())
    return FileCounts(len(sizes), size_bytes, small, len(files), sum(file.record_count for file in deletes))


def due_merges(table: Table, live: Live, options: IcebergOptions, target_bytes: int, now_ms: int) -> list[list[str]]:
    """Return the paths of the files of each merge that is due, the one of most files first.

    `now_ms` is the time in ms since 1970. Nothing is due in a table with equality deletes, or with deletes in a format
    that is not read here.
    """
    if not live.is_plain:
        return []
    partitions: dict[Partition, list[ManifestEntry]] = defaultdict(list)
    for entry in live.data.values():
        # Who has sorted a file may want it sorted.
        if entry.data_file.file_format is FileFormat.PARQUET and not entry.data_file.sort_order_id:
            partitions[partition_of(entry.data_file)].append(entry)
    due: list[list[ManifestEntry]] = []
    for entries in partitions.values():
        small = _small(table, in_order(table, entries), options, target_bytes, now_ms)
        due += [small] if small else []
        taken = {entry.data_file.file_path for entry in small}
        others = [entry for entry in entries if entry.data_file.file_path not in taken]
        due += [[entry] for entry in others if _is_worn(entry, live, options)]
    due.sort(key=len, reverse=True)
    return [[entry.data_file.file_path for entry in entries] for entries in due]


def in_order(table: Table, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return files in the order in which their rows were committed; those of one commit by their offsets."""
    columns = {one.name: one.field_id for one in table.schema().fields}
    offset = columns.get(OFFSET_COLUMN, 0)

    def place(entry: ManifestEntry) -> tuple[int, int, str]:
        lower = (entry.data_file.lower_bounds or {}).get(offset, b"")
        first = int.from_bytes(lower, "little", signed=True)
        return entry.sequence_number or 0, first, entry.data_file.file_path

    return sorted(entries, key=place)


def _small(
    table: Table, entries: Sequence[ManifestEntry], options: IcebergOptions, target_bytes: int, now_ms: int
) -> list[ManifestEntry]:
    """Return which small files of a partition are merged, in order; none where too few are."""
    small = [entry for entry in entries if entry.data_file.file_size_in_bytes < _SMALL * target_bytes]
    taken: list[ManifestEntry] = []
    size = 0
    for entry in reversed(small):
        bytes_of = entry.data_file.file_size_in_bytes
        if taken and (bytes_of > _RATIO * size or size + bytes_of > MOST_BYTES):
            # What was taken is merged, or waits until it is about as large as those of before.
            if len(taken) >= options.compaction_files:
                break
            taken, size = [], 0
        taken, size = [entry, *taken], size + bytes_of
    quiet_ms = 1000 * options.compaction_quiet_s
    written_to = any(max(0, now_ms - _added_ms(table, entry)) < quiet_ms for entry in entries)
    least = max(options.compaction_files, options.compaction_most_files) if written_to else options.compaction_files
    return taken if len(taken) >= least else []


def _added_ms(table: Table, entry: ManifestEntry) -> int:
    """Return when a file was added; the oldest time where that snapshot has expired."""
    snapshot = table.metadata.snapshot_by_id(entry.snapshot_id or 0)
    return 0 if snapshot is None else snapshot.timestamp_ms


def _is_worn(entry: ManifestEntry, live: Live, options: IcebergOptions) -> bool:
    """Return whether many rows of a file are deleted, as far as deletes of this file alone say."""
    file = entry.data_file
    deleted = sum(one.record_count for one in live.single.get(file.file_path, ()))
    return deleted > 0 and deleted >= options.compaction_deletes * file.record_count
