"""Says which files of a table are to be merged: small ones, those with many deleted rows, and delete files.

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
from lakeward_lake_iceberg.entries import VECTORS_FROM, live_entries, manifests_in, named_data_file
from lakeward_lake_iceberg.merge_task import DeletesGroup
from lakeward_lake_iceberg.policy import ENOUGH, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.policy import Partition, Policy

MOST_BYTES = 1 << 30
"""Beyond so many bytes no further file is taken: a job that has to give way has done nothing."""
_SMALL = 0.75
"""A file of less than this share of the target size is small (as in Iceberg's own rewrite)."""
_RATIO = 2
"""An older file is taken that is at most so many times as large as what is taken already."""


@dataclass(slots=True)
class Live:
    """The live files of a table's head. Files are named by their paths."""

    data: dict[str, ManifestEntry] = field(default_factory=dict)
    single: dict[str, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    """Position deletes of one data file, by that file."""
    shared: dict[Partition, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    """Others, which may be about any data file of their partition."""
    deletes: list[ManifestEntry] = field(default_factory=list)
    """All delete files."""
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
            found.deletes.append(entry)
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


def count_files(live: Live, target_bytes: int) -> FileCounts:
    """Count a table's files. Deletes of rows that are deleted twice count twice."""
    sizes = [entry.data_file.file_size_in_bytes for entry in live.data.values()]
    deletes = [entry.data_file for entry in live.deletes if not entry.data_file.equality_ids]
    small = sum(size < _SMALL * target_bytes for size in sizes)
    # Several deletion vectors may lie in one file.
    files = {file.file_path: file.file_size_in_bytes for file in deletes}
    size_bytes = sum(sizes) + sum(files.values())
    return FileCounts(len(sizes), size_bytes, small, len(files), sum(file.record_count for file in deletes))


def due_merges(live: Live, policy: Policy) -> list[list[str]]:
    """Return the paths of the files of each merge that is due, the one of most files first.

    Nothing is due in a table with equality deletes, or with deletes in a format that is not read here.
    """
    if not live.is_plain:
        return []
    partitions: dict[Partition, list[ManifestEntry]] = defaultdict(list)
    for entry in live.data.values():
        # Who has sorted a file may want it sorted.
        if entry.data_file.file_format is FileFormat.PARQUET and not entry.data_file.sort_order_id:
            partitions[partition_of(entry.data_file)].append(entry)
    due: list[list[ManifestEntry]] = []
    for partition, entries in partitions.items():
        small = _small(policy, partition, in_order(policy.table, entries))
        due += [small] if small else []
        taken = {entry.data_file.file_path for entry in small}
        others = [entry for entry in entries if entry.data_file.file_path not in taken]
        due += [[entry] for entry in others if _is_worn(entry, live, policy.options)]
    due.sort(key=len, reverse=True)
    return [[entry.data_file.file_path for entry in entries] for entries in due]


def due_deletes(live: Live, policy: Policy, merged: Collection[str]) -> dict[Partition, list[DeletesGroup]]:
    """Return which delete files of each partition are to become one, that of most files first.

    `merged` are data files that are due themselves: their deletes go with them. Deletion vectors are one for each data
    file anyway, and a table that has them takes no new files of position deletes.
    """
    if not live.is_plain or policy.table.metadata.format_version >= VECTORS_FROM:
        return {}
    places = {path: partition_of(entry.data_file) for path, entry in live.data.items()}
    groups: dict[Partition, list[DeletesGroup]] = defaultdict(list)
    for target, files in live.single.items():
        if target in places and target not in merged and len(files) >= policy.least_deletes(places[target]):
            groups[places[target]].append(DeletesGroup(_names(files), (target,)))
    busy = {places[path] for path in merged}
    shared = {
        place: files
        for place, files in live.shared.items()
        if place not in busy and len(files) >= policy.least_deletes(place)
    }
    targets: dict[Partition, list[str]] = {place: [] for place in shared}
    for path, place in places.items():
        if place in targets:
            targets[place].append(path)
    for place, files in shared.items():
        groups[place].append(DeletesGroup(_names(files), tuple(targets[place])))
    return dict(sorted(groups.items(), key=lambda one: -sum(len(group.files) for group in one[1])))


def _names(files: Iterable[DataFile]) -> tuple[str, ...]:
    return tuple(file.file_path for file in files)


def in_order(table: Table, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return files in the order in which their rows were committed; those of one commit by their offsets."""
    columns = {one.name: one.field_id for one in table.schema().fields}
    offset = columns.get(OFFSET_COLUMN, 0)

    def place(entry: ManifestEntry) -> tuple[int, int, str]:
        lower = (entry.data_file.lower_bounds or {}).get(offset, b"")
        first = int.from_bytes(lower, "little", signed=True)
        return entry.sequence_number or 0, first, entry.data_file.file_path

    return sorted(entries, key=place)


def _small(policy: Policy, partition: Partition, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Return which small files of a partition are merged, in order; none where too few are."""
    small = [entry for entry in entries if entry.data_file.file_size_in_bytes < _SMALL * policy.target_bytes]
    taken: list[ManifestEntry] = []
    size = 0
    for entry in reversed(small):
        bytes_of = entry.data_file.file_size_in_bytes
        if taken and (bytes_of > _RATIO * size or size + bytes_of > MOST_BYTES):
            # What was taken is merged, or waits until it is about as large as those of before.
            if len(taken) >= policy.options.compaction_files:
                break
            taken, size = [], 0
        taken, size = [entry, *taken], size + bytes_of
    return taken if len(taken) >= ENOUGH and len(taken) >= policy.least_files(partition, len(taken)) else []


def _is_worn(entry: ManifestEntry, live: Live, options: IcebergOptions) -> bool:
    """Return whether many rows of a file are deleted, as far as deletes of this file alone say."""
    file = entry.data_file
    deleted = sum(one.record_count for one in live.single.get(file.file_path, ()))
    return deleted > 0 and deleted >= options.compaction_deletes * file.record_count
