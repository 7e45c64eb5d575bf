"""The store of checkpoints on any filesystem of `pyarrow.fs`: `<root>/` as in `places`.

`_metadata` is written last: once it is whole, the checkpoint has happened. A file `_abandoned` says that it never
will: whoever writes that one first and then finds no whole `_metadata`, and whoever writes `_metadata` first and then
finds no `_abandoned`, may go on; of the two at the most one does. So a sweep and a completion can never both win.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from lakeward.storage.checkpoint_inspection import check_parts, in_order, look, state_of
from lakeward.storage.checkpoint_layout import (
    ABANDONED,
    METADATA,
    by_checkpoint,
    epoch_folder,
    folder,
    parse_start,
    part_name,
    place,
    start_of,
)
from lakeward.storage.segments import (
    check_segments,
    parse_segment,
    read_segment,
    segment_name,
    segments_of,
    without_checkpoint,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakeward.model.exchange import Segment
    from lakeward.model.identity import Incarnation
    from lakeward.ports import Clock
    from lakeward.storage.small_files import FileEntry, SmallFiles

READERS = 8
"""Parts that are read side by side: on an object store each costs a round trip."""


class CheckpointFiles:
    """See `lakeward.ports.CheckpointStore`, which says what each method does. Blocking; thread-safe."""

    def __init__(self, files: SmallFiles, clock: Clock, *, readers: int = READERS) -> None:
        """Keep the parts; so many `readers` read at once: 1 = one after the other, on the caller's thread."""
        self._readers = readers
        self._files = files
        self._clock = clock

    def write_part(self, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
        """Write one subtask's part durably."""
        data, part = encode_part(ref, snapshot, part_name(snapshot.subtask, snapshot.task_attempt))
        self._files.write(place(ref, part.name), data)
        return part

    def write_segment(self, ref: CheckpointRef, name: str, batches: Iterable[pa.RecordBatch]) -> Segment:
        """Write rows beside a checkpoint."""
        return write_segment(self._files, segment_name(ref, name), batches)

    def read_segment(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Read rows back."""
        return read_segment(self._files, segment)

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
            self._check_written(ref, data, error)
        self._confirm(ref, head)
        return len(data) + sum(part.size_bytes for part in parts)

    def _check_written(self, ref: CheckpointRef, data: bytes, error: StorageError) -> None:
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

    def check_segments(self, checkpoint: Checkpoint) -> None:
        """Look whether the files of rows exist."""
        check_segments(self._files, segments_of(checkpoint))

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

    def delete(self, ref: CheckpointRef, *, keep_segments: bool = False) -> None:
        """Delete `_metadata`, then the rest."""
        counted = state_of(self._files, ref, self._listed(ref)).state is not CheckpointState.UNFINISHED
        # Of one that was aborted they stay as well: the next one of its epoch may refer to them.
        with_segments = counted and not keep_segments
        named = self._named_elsewhere((ref,), self._files.entries(ref.service)) if with_segments else set()
        self._delete(ref)
        if with_segments:
            self._delete_segments(ref.service, ref.table_id, (ref,), named)

    def _delete(self, ref: CheckpointRef) -> None:
        self._files.delete(place(ref, METADATA))
        self._files.delete_folder(folder(ref))

    def delete_rows(self, ref: CheckpointRef) -> None:
        """Delete the segments of a round that is over."""
        entries = self._files.entries(ref.service)
        epoch = epoch_folder(ref)
        segments = {entry.name: found for entry in entries if (found := parse_segment(entry.name)) is not None}
        mine = [name for name, (where, _, number) in segments.items() if where == epoch and number <= ref.number]
        if not mine:
            return
        used = self._segments_of(self._happened(by_checkpoint(entries), ref.table_id))
        if used is None:
            return
        for name in mine:
            if name not in used:
                self._files.delete(name)

    def sweep(self, incarnation: Incarnation, keep: Collection[CheckpointRef]) -> tuple[CheckpointRef, ...]:
        """Delete what never completed."""
        entries = self._files.entries(incarnation.service)
        found = by_checkpoint(entries)
        spared = {*keep, *_highest(found, incarnation)}
        to_delete = [ref for ref in found if ref not in spared and not start_of(ref).succeeds(incarnation)]
        swept = tuple(ref for ref in to_delete if self._sweep(ref, found[ref]))
        left = {ref: listed for ref, listed in found.items() if ref not in swept}
        used: dict[int, set[str] | None] = {}
        for name, table_id in without_checkpoint(entries, left, incarnation):
            if table_id not in used:
                used[table_id] = self._segments_of(self._happened(left, table_id))
            names = used[table_id]
            if names is not None and name not in names:
                self._files.delete(name)
        return swept

    def _sweep(self, ref: CheckpointRef, listed: Mapping[str, FileEntry]) -> bool:
        if state_of(self._files, ref, listed).state is not CheckpointState.UNFINISHED:
            return False
        if ABANDONED not in listed:
            self.abandon(ref)
            if self._completed_meanwhile(ref):
                self._files.delete(place(ref, ABANDONED))
                return False
        self._delete(ref)
        return True

    def _completed_meanwhile(self, ref: CheckpointRef) -> bool:
        listed = {name: entry for name, entry in self._listed(ref).items() if name != ABANDONED}
        return state_of(self._files, ref, listed).state is not CheckpointState.UNFINISHED

    def retain(self, incarnation: Incarnation, table_id: int, count: int) -> tuple[CheckpointRef, ...]:
        """Delete a table's older checkpoints."""
        if count < 1:
            message = f"expected 1 or more checkpoints to retain, found {count}"
            raise UsageError(message)
        entries = self._files.entries(incarnation.service)
        starts = filter(None, {parse_start(entry.name) for entry in entries})
        if any(start.succeeds(incarnation) for start in starts):
            return ()  # a later start has taken over: it decides what is deleted
        happened = self._happened(by_checkpoint(entries), table_id)
        completed = [info.ref for info in happened if info.state is CheckpointState.COMPLETE]
        if len(completed) <= count:
            return ()
        refs = [info.ref for info in happened]
        older = refs[: refs.index(completed[-count])]
        named = self._named_elsewhere(older, entries)
        for ref in older:
            self._delete(ref)
        self._delete_segments(incarnation.service, table_id, older, named)
        return tuple(older)

    def _named_elsewhere(self, refs: Iterable[CheckpointRef], entries: Iterable[FileEntry]) -> set[str]:
        """Return the names of the segments of other epochs that checkpoints of a table refer to.

        Those that a damaged one refers to are not known: they stay until the sweep.
        """
        parsed = (parse_segment(entry.name) for entry in entries)
        epochs = {(table, epoch) for epoch, table, _ in filter(None, parsed)}
        found: set[str] = set()
        for ref in refs:
            mine = epoch_folder(ref)
            if any(table == ref.table_id and epoch != mine for table, epoch in epochs):
                with suppress(CorruptFileError):
                    names = (one.name for one in segments_of(self.load(ref)))
                    found |= {name for name in names if not name.startswith(f"{mine}/")}
        return found

    def _delete_segments(
        self, service: str, table_id: int, deleted: Iterable[CheckpointRef], named: Collection[str]
    ) -> None:
        """Delete the segments of a table that nothing refers to, nor will.

        What refers to a segment is a checkpoint of its epoch, or a later one; all that are complete are read, without
        their rows. A checkpoint that is under way has a higher number than the newest complete one, and refers to
        segments of its own, or to those that the newest one refers to as well, or that are newer. One that is taken
        during a recovery refers to those of the checkpoint that was restored: that is the newest one, or the newest one
        was taken in the same recovery, and refers to what was not written then. `deleted` are checkpoints that had
        completed and were deleted just now. An epoch that had one of them and has none any more is over. `named` are
        segments of other epochs that these referred to.
        """
        entries = self._files.entries(service)
        segments = {entry.name: found for entry in entries if (found := parse_segment(entry.name)) is not None}
        mine = {name: (epoch, number) for name, (epoch, table, number) in segments.items() if table == table_id}
        if not mine:
            return
        happened = self._happened(by_checkpoint(entries), table_id)
        used = self._segments_of(happened)
        if used is None:
            return
        newest: dict[str, int] = {}
        for info in happened:
            epoch = epoch_folder(info.ref)
            newest[epoch] = max(newest.get(epoch, 0), info.ref.number)
        without = {epoch_folder(ref) for ref in deleted} - newest.keys()
        for name, (epoch, number) in mine.items():
            if name not in used and (name in named or epoch in without or number < newest.get(epoch, 0)):
                self._files.delete(name)

    def _segments_of(self, infos: Collection[CheckpointInfo]) -> set[str] | None:
        """Return the names of the segments that checkpoints refer to; None if one of these is damaged.

        A person may want to look at that one.
        """
        if any(info.state is not CheckpointState.COMPLETE for info in infos):
            return None
        found: set[str] = set()
        for info in infos:
            try:
                found |= {segment.name for segment in segments_of(self.load(info.ref))}
            except CorruptFileError:
                if METADATA in self._listed(info.ref):
                    return None
                # Another thread has deleted it since it was listed, `_metadata` first: it refers to nothing any more.
        return found

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
