"""What the task of a compaction is sent, and what it returns: `detail` of a task of upkeep, and of its result."""

from __future__ import annotations

import msgspec

from lakeward.model.results import LakeFile
from lakeward_lake_iceberg.detail import DeleteFile, Value
from lakeward_lake_iceberg.task import WriterTask


class Source(msgspec.Struct, frozen=True):
    """A data file that is merged. `deletes` are those that may be about it.

    `first_row_id` is the id of its first row, None where it has none, and `sequence` its data sequence number.
    """

    path: str
    deletes: tuple[DeleteFile, ...]
    first_row_id: int | None = None
    sequence: int = 0


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """One merge: files of one partition, in the order in which their rows are written.

    `writer` says how and where files are written; its spec is the partition's. `constants` has, by field id, what the
    partition says of columns that a file may lack. `sequence` is the data sequence number of what is written.
    With `row_ids` the schema has the columns of `with_row_ids`, in which rows keep their ids.
    """

    writer: WriterTask
    partition: tuple[Value, ...]
    constants: dict[int, Value]
    sequence: int
    sources: tuple[Source, ...]
    row_ids: bool = False


class MergeResult(msgspec.Struct, frozen=True):
    """The files that were written, and for each source which positions were left out, packed, and how many rows not."""

    files: tuple[LakeFile, ...]
    gone: tuple[bytes, ...]
    live: tuple[int, ...]


_TASKS = msgspec.msgpack.Decoder(MergeTask)
_RESULTS = msgspec.msgpack.Decoder(MergeResult)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_merge(task: MergeTask | MergeResult) -> bytes:
    """Encode a task, or a result."""
    return msgspec.msgpack.encode(task)


def unpack_merge(data: bytes) -> MergeTask:
    """Decode a task."""
    return _TASKS.decode(data)


def unpack_result(data: bytes) -> MergeResult:
    """Decode a result."""
    return _RESULTS.decode(data)
