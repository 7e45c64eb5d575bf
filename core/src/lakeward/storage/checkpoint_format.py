"""The bytes of a checkpoint's files: `_metadata` and the subtasks' parts, each a record (see `records`).

`_metadata` version 1 has two parts: the list of its files, and the coordinator's snapshot. Version 2 adds the lease.
Version 3, of a round that gathers buckets, has the lease too, or nil: an earlier release would divide rows otherwise.
A subtask's file has two parts: the checkpoint that it belongs to, and its snapshot. Version 2 names segments of which
the checkpoint holds a share; one that does not is written as version 1, which has the same form.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from lakeward.errors import CorruptFileError, UsageError
from lakeward.model.checkpoints import CheckpointRef, LeaseCopy, PartFile, RoundSnapshot, SubtaskSnapshot
from lakeward.model.tables import TablePath
from lakeward.storage.records import pack, unpack

WITHOUT_LEASE = 1
WITH_LEASE = 2
GATHERED = 3
PART = 1
PART_WITH_SHARES = 2
PART_VERSIONS = {PART: 2, PART_WITH_SHARES: 2}
METADATA_VERSIONS = {WITHOUT_LEASE: 2, WITH_LEASE: 3, GATHERED: 3}
"""The number of parts of each version that this release reads, both."""
_NIL = msgspec.msgpack.encode(None)
T = TypeVar("T")


class Head(msgspec.Struct, frozen=True):
    """The files of a checkpoint. `ref` is the checkpoint, so that a file in a wrong folder is detected."""

    ref: CheckpointRef
    path: TablePath
    completed_ms: int
    parts: tuple[PartFile, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The file `_metadata`."""

    head: Head
    coordinator: RoundSnapshot
    lease: LeaseCopy | None


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode `_metadata`, in the oldest version that can hold it."""
    head = msgspec.msgpack.encode(metadata.head)
    coordinator = msgspec.msgpack.encode(metadata.coordinator)
    if metadata.lease is None and not metadata.coordinator.gathered:
        return pack(WITHOUT_LEASE, (head, coordinator))
    version = GATHERED if metadata.coordinator.gathered else WITH_LEASE
    return pack(version, (head, coordinator, msgspec.msgpack.encode(metadata.lease)))


def decode_metadata(data: bytes, file: str, ref: CheckpointRef) -> Metadata:
    """Decode the bytes of `_metadata`, in the folder of checkpoint `ref`; `file` names it in errors.

    Raises:
        CorruptFileError: damaged, of an unknown version, or another checkpoint's; names the file.
    """
    version, parts = unpack(data, file, METADATA_VERSIONS)
    head = _decode_head(parts[0], file, ref)
    coordinator = _decode(parts[1], RoundSnapshot, file)
    try:
        round_id = coordinator.round_id
    except UsageError as error:
        raise CorruptFileError(file, "a round's snapshot", str(error)) from error
    if (coordinator.incarnation, coordinator.table_id, coordinator.epoch) != (ref.incarnation, ref.table_id, ref.epoch):
        raise CorruptFileError(file, f"a snapshot of a round of {ref}", str(round_id))
    if coordinator.gathered is not (version == GATHERED):
        raise CorruptFileError(file, f"version {GATHERED} of a round that gathers buckets alone", str(version))
    lease = None if version == WITHOUT_LEASE or parts[2] == _NIL else _decode(parts[2], LeaseCopy, file)
    return Metadata(head, coordinator, lease)


def decode_head(data: bytes, file: str, ref: CheckpointRef) -> Head:
    """Decode only the part of `_metadata` that a list of checkpoints needs. Like `decode_metadata` otherwise."""
    return _decode_head(unpack(data, file, METADATA_VERSIONS)[1][0], file, ref)


def encode_part(ref: CheckpointRef, snapshot: SubtaskSnapshot, name: str) -> tuple[bytes, PartFile]:
    """Encode a subtask's part of a checkpoint; return the bytes, and their entry in `_metadata`.

    It is encoded in the oldest version that can hold it: an older release would restore whole segments. `name` is the
    file's own.
    """
    parts = (msgspec.msgpack.encode(ref), msgspec.msgpack.encode(snapshot))
    shares = any(segment.kept is not None for segment in snapshot.segments())
    data = pack(PART_WITH_SHARES if shares else PART, parts)
    return data, PartFile(snapshot.subtask, snapshot.task_attempt, name, len(data), zlib.crc32(data))


def decode_part(data: bytes, file: str, ref: CheckpointRef, part: PartFile) -> SubtaskSnapshot:
    """Decode the bytes of a subtask's part, in the folder of checkpoint `ref`; `file` names it in errors.

    `part` is its entry in `_metadata`.

    Raises:
        CorruptFileError: not the bytes that were written, of an unknown version, or another's; names the file.
    """
    _, parts = unpack(data, file, PART_VERSIONS)
    if zlib.crc32(data) != part.crc:
        raise CorruptFileError(file, f"checksum {part.crc:08x}, as `_metadata` says", f"{zlib.crc32(data):08x}")
    belongs = _decode(parts[0], CheckpointRef, file)
    if belongs != ref:
        raise CorruptFileError(file, f"a part of {ref}", str(belongs))
    snapshot = _decode(parts[1], SubtaskSnapshot, file)
    if (snapshot.subtask, snapshot.task_attempt) != (part.subtask, part.task_attempt):
        found = f"{snapshot.subtask}, {snapshot.task_attempt}"
        raise CorruptFileError(file, f"subtask and attempt {part.subtask}, {part.task_attempt}", found)
    return snapshot


def _decode_head(data: bytes, file: str, ref: CheckpointRef) -> Head:
    head = _decode(data, Head, file)
    if head.ref != ref:
        raise CorruptFileError(file, f"`_metadata` of {ref}", str(head.ref))
    return head


_DECODERS: Mapping[type, msgspec.msgpack.Decoder[Any]] = MappingProxyType(
    {kind: msgspec.msgpack.Decoder(kind) for kind in (Head, RoundSnapshot, SubtaskSnapshot, CheckpointRef, LeaseCopy)}
)
"""Made while this is imported: threads that use a type for the first time at once would crash the process."""


def _decode(data: bytes, kind: type[T], file: str) -> T:
    try:
        found: T = _DECODERS[kind].decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(file, f"a stored {kind.__name__}", str(error)) from error
    return found
