"""What is known of a checkpoint from a listing and its `_metadata`, and which of several is newer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.checkpoint.checkpoint_files import Head, decode_head
from lakeward.checkpoint.places import ABANDONED, METADATA, place, start_of
from lakeward.checkpoint.records import is_torn
from lakeward.errors import CorruptFileError
from lakeward.model.checkpoints import CheckpointInfo, CheckpointRef, CheckpointState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.checkpoint.store import Entry, SmallFiles


@dataclass(frozen=True, slots=True)
class Standing:
    """How a checkpoint stands. `head` is what `_metadata` says, None where it cannot be read."""

    state: CheckpointState
    sentence: str
    head: Head | None = None


def look(files: SmallFiles, ref: CheckpointRef, listed: Mapping[str, Entry]) -> CheckpointInfo:
    """Look at one checkpoint.

    Args:
        files: where it lies.
        ref: which.
        listed: its files by their own names.

    Returns:
        What is known of it.

    Raises:
        StorageError: `_metadata` cannot be read, and it is not known why.
    """
    standing = stand(files, ref, listed)
    head = standing.head
    return CheckpointInfo(
        ref=ref,
        state=standing.state,
        sentence=standing.sentence,
        written_ms=max((entry.written_ms for entry in listed.values()), default=0),
        size_bytes=sum(entry.size_bytes for entry in listed.values()),
        completed_ms=None if head is None else head.completed_ms,
        path=None if head is None else head.path,
        parts=sum(name.startswith("part-") for name in listed) if head is None else len(head.parts),
    )


def stand(files: SmallFiles, ref: CheckpointRef, listed: Mapping[str, Entry]) -> Standing:
    """Say whether a checkpoint counts; arguments and errors as `look`."""
    file = files.path(place(ref, METADATA))
    if ABANDONED in listed:
        return Standing(CheckpointState.UNFINISHED, f"{files.path(place(ref, ABANDONED))}: it was given up")
    data = files.read(place(ref, METADATA)) if METADATA in listed else None
    if data is None:
        return Standing(CheckpointState.UNFINISHED, f"{file}: not there; it is under way, or never completed")
    try:
        head = decode_head(data, file, ref)
    except CorruptFileError as error:
        state = CheckpointState.UNFINISHED if is_torn(data) else CheckpointState.DAMAGED
        return Standing(state, str(error))
    try:
        check_parts(files, ref, head, listed)
    except CorruptFileError as error:
        return Standing(CheckpointState.DAMAGED, str(error), head)
    return Standing(CheckpointState.COMPLETE, "", head)


def check_parts(files: SmallFiles, ref: CheckpointRef, head: Head, listed: Mapping[str, Entry]) -> None:
    """Make sure that each part is there, in its size.

    Raises:
        CorruptFileError: one is not; names it.
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
    newest: dict[CheckpointRef, CheckpointInfo] = {}
    everything = list(infos)
    for info in everything:
        epoch = replace(info.ref, number=0)
        if epoch not in newest or newest[epoch].ref.number < info.ref.number:
            newest[epoch] = info

    def key(info: CheckpointInfo) -> tuple[int, int, str, int, int, int]:
        start, ref = start_of(info.ref), info.ref
        when = _when(newest[replace(ref, number=0)])
        return (ref.table_id, start.started_ms, start.nonce, when, ref.epoch, ref.number)

    return tuple(sorted(everything, key=key))


def _when(info: CheckpointInfo) -> int:
    return info.written_ms if info.completed_ms is None else info.completed_ms
