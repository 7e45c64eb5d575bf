"""Manifests and manifest lists: Avro files with Java's schemas (`ManifestEntry`, `ManifestFileMeta`), version 2 each.

A manifest holds entries: a file that is added to the table, or one that is taken away. Which files a snapshot has is
what is added and not taken away in all its manifests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.errors import CorruptFileError
from lakeward_lake_paimon.avro_file import AvroError, Schema, read_avro, write_avro
from lakeward_lake_paimon.binary_row import EMPTY_ROW, decode_row, encode_row
from lakeward_lake_paimon.stats import Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakeward_lake_paimon.binary_row import Value
    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.known_files import Record
    from lakeward_lake_paimon.snapshots import Snapshot
    from lakeward_lake_paimon.storage import Storage

VERSION = 2
"""Of both kinds of files, since Paimon 0.4."""
FileKey = tuple[bytes, int, int, str]
"""Partition, bucket, level and name of a file."""
ADD, DELETE = 0, 1
FROM_APPEND, FROM_COMPACTION = 0, 1
T = TypeVar("T", bound="Record")


def _optional(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - an Avro type
    return {"type": ["null", kind], "default": None}


def _stats(name: str) -> dict[str, Any]:
    counts = {"type": "array", "items": ["null", "long"]}
    fields = [
        {"name": "_MIN_VALUES", "type": "bytes"},
        {"name": "_MAX_VALUES", "type": "bytes"},
        {"name": "_NULL_COUNTS", **_optional(counts)},
    ]
    return {"type": "record", "name": f"{_RECORD}_{name}", "fields": fields}


_RECORD = "org.apache.paimon.avro.generated.record"
_TEXTS = {"type": "array", "items": "string"}
_FILE = {
    "type": "record",
    "name": f"{_RECORD}__FILE",
    "fields": [
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {"name": "_MIN_KEY", "type": "bytes"},
        {"name": "_MAX_KEY", "type": "bytes"},
        {"name": "_KEY_STATS", "type": _stats("_FILE__KEY_STATS")},
        {"name": "_VALUE_STATS", "type": _stats("_FILE__VALUE_STATS")},
        {"name": "_MIN_SEQUENCE_NUMBER", "type": "long"},
        {"name": "_MAX_SEQUENCE_NUMBER", "type": "long"},
        {"name": "_SCHEMA_ID", "type": "long"},
        {"name": "_LEVEL", "type": "int"},
        {"name": "_EXTRA_FILES", "type": _TEXTS},
        {"name": "_CREATION_TIME", **_optional({"type": "long", "logicalType": "timestamp-millis"})},
        {"name": "_DELETE_ROW_COUNT", **_optional("long")},
        {"name": "_EMBEDDED_FILE_INDEX", **_optional("bytes")},
        {"name": "_FILE_SOURCE", **_optional("int")},
        {"name": "_VALUE_STATS_COLS", **_optional(_TEXTS)},
        {"name": "_EXTERNAL_PATH", **_optional("string")},
        {"name": "_FIRST_ROW_ID", **_optional("long")},
        {"name": "_WRITE_COLS", **_optional(_TEXTS)},
    ],
}
_ENTRY = Schema(
    {
        "type": "record",
        "name": _RECORD,
        "fields": [
            {"name": "_VERSION", "type": "int"},
            {"name": "_KIND", "type": "int"},
            {"name": "_PARTITION", "type": "bytes"},
            {"name": "_BUCKET", "type": "int"},
            {"name": "_TOTAL_BUCKETS", "type": "int"},
            {"name": "_FILE", "type": _FILE},
        ],
    }
)
_META = Schema(
    {
        "type": "record",
        "name": _RECORD,
        "fields": [
            {"name": "_VERSION", "type": "int"},
            {"name": "_FILE_NAME", "type": "string"},
            {"name": "_FILE_SIZE", "type": "long"},
            {"name": "_NUM_ADDED_FILES", "type": "long"},
            {"name": "_NUM_DELETED_FILES", "type": "long"},
            {"name": "_PARTITION_STATS", "type": _stats("_PARTITION_STATS")},
            {"name": "_SCHEMA_ID", "type": "long"},
            {"name": "_MIN_BUCKET", **_optional("int")},
            {"name": "_MAX_BUCKET", **_optional("int")},
            {"name": "_MIN_LEVEL", **_optional("int")},
            {"name": "_MAX_LEVEL", **_optional("int")},
        ],
    }
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, as an entry describes it. `extra` are fields that only other writers set; they are kept."""

    name: str
    size_bytes: int
    rows: int
    schema_id: int
    min_sequence: int
    max_sequence: int
    created_ms: int
    min_key: bytes = EMPTY_ROW
    max_key: bytes = EMPTY_ROW
    key_stats: Stats = field(default_factory=Stats)
    value_stats: Stats = field(default_factory=Stats)
    value_stats_columns: tuple[str, ...] | None = ()
    level: int = 0
    deleted_rows: int | None = 0
    source: int | None = FROM_APPEND
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_avro(self) -> dict[str, Any]:
        """Return the record."""
        columns = self.value_stats_columns
        return {
            "_FILE_NAME": self.name,
            "_FILE_SIZE": self.size_bytes,
            "_ROW_COUNT": self.rows,
            "_MIN_KEY": self.min_key,
            "_MAX_KEY": self.max_key,
            "_KEY_STATS": self.key_stats.to_avro(),
            "_VALUE_STATS": self.value_stats.to_avro(),
            "_MIN_SEQUENCE_NUMBER": self.min_sequence,
            "_MAX_SEQUENCE_NUMBER": self.max_sequence,
            "_SCHEMA_ID": self.schema_id,
            "_LEVEL": self.level,
            "_EXTRA_FILES": [],
            "_CREATION_TIME": self.created_ms,
            "_DELETE_ROW_COUNT": self.deleted_rows,
            "_FILE_SOURCE": self.source,
            "_VALUE_STATS_COLS": None if columns is None else list(columns),
            **self.extra,
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> DataFile:
        """Read the record."""
        columns = record.get("_VALUE_STATS_COLS")
        kept = (
            "_EXTRA_FILES",
            "_CREATION_TIME",
            "_EMBEDDED_FILE_INDEX",
            "_EXTERNAL_PATH",
            "_FIRST_ROW_ID",
            "_WRITE_COLS",
        )
        return cls(
            name=record["_FILE_NAME"],
            size_bytes=record["_FILE_SIZE"],
            rows=record["_ROW_COUNT"],
            schema_id=record["_SCHEMA_ID"],
            min_sequence=record["_MIN_SEQUENCE_NUMBER"],
            max_sequence=record["_MAX_SEQUENCE_NUMBER"],
            created_ms=0,
            min_key=record["_MIN_KEY"],
            max_key=record["_MAX_KEY"],
            key_stats=Stats.from_avro(record["_KEY_STATS"]),
            value_stats=Stats.from_avro(record["_VALUE_STATS"]),
            value_stats_columns=None if columns is None else tuple(columns),
            level=record["_LEVEL"],
            deleted_rows=record.get("_DELETE_ROW_COUNT"),
            source=record.get("_FILE_SOURCE"),
            extra={key: record[key] for key in kept if record.get(key) is not None},
        )

    @property
    def side_files(self) -> tuple[str, ...]:
        """The names of files that belong to it and lie beside it, such as an index."""
        return tuple(self.extra.get("_EXTRA_FILES", ()))


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that a manifest adds to the table, or takes away."""

    kind: int
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFile

    @property
    def key(self) -> FileKey:
        """What tells a file from all others. One that is moved to another level is taken away and added."""
        return self.partition, self.bucket, self.file.level, self.file.name

    @property
    def memory_bytes(self) -> int:
        """About what it takes of memory; most of it are the statistics of a table of many columns."""
        return 1500 + self.file.key_stats.memory_bytes + self.file.value_stats.memory_bytes

    def taken_away(self) -> Entry:
        """Return the entry that takes this file away."""
        return replace(self, kind=DELETE)

    def to_avro(self) -> dict[str, Any]:
        """Return the record."""
        return {
            "_VERSION": VERSION,
            "_KIND": self.kind,
            "_PARTITION": self.partition,
            "_BUCKET": self.bucket,
            "_TOTAL_BUCKETS": self.total_buckets,
            "_FILE": self.file.to_avro(),
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> Entry:
        """Read the record."""
        file = DataFile.from_avro(record["_FILE"])
        places = (record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"])
        return cls(record["_KIND"], *places, file)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, as a list describes it."""

    name: str
    size_bytes: int
    added: int
    deleted: int
    partition_stats: Stats
    schema_id: int
    buckets: tuple[int | None, int | None] = (None, None)
    levels: tuple[int | None, int | None] = (None, None)

    @property
    def memory_bytes(self) -> int:
        """About what it takes of memory."""
        return 700 + self.partition_stats.memory_bytes

    def to_avro(self) -> dict[str, Any]:
        """Return the record."""
        return {
            "_VERSION": VERSION,
            "_FILE_NAME": self.name,
            "_FILE_SIZE": self.size_bytes,
            "_NUM_ADDED_FILES": self.added,
            "_NUM_DELETED_FILES": self.deleted,
            "_PARTITION_STATS": self.partition_stats.to_avro(),
            "_SCHEMA_ID": self.schema_id,
            "_MIN_BUCKET": self.buckets[0],
            "_MAX_BUCKET": self.buckets[1],
            "_MIN_LEVEL": self.levels[0],
            "_MAX_LEVEL": self.levels[1],
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> Manifest:
        """Read the record."""
        return cls(
            name=record["_FILE_NAME"],
            size_bytes=record["_FILE_SIZE"],
            added=record["_NUM_ADDED_FILES"],
            deleted=record["_NUM_DELETED_FILES"],
            partition_stats=Stats.from_avro(record["_PARTITION_STATS"]),
            schema_id=record["_SCHEMA_ID"],
            buckets=(record.get("_MIN_BUCKET"), record.get("_MAX_BUCKET")),
            levels=(record.get("_MIN_LEVEL"), record.get("_MAX_LEVEL")),
        )


class Manifests:
    """The manifest folder of one table."""

    def __init__(self, storage: Storage, location: str) -> None:
        """Read nothing yet; `location` is the table's folder."""
        self._storage = storage
        self.folder = f"{location}/manifest"

    def read_list(self, name: str | None) -> Sequence[Manifest]:
        """Return what a manifest list names; nothing where a snapshot has none.

        Raises:
            CorruptFileError: it is not there, or damaged.
        """
        return () if not name else self._known(name, Manifest.from_avro)

    def manifests_of(self, snapshot: Snapshot) -> tuple[Manifest, ...]:
        """Return the manifests from which a snapshot's files are known."""
        return (*self.read_list(snapshot.base_manifest_list), *self.read_list(snapshot.delta_manifest_list))

    def entries(self, manifests: Iterable[Manifest]) -> Iterator[Entry]:
        """Yield the entries of manifests, in their order.

        Raises:
            CorruptFileError: one is not there, or damaged.
        """
        yield from self.entries_of(manifest.name for manifest in manifests)

    def entries_of(self, names: Iterable[str]) -> Iterator[Entry]:
        """Yield the entries of manifests by their names. Raises as `entries`."""
        for name in names:
            yield from self._known(name, Entry.from_avro)

    def live(self, snapshot: Snapshot | None) -> dict[FileKey, Entry]:
        """Return the files of a snapshot, by their keys."""
        return {} if snapshot is None else merge(self.entries(self.manifests_of(snapshot)))

    def write(self, name: str, entries: Sequence[Entry], schema_id: int, kinds: Sequence[Kind]) -> Manifest:
        """Write a manifest of at least one entry; `kinds` are the types of the partition keys.

        Raises:
            StorageError: the storage refused.
        """
        data = write_avro(_ENTRY, [entry.to_avro() for entry in entries])
        self._write(name, data, Entry.from_avro)
        buckets = [entry.bucket for entry in entries]
        levels = [entry.file.level for entry in entries]
        deleted = sum(entry.kind == DELETE for entry in entries)
        return Manifest(
            name=name,
            size_bytes=len(data),
            added=len(entries) - deleted,
            deleted=deleted,
            partition_stats=partition_stats([entry.partition for entry in entries], kinds),
            schema_id=schema_id,
            buckets=(min(buckets), max(buckets)),
            levels=(min(levels), max(levels)),
        )

    def write_list(self, name: str, manifests: Sequence[Manifest]) -> int:
        """Write a manifest list; return its size in bytes.

        Raises:
            StorageError: the storage refused.
        """
        data = write_avro(_META, [manifest.to_avro() for manifest in manifests])
        self._write(name, data, Manifest.from_avro)
        return len(data)

    def names(self) -> frozenset[str]:
        """Return the names of all lists and manifests that are there.

        Raises:
            StorageError: the storage refused.
        """
        return frozenset(self._storage.names(self.folder))

    def _write(self, name: str, data: bytes, made: Callable[[Mapping[str, Any]], T]) -> None:
        path = f"{self.folder}/{name}"
        self._storage.write(path, data)
        self._storage.known.put(path, tuple(map(made, read_avro(data))))

    def _known(self, name: str, made: Callable[[Mapping[str, Any]], T]) -> Sequence[T]:
        path = f"{self.folder}/{name}"
        found = self._storage.known.get(path)
        if found is None:
            found = tuple(map(made, self._records(path)))
            self._storage.known.put(path, found)
        return found

    def _records(self, path: str) -> list[Mapping[str, Any]]:
        data = self._storage.read(path)
        if data is None:
            raise CorruptFileError(path, "a manifest of Paimon", "nothing")
        try:
            return list(read_avro(data))
        except AvroError as damaged:
            raise CorruptFileError(path, "a manifest of Paimon as Avro", str(damaged)) from damaged


def merge(entries: Iterable[Entry]) -> dict[FileKey, Entry]:
    """Return what is added and not taken away. A file may be taken away before it is added: manifests are merged."""
    added: dict[FileKey, Entry] = {}
    gone: set[FileKey] = set()
    for entry in entries:
        if entry.kind == DELETE:
            if added.pop(entry.key, None) is None:
                gone.add(entry.key)
        elif entry.key in gone:
            gone.discard(entry.key)
        else:
            added[entry.key] = entry
    return added


def partition_stats(partitions: Sequence[bytes], kinds: Sequence[Kind]) -> Stats:
    """Return the bounds of some partitions, by which readers leave manifests out.

    Bytes have none: readers of Paimon before 2.0 take them for signed numbers.
    """
    rows = [decode_row(one, kinds) for one in set(partitions)]
    least: list[Value] = []
    greatest: list[Value] = []
    nulls: list[int | None] = []
    for number, kind in enumerate(kinds):
        values = [row[number] for row in rows if row[number] is not None and not kind.is_bytes]
        least.append(min(values, default=None))
        greatest.append(max(values, default=None))
        nulls.append(sum(decode_row(one, kinds)[number] is None for one in partitions))
    return Stats(encode_row(least, kinds), encode_row(greatest, kinds), tuple(nulls))
