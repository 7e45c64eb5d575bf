"""The task of a round's writers: the bytes of `Lake.writer_task`."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from lakeward_lake_paimon.table_schema import TableSchema


class WriterTask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a writer needs for one round.

    `schema` is the table's schema file. `token` is in the name of each file of the round. `storage` are the properties
    of the file system. `base_snapshot` is the head that the round began from (0: there was none), and `next_sequence`
    the number after all sequence numbers in it. `bucket_counts` are those of partitions with another one than the
    table has now, by their rows; only where late rows may come.
    """

    location: str
    token: str
    schema: bytes
    target_size_bytes: int
    compression: str
    compression_level: int
    storage: dict[str, str]
    base_snapshot: int
    next_sequence: int
    bucket_counts: dict[bytes, int] = {}

    @property
    def table_schema(self) -> TableSchema:
        """The table's schema."""
        return _schema(self.schema)


_TASKS = msgspec.msgpack.Decoder(WriterTask)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


@lru_cache(maxsize=4)
def _schema(data: bytes) -> TableSchema:
    return TableSchema.from_bytes(data, "the writers' task")


def pack_task(task: WriterTask) -> bytes:
    """Encode a task."""
    return msgspec.msgpack.encode(task)


@lru_cache(maxsize=1)
def unpack_task(data: bytes) -> WriterTask:
    """Decode what `pack_task` gave; many writers of a subtask have the same task."""
    return _TASKS.decode(data)
