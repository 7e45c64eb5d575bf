"""The task of a round's writers: the bytes of `Lake.writer_task`."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import pyarrow as pa

from lakeward_lake_iceberg.detail import DeleteFile, Value


class BaseFile(msgspec.Struct, frozen=True, array_like=True):
    """A data file that a primary-key round is pinned to.

    `lower` and `upper` bound the first key column, as Iceberg single values (empty: unknown). `deletes` are those of
    this file only.
    """

    path: str
    rows: int
    lower: bytes = b""
    upper: bytes = b""
    deletes: tuple[DeleteFile, ...] = ()


class BaseBucket(msgspec.Struct, frozen=True, array_like=True):
    """The pinned files of one lake partition. `shared_deletes` are delete files of several data files."""

    files: tuple[BaseFile, ...]
    shared_deletes: tuple[str, ...] = ()


class LayoutField(msgspec.Struct, frozen=True, array_like=True):
    """One field of a partitioning of the lake's own: `transform` of `column`, whose Iceberg type is `kind`.

    The transform `void` gives null for each row.
    """

    name: str
    transform: str
    argument: int | None
    column: str
    kind: str


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Which values of a layout field a data file may hold: from `lower` to `upper`, and null if `nulls`."""

    lower: Value
    upper: Value
    nulls: bool

    def may_hold(self, value: Value) -> bool:
        """Return False if no row can have that value."""
        if value is None:
            return self.nulls
        return bool(self.lower <= value <= self.upper)


class OlderFile(msgspec.Struct, frozen=True, array_like=True):
    """A data file of an older partition spec, which rows of any partition of the present one may lie in.

    `ranges` are those of the present layout's fields, None where nothing is known.
    """

    file: BaseFile
    spec_id: int
    partition: tuple[Value, ...]
    ranges: tuple[Range | None, ...] = ()
    shared_deletes: tuple[str, ...] = ()

    def may_hold(self, partition: tuple[Value, ...]) -> bool:
        """Return False if no row of the file is in that partition of the present layout."""
        pairs = zip(self.ranges, partition, strict=False)
        return all(known is None or known.may_hold(value) for known, value in pairs)


class WriterTask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a writer needs for one round.

    `schema` is the lake's schema as Arrow IPC, with Iceberg's field ids. `types` maps the id of each primitive field
    outside lists and maps to its Iceberg type's name. `base` maps a lake partition to its compressed `BaseBucket`.
    `layout` is the partitioning where it is the lake's own, and `older` the compressed files of older specs.
    `vectors` says whether deletes are written as deletion vectors (format version 3), one for each data file.
    `by_bucket` says whether the source's own layout divides rows by bucket.
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
    layout: tuple[LayoutField, ...] = ()
    older: bytes = b""
    by_bucket: bool = True
    vectors: bool = False

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the data files."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def base_of(self, name: str) -> BaseBucket:
        """Return the pinned files of one lake partition by its name in the task, none where there are none."""
        packed = self.base.get(name)
        return BaseBucket(()) if packed is None else _BASES.decode(_decompress(packed))

    def older_files(self) -> tuple[OlderFile, ...]:
        """Return the pinned files of older specs."""
        return _unpack_older(self.older) if self.older else ()


_BASES = msgspec.msgpack.Decoder(BaseBucket)
_OLDER = msgspec.msgpack.Decoder(tuple[OlderFile, ...])
_TASKS = msgspec.msgpack.Decoder(WriterTask)
"""Made while this is imported, all three: threads that learn a type at the same time crash the process."""


def pack_base(files: BaseBucket | tuple[OlderFile, ...]) -> bytes:
    """Encode and compress: the paths of a table are much alike."""
    raw = msgspec.msgpack.encode(files)
    return len(raw).to_bytes(8, "big") + bytes(pa.Codec("zstd").compress(raw, asbytes=True))


@lru_cache(maxsize=1)
def _unpack_older(packed: bytes) -> tuple[OlderFile, ...]:
    """Decode the files of older specs: once for all writers of a subtask."""
    return _OLDER.decode(_decompress(packed))


def _decompress(packed: bytes) -> bytes:
    size = int.from_bytes(packed[:8], "big")
    return bytes(pa.Codec("zstd").decompress(packed[8:], size, asbytes=True))


def pack_task(task: WriterTask) -> bytes:
    """Encode a task."""
    return msgspec.msgpack.encode(task)


@lru_cache(maxsize=1)
def unpack_task(data: bytes) -> WriterTask:
    """Decode what `pack_task` gave; many writers of a subtask have the same task."""
    return _TASKS.decode(data)
