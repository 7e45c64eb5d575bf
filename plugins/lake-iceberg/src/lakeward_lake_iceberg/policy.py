"""The policy of a table's compaction: from how many files on a partition is due, by how long nothing has come to it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakeward_lake_iceberg.pins import target_size
from lakeward_lake_iceberg.records import stored_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.detail import Value
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.storage import Storage

ENOUGH = 2
"""Fewer files are never merged."""
_ASKED = 100
"""The storage is asked for the times of so many files at most, each time something is planned."""
Partition = tuple[int, tuple["Value", ...]]
"""The id of a partition spec, and the values of its fields."""


def partition_of(file: DataFile) -> Partition:
    """Return the partition of a data file or a delete file."""
    return file.spec_id, tuple(stored_value(file.partition[position]) for position in range(len(file.partition)))


class Policy:
    """Says of a table, as it was loaded, from how many files on a partition is due."""

    def __init__(
        self, table: Table, entries: Iterable[ManifestEntry], options: IcebergOptions, storage: Storage, now_ms: int
    ) -> None:
        """Look at the times of all files, by their entries; `now_ms` is the time in ms since 1970."""
        self.table = table
        self.options = options
        self.target_bytes = target_size(table, options)
        self._storage = storage
        self._now_ms = now_ms
        self._left = _ASKED
        times = {one.snapshot_id: one.timestamp_ms for one in table.metadata.snapshots}
        self._newest: dict[Partition, ManifestEntry] = {}
        self._changed_ms: dict[Partition, int] = defaultdict(int)
        for entry in entries:
            partition = partition_of(entry.data_file)
            # Of an expired snapshot the time is not known: it was long ago, as upkeep goes.
            self._changed_ms[partition] = max(self._changed_ms[partition], times.get(entry.snapshot_id or 0, 0))
            known = self._newest.setdefault(partition, entry)
            if (entry.file_sequence_number or 0) > (known.file_sequence_number or 0):
                self._newest[partition] = entry

    def least_deletes(self, partition: Partition) -> int:
        """Return from how many delete files of one data file, or shared by a partition, on they are merged."""
        return ENOUGH if self._is_quiet(partition) else self.options.compaction_delete_files

    def least_files(self, partition: Partition, there: int) -> int:
        """Return from how many small files on they are merged, of which so many are there."""
        least = self.options.compaction_files
        if not self._is_quiet(partition):
            return max(least, self.options.compaction_most_files)
        return ENOUGH if there < least and self._is_old(partition) else least

    def _is_quiet(self, partition: Partition) -> bool:
        return max(0, self._now_ms - self._changed_ms[partition]) >= 1000 * self.options.compaction_quiet_s

    def _is_old(self, partition: Partition) -> bool:
        """Return whether the newest file of a partition is old; the storage is asked where its snapshot has expired."""
        changed_ms: int | None = self._changed_ms[partition]
        if not changed_ms and self._left > 0:
            self._left -= 1
            changed_ms = self._storage.written_ms(self._newest[partition].data_file.file_path)
        return bool(changed_ms) and self._now_ms - (changed_ms or 0) >= 1000 * self.options.compaction_age_s
