"""Finds a checkpoint's state from a listing and its `_metadata`, and orders checkpoints by age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import CorruptFileError
from lakeward.model.checkpoints import CheckpointInfo, CheckpointRef, CheckpointState
from lakeward.storage.checkpoint_format import Head, decode_head
from lakeward.storage.checkpoint_layout import ABANDONED, METADATA, place, start_of
from lakeward.storage.records import is_torn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.storage.small_files import FileEntry, SmallFiles


@dataclass(frozen=True, slots=True)
class InspectedCheckpoint:
    """A checkpoint's state. `head` is the first part of `_metadata`, None if it cannot be read."""

    state: CheckpointState
    message: str
    head: Head | None = None


def look(files: SmallFiles, ref: CheckpointRef, listed: Mapping[str, FileEntry]) -> CheckpointInfo:
    """Inspect one checkpoint; `listed` has its files, by file name.

    Raises:
        StorageError: `_metadata` cannot be read, and it is not known why.
    """
    stored = state_of(files, ref, listed)
    head = stored.head
    return CheckpointInfo(
        ref=ref,
        state=stored.state,
        message=stored.message,
        written_ms=max((entry.written_ms for entry in listed.values()), default=0),
        size_bytes=sum(entry.size_bytes for entry in listed.values()),
        completed_ms=None if head is None else head.completed_ms,
        path=None if head is None else head.path,
        parts=sum(name.startswith("part-") for name in listed) if head is None else len(head.parts),
    )


def state_of(files: SmallFiles, ref: CheckpointRef, listed: Mapping[str, FileEntry]) -> InspectedCheckpoint:
    """Return whether a checkpoint counts; arguments and errors as `look`."""
    file = files.path(place(ref, METADATA))
    if ABANDONED in listed:
        return InspectedCheckpoint(CheckpointState.UNFINISHED, f"{files.path(place(ref, ABANDONED))}: it was given up")
    data = files.read(place(ref, METADATA)) if METADATA in listed else None
    if data is None:
        return InspectedCheckpoint(
            CheckpointState.UNFINISHED, f"{file}: not there; it is under way, or never completed"
        )
    try:
        head = decode_head(data, file, ref)
    except CorruptFileError as error:
        state = CheckpointState.UNFINISHED if is_torn(data) else CheckpointState.DAMAGED
        return InspectedCheckpoint(state, str(error))
    try:
        check_parts(files, ref, head, listed)
    except CorruptFileError as error:
        return InspectedCheckpoint(CheckpointState.DAMAGED, str(error), head)
    return InspectedCheckpoint(CheckpointState.COMPLETE, "", head)


def check_parts(files: SmallFiles, ref: CheckpointRef, head: Head, listed: Mapping[str, FileEntry]) -> None:
    """Check that each part exists and has its size.

    Raises:
        CorruptFileError: one does not; names it.
    """
    for part in head.parts:
        entry = listed.get(part.name)
        if entry is None or entry.size_bytes != part.size_bytes:
            found = "no such file" if entry is None else f"{entry.size_bytes} bytes"
            raise CorruptFileError(files.path(place(ref, part.name)), f"{part.size_bytes} bytes", found)


def in_order(infos: Iterable[CheckpointInfo]) -> tuple[CheckpointInfo, ...]:
    """Order checkpoints: by table, the newest of a table last.

    A later start is newer, then a later epoch's newest (by its time: a source may count epochs from 0 again), then
    the higher number, whatever the clock said.
    """
    newest: dict[tuple[str, str, int, int], CheckpointInfo] = {}
    everything = list(infos)
    for info in everything:
        epoch = _epoch(info.ref)
        if epoch not in newest or newest[epoch].ref.number < info.ref.number:
            newest[epoch] = info

    def key(info: CheckpointInfo) -> tuple[int, int, str, int, int, int]:
        start, ref = start_of(info.ref), info.ref
        when = _when(newest[_epoch(ref)])
        return (ref.table_id, start.started_ms, start.nonce, when, ref.epoch, ref.number)

    return tuple(sorted(everything, key=key))


def _epoch(ref: CheckpointRef) -> tuple[str, str, int, int]:
    return ref.service, ref.incarnation, ref.table_id, ref.epoch


def _when(info: CheckpointInfo) -> int:
    return info.written_ms if info.completed_ms is None else info.completed_ms
