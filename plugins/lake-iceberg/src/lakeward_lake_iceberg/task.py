"""The task of a round's writers: the bytes of `Lake.writer_task`."""

from __future__ import annotations

import msgspec
import pyarrow as pa


class BaseFile(msgspec.Struct, frozen=True, array_like=True):
    """A data file that a primary-key round is pinned to.

    `lower` and `upper` bound the first key column, as Iceberg single values (empty: unknown). `deletes` are the
    position-delete files of this file only.
    """

    path: str
    rows: int
    lower: bytes = b""
    upper: bytes = b""
    deletes: tuple[str, ...] = ()


class BaseBucket(msgspec.Struct, frozen=True, array_like=True):
    """The pinned files of one lake partition. `shared_deletes` are delete files of several data files."""

    files: tuple[BaseFile, ...]
    shared_deletes: tuple[str, ...] = ()


class WriterTask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a writer needs for one round.

    `schema` is the lake's schema as Arrow IPC, with Iceberg's field ids. `types` maps the id of each primitive field
    outside lists and maps to its Iceberg type's name. `base` maps a lake partition to its compressed `BaseBucket`.
    """

    location: str
    prefix: str
    schema: bytes
    types: dict[int, str]
    spec_id: int
    target_size_bytes: int
    compression: str
    compression_level: int | None
    storage: dict[str, str]
    key_columns: tuple[str, ...] = ()
    base_snapshot: int | None = None
    base: dict[str, bytes] = {}

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the data files."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def base_of(self, partition: tuple[str | int, ...]) -> BaseBucket:
        """Return the pinned files of one lake partition, none where there are none."""
        packed = self.base.get(partition_name(partition))
        return BaseBucket(()) if packed is None else unpack_base(packed)


def partition_name(partition: tuple[str | int, ...]) -> str:
    """Return the text under which a partition's files are found in a task."""
    return msgspec.json.encode(partition).decode("utf-8")


def pack_base(bucket: BaseBucket) -> bytes:
    """Encode and compress: the paths of a table are much alike."""
    raw = msgspec.msgpack.encode(bucket)
    return len(raw).to_bytes(8, "big") + bytes(pa.Codec("zstd").compress(raw, asbytes=True))


def unpack_base(packed: bytes) -> BaseBucket:
    """Decode what `pack_base` gave."""
    size = int.from_bytes(packed[:8], "big")
    return msgspec.msgpack.decode(pa.Codec("zstd").decompress(packed[8:], size, asbytes=True), type=BaseBucket)


def pack_task(task: WriterTask) -> bytes:
    """Encode a task."""
    return msgspec.msgpack.encode(task)


def unpack_task(data: bytes) -> WriterTask:
    """Decode what `pack_task` gave."""
    return msgspec.msgpack.decode(data, type=WriterTask)
