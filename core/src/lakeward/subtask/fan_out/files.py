"""The files of all partitions: makes the writer of a partition, and keeps what closed writers have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.results import sum_timings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakeward.model.results import LakeFile
    from lakeward.ports import LakeWriter, Partitioner

    PartitionWriters = Callable[[bytes, str, tuple[LakeFile, ...], int], LakeWriter]
    """Makes the writer of a partition: its key, a name, the closed files that it goes on from, its bytes of memory."""


class PartitionFiles:
    """Files of any partitions. Those that a checkpoint gave come first, as they were given."""

    def __init__(
        self, writers: PartitionWriters, name: str, partitioner: Partitioner, before: Iterable[LakeFile] = ()
    ) -> None:
        """Write nothing yet.

        `name` is the first part of the files' names, unique in the attempt. `before` are closed files that the writers
        go on from.

        Raises:
            LakeError: one of these is of another layout.
        """
        self._writers = writers
        self._name = name
        self._made = 0
        self._before: dict[str, int] = {}
        """Place of each file of `before` among them, by path."""
        self._closed: dict[bytes, tuple[LakeFile, ...]] = {}
        """By partition, of partitions without a writer; those with one have theirs there."""
        for place, file in enumerate(before):
            self._before[file.path] = place
            partition = partitioner.partition_of(file)
            self._closed[partition] = (*self._closed.get(partition, ()), file)
        self.rolled = self.closed()
        """Those that a checkpoint may name."""
        self._retired: list[LakeWriter] = []
        """Closed writers with files that no checkpoint may name: `abort` deletes these."""
        self.left_out = 0
        """Of closed writers."""
        self.timings_s: dict[str, float] = {}
        """Of closed writers."""

    def begin(self, partition: bytes, memory_bytes: int) -> LakeWriter:
        """Make the writer of a partition that has none; it goes on from the partition's closed files."""
        self._made += 1
        return self._writers(partition, f"{self._name}-{self._made}", self._closed.pop(partition, ()), memory_bytes)

    def finish(self, partition: bytes, writer: LakeWriter) -> None:
        """Close the writer of a partition."""
        self._closed[partition] = writer.close()
        self._retired.append(writer)
        self.left_out += writer.left_out
        self.timings_s = sum_timings((self.timings_s, writer.timings_s))

    def roll(self, present: Mapping[bytes, LakeWriter]) -> None:
        """Let a checkpoint name all closed files, those of the present writers too."""
        rolled = {partition: writer.roll() for partition, writer in present.items()}
        self._retired.clear()
        self.rolled = self._in_order(self._closed | rolled)

    def closed(self) -> tuple[LakeFile, ...]:
        """Return the closed files of partitions that have no writer."""
        return self._in_order(self._closed)

    def abort(self) -> None:
        """Delete what no checkpoint can name; files of present writers are theirs to delete."""
        for writer in self._retired:
            writer.abort()

    def _in_order(self, files: Mapping[bytes, tuple[LakeFile, ...]]) -> tuple[LakeFile, ...]:
        every = [file for some in files.values() for file in some]
        return tuple(sorted(every, key=lambda file: self._before.get(file.path, len(self._before))))
