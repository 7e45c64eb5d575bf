"""What the task of a compaction is sent, and what it returns: `detail` of a task of upkeep, and of its result."""

from __future__ import annotations

from typing import Any

import msgspec

from lakeward_lake_paimon.manifests import DataFile
from lakeward_lake_paimon.table_schema import TableSchema


class MergeFile(msgspec.Struct, frozen=True):
    """One file that is merged: where it is, and what a manifest knows it by."""

    path: str
    schema_id: int
    level: int
    name: str


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket's merge.

    `schemas` are the schema files of the table and of all that is merged, the table's first. `runs` has the files of
    each run in the order of their keys. `token` is part of the names of all files that are written. `storage` are the
    properties of the file system.
    """

    location: str
    schemas: tuple[bytes, ...]
    partition: bytes
    bucket: int
    total_buckets: int
    runs: tuple[tuple[MergeFile, ...], ...]
    level: int
    drops_deletes: bool
    token: str
    target_size_bytes: int
    compression: str
    compression_level: int
    storage: dict[str, str]

    @property
    def table_schemas(self) -> list[TableSchema]:
        """The schemas, decoded."""
        return [TableSchema.from_bytes(one, "the task of a compaction") for one in self.schemas]

    @property
    def files(self) -> list[MergeFile]:
        """All files that are merged."""
        return [file for run in self.runs for file in run]


_TASKS = msgspec.msgpack.Decoder(MergeTask)
_RESULTS = msgspec.msgpack.Decoder(list[dict[str, Any]])
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_task(task: MergeTask) -> bytes:
    """Encode a task."""
    return msgspec.msgpack.encode(task)


def unpack_task(data: bytes) -> MergeTask:
    """Decode what `pack_task` gave."""
    return _TASKS.decode(data)


def pack_files(files: list[DataFile]) -> bytes:
    """Encode new files as manifests have them."""
    return msgspec.msgpack.encode([file.to_avro() for file in files])


def unpack_files(data: bytes) -> list[DataFile]:
    """Decode what `pack_files` gave."""
    return [DataFile.from_avro(record) for record in _RESULTS.decode(data)]
