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


class MergeTask(msgspec.Struct, frozen=True, kw_only=True, tag="data"):
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


class MergeResult(msgspec.Struct, frozen=True, tag="data"):
    """The files that were written, and for each source which positions were left out, packed, and how many rows not."""

    files: tuple[LakeFile, ...]
    gone: tuple[bytes, ...]
    live: tuple[int, ...]


class DeletesGroup(msgspec.Struct, frozen=True):
    """Files of position deletes that become one: all that they say of `targets`, which are data files."""

    files: tuple[str, ...]
    targets: tuple[str, ...]


class DeletesTask(msgspec.Struct, frozen=True, kw_only=True, tag="deletes"):
    """Merges delete files of one partition; `writer` and `partition` as of `MergeTask`."""

    writer: WriterTask
    partition: tuple[Value, ...]
    groups: tuple[DeletesGroup, ...]


class DeletesResult(msgspec.Struct, frozen=True, tag="deletes"):
    """The file of each group; None where nothing is deleted of its targets."""

    files: tuple[LakeFile | None, ...]


Task = MergeTask | DeletesTask
Result = MergeResult | DeletesResult
_TASKS: msgspec.msgpack.Decoder[Task] = msgspec.msgpack.Decoder(Task)
_RESULTS: msgspec.msgpack.Decoder[Result] = msgspec.msgpack.Decoder(Result)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_merge(task: Task | Result) -> bytes:
    """Encode a task, or a result."""
    return msgspec.msgpack.encode(task)


def unpack_merge(data: bytes) -> Task:
    """Decode a task."""
    return _TASKS.decode(data)


def unpack_result(data: bytes) -> Result:
    """Decode a result."""
    return _RESULTS.decode(data)
