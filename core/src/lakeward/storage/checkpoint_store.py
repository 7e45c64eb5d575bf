"""The store of checkpoints on any filesystem of `pyarrow.fs`: `<root>/` as in `places`.

`_metadata` is written last: once it is whole, the checkpoint has happened. A file `_abandoned` says that it never
will: whoever writes that one first and then finds no whole `_metadata`, and whoever writes `_metadata` first and then
finds no `_abandoned`, may go on; of the two at the most one does. So a sweep and a completion can never both win.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakeward.errors import CorruptFileError, OutcomeUnknownError, StorageError, UsageError
from lakeward.model.checkpoints import (
    Checkpoint,
    CheckpointInfo,
    CheckpointRef,
    CheckpointState,
    LeaseCopy,
    PartFile,
    RoundSnapshot,
    SubtaskSnapshot,
)
from lakeward.storage.checkpoint_format import (
    Head,
    Metadata,
    decode_metadata,
    decode_part,
    encode_metadata,
    encode_part,
)
from lakeward.storage.checkpoint_inspection import check_parts, in_order, look, stand
from lakeward.storage.checkpoint_layout import ABANDONED, METADATA, by_checkpoint, folder, part_name, place, start_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakeward.model.identity import Incarnation
    from lakeward.ports import Clock
    from lakeward.storage.small_files import FileEntry, SmallFiles

READERS = 8
"""Parts that are read side by side: on an object store each costs a round trip."""


class CheckpointFiles:
    """See `lakeward.ports.CheckpointStore`, which says what each method does. Blocking; thread-safe."""

    def __init__(self, files: SmallFiles, clock: Clock, *, readers: int = READERS) -> None:
        """Keep the parts.

        Args:
            files: where checkpoints lie.
            clock: says when one completed.
            readers: parts that are read at once; 1 = one after the other, on the caller's thread.
        """
        self._readers = readers
        self._files = files
        self._clock = clock

    def write_part(self, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
        """Write one subtask's part durably."""
        data, part = encode_part(ref, snapshot, part_name(snapshot.subtask, snapshot.task_attempt))
        self._files.write(place(ref, part.name), data)
        return part

    def complete(
        self, ref: CheckpointRef, coordinator: RoundSnapshot, parts: Sequence[PartFile], lease: LeaseCopy | None
    ) -> int:
        """Write `_metadata`, which must be the last file."""
        head = Head(ref, coordinator.path, self._clock.wall_ms(), tuple(parts))
        data = encode_metadata(Metadata(head, coordinator, lease))
        self._check(ref, head)
        try:
            self._files.write(place(ref, METADATA), data)
        except StorageError as error:
            self._settle(ref, data, error)
        self._confirm(ref, head)
        return len(data) + sum(part.size_bytes for part in parts)

    def _settle(self, ref: CheckpointRef, data: bytes, error: StorageError) -> None:
        """After a failed write, return normally if the file was written after all."""
        try:
            found = self._files.read(place(ref, METADATA))
        except StorageError as second:
            message = f"checkpoint {ref}: it is unknown whether it completed: {error}; then {second}"
            raise OutcomeUnknownError(message) from error
        if found != data:
            raise error

    def _confirm(self, ref: CheckpointRef, head: Head) -> None:
        """Check again: the checkpoint may have been abandoned, and parts deleted, since the first check."""
        try:
            self._check(ref, head)
        except StorageError as error:
            message = f"checkpoint {ref}: it is unknown whether it completed: {error}"
            try:
                self._files.delete(place(ref, METADATA))
            except StorageError as second:
                raise OutcomeUnknownError(message) from second
            raise

    def _check(self, ref: CheckpointRef, head: Head) -> None:
        listed = self._listed(ref)
        if ABANDONED in listed:
            message = f"checkpoint {ref}: it was given up before it completed"
            raise StorageError(message)
        try:
            check_parts(self._files, ref, head, listed)
        except CorruptFileError as error:
            message = f"checkpoint {ref}: it cannot complete without all of its parts: {error}"
            raise StorageError(message) from error

    def abandon(self, ref: CheckpointRef) -> None:
        """Write `_abandoned`."""
        self._files.write(place(ref, ABANDONED), b"This checkpoint never counts.\n")

    def load(self, ref: CheckpointRef) -> Checkpoint:
        """Read everything, and check everything."""
        file = self._files.path(place(ref, METADATA))
        if ABANDONED in self._listed(ref):
            raise CorruptFileError(file, "a completed checkpoint", "one that was given up")
        data = self._files.read(place(ref, METADATA))
        if data is None:
            raise CorruptFileError(file, "a completed checkpoint", "no such file")
        metadata = decode_metadata(data, file, ref)
        parts = metadata.head.parts
        subtasks = self._read_parts(ref, parts)
        size = len(data) + sum(part.size_bytes for part in parts)
        return Checkpoint(ref, metadata.head.completed_ms, metadata.coordinator, subtasks, metadata.lease, size)

    def _read_parts(self, ref: CheckpointRef, parts: Sequence[PartFile]) -> tuple[SubtaskSnapshot, ...]:
        if self._readers == 1:
            return tuple(self._read_part(ref, part) for part in parts)
        with ThreadPoolExecutor(self._readers, "read-checkpoint") as pool:
            return tuple(pool.map(lambda part: self._read_part(ref, part), parts))

    def _read_part(self, ref: CheckpointRef, part: PartFile) -> SubtaskSnapshot:
        name = place(ref, part.name)
        data = self._files.read(name)
        if data is None:
            raise CorruptFileError(self._files.path(name), f"{part.size_bytes} bytes", "no such file")
        return decode_part(data, self._files.path(name), ref, part)

    def list(self, service: str) -> tuple[CheckpointInfo, ...]:
        """List all checkpoints of a service."""
        return in_order(look(self._files, ref, listed) for ref, listed in self._scan(service).items())

    def newest(self, service: str, table_id: int) -> CheckpointInfo | None:
        """Find a table's newest checkpoint that completed."""
        return next(iter(reversed(self._happened(self._scan(service), table_id))), None)

    def delete(self, ref: CheckpointRef) -> None:
        """Delete `_metadata`, then the rest."""
        self._files.delete(place(ref, METADATA))
        self._files.delete_folder(folder(ref))

    def sweep(self, incarnation: Incarnation, keep: Collection[CheckpointRef]) -> tuple[CheckpointRef, ...]:
        """Delete what never completed."""
        found = self._scan(incarnation.service)
        spared = {*keep, *_highest(found, incarnation)}
        to_delete = [ref for ref in found if ref not in spared and not start_of(ref).succeeds(incarnation)]
        return tuple(ref for ref in to_delete if self._sweep(ref, found[ref]))

    def _sweep(self, ref: CheckpointRef, listed: Mapping[str, FileEntry]) -> bool:
        if stand(self._files, ref, listed).state is not CheckpointState.UNFINISHED:
            return False
        if ABANDONED not in listed:
            self.abandon(ref)
            if self._completed_meanwhile(ref):
                self._files.delete(place(ref, ABANDONED))
                return False
        self.delete(ref)
        return True

    def _completed_meanwhile(self, ref: CheckpointRef) -> bool:
        listed = {name: entry for name, entry in self._listed(ref).items() if name != ABANDONED}
        return stand(self._files, ref, listed).state is not CheckpointState.UNFINISHED

    def retain(self, incarnation: Incarnation, table_id: int, count: int) -> tuple[CheckpointRef, ...]:
        """Delete a table's older checkpoints."""
        if count < 1:
            message = f"expected 1 or more checkpoints to retain, found {count}"
            raise UsageError(message)
        found = self._scan(incarnation.service)
        if any(start_of(ref).succeeds(incarnation) for ref in found):
            return ()  # a later start has taken over: it decides what is deleted
        happened = self._happened(found, table_id)
        completed = [info.ref for info in happened if info.state is CheckpointState.COMPLETE]
        if len(completed) <= count:
            return ()
        refs = [info.ref for info in happened]
        older = refs[: refs.index(completed[-count])]
        for ref in older:
            self.delete(ref)
        return tuple(older)

    def _happened(
        self, found: Mapping[CheckpointRef, dict[str, FileEntry]], table_id: int
    ) -> tuple[CheckpointInfo, ...]:
        infos = in_order(look(self._files, ref, found[ref]) for ref in found if ref.table_id == table_id)
        return tuple(info for info in infos if info.state is not CheckpointState.UNFINISHED)

    def _scan(self, service: str) -> Mapping[CheckpointRef, dict[str, FileEntry]]:
        return by_checkpoint(self._files.entries(service))

    def _listed(self, ref: CheckpointRef) -> dict[str, FileEntry]:
        return {entry.name.rpartition("/")[2]: entry for entry in self._files.entries(folder(ref))}


def _highest(found: Collection[CheckpointRef], incarnation: Incarnation) -> set[CheckpointRef]:
    """Return the highest number of each epoch of a start: only that checkpoint can be in progress."""
    highest: dict[tuple[int, int], CheckpointRef] = {}
    for ref in found:
        epoch = (ref.table_id, ref.epoch)
        if ref.incarnation == str(incarnation) and (epoch not in highest or highest[epoch].number < ref.number):
            highest[epoch] = ref
    return set(highest.values())
