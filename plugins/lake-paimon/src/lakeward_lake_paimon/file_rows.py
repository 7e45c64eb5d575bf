"""Compares what an entry of a manifest says of one data or changelog file with the rows that are in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.model.tables import BUCKET_COLUMN
from lakeward_lake_paimon.kinds import parse_kind
from lakeward_lake_paimon.layout_checks import UNKNOWN, computed, computed_columns
from lakeward_lake_paimon.manifest_checks import bounds, difference
from lakeward_lake_paimon.parquet_batches import read_batches
from lakeward_lake_paimon.stored_values import (
    NoRowError,
    extremes,
    ordered,
    path_text,
    plain,
    plain_path_text,
    read_row,
    same,
    unit_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.ports import FileDifference
    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.snapshot_files import Json
    from lakeward_lake_paimon.storage import Storage

_BATCH_ROWS = 65_536
_KEY, _SEQUENCE, _ROW_KIND = "_KEY_", "_SEQUENCE_NUMBER", "_VALUE_KIND"
_DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
_GONE = pa.array([1, 3], pa.int8())
"""Row kinds that are counted as deletes: from before an update, and deleted."""


class _Column:
    """What a file has in one column, gathered batch by batch."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.nulls = 0
        self.ends: tuple[Any, Any] | None = None

    def add(self, array: pa.Array) -> None:
        self.nulls += array.null_count
        # How bytes are ordered is not the same in all readers of Paimon: nobody says bounds of them.
        if self.kind.is_nested or self.kind.is_bytes:
            return
        found = [*(self.ends or ()), *extremes(array, self.kind)]
        self.ends = (min(found, key=ordered), max(found, key=ordered)) if found else None


class _Keys:
    """The first and the last key of a file, and whether its rows ascend by key, each key once."""

    def __init__(self, names: Sequence[str], kinds: Sequence[Kind]) -> None:
        self.names, self.kinds = names, kinds
        self.ends: tuple[list[Any], list[Any]] | None = None
        self.unordered: int | None = None
        """The place of the first row that is not after the row before it."""
        self._rows = 0
        self._before: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        columns = {name: plain(batch.column(name), kind) for name, kind in zip(self.names, self.kinds, strict=True)}
        keys = pa.table(columns)
        units = [unit_of(batch.column(name)) for name in self.names]
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in self.names])
        for place in (order[0], order[-1]):
            row = zip(self.names, self.kinds, units, strict=True)
            key = [value_of(keys.column(name)[place.as_py()], kind, unit) for name, kind, unit in row]
            first, last = self.ends or (key, key)
            self.ends = min(first, key), max(last, key)
        self._look(keys)

    def _look(self, keys: pa.Table) -> None:
        joined = keys if self._before is None else pa.concat_tables([self._before, keys])
        if self.unordered is None and joined.num_rows > 1:
            before, after = joined.slice(0, joined.num_rows - 1), joined.slice(1)
            ascends = pc.less(before.column(self.names[-1]), after.column(self.names[-1]))
            for name in reversed(self.names[:-1]):
                one, other = before.column(name), after.column(name)
                ascends = pc.or_(pc.less(one, other), pc.and_(pc.equal(one, other), ascends))
            place = pc.index(ascends.combine_chunks(), False).as_py()
            self.unordered = None if place < 0 else self._rows - (joined.num_rows - keys.num_rows) + place + 1
        self._rows += keys.num_rows
        self._before = keys.slice(keys.num_rows - 1)


class FileRows:
    """Compares one file."""

    def __init__(self, entry: Json, then: Json, bucket: int | None, *, changelog: bool) -> None:
        """Read nothing yet.

        `then` is the schema that the file was written with; `bucket` what `__bucket` has to be where rows have it.
        """
        self._entry = entry
        self._file = entry["_FILE"]
        self._then = then
        self._changelog = changelog
        kinds = {one["name"]: parse_kind(one["type"]) for one in then["fields"]}
        self._columns = {name: _Column(kind) for name, kind in kinds.items()}
        self._partition = {name: kinds[name] for name in then["partitionKeys"]}
        keys = [name for name in then["primaryKeys"] if name not in self._partition]
        self._keys = _Keys([f"{_KEY}{name}" for name in keys], [kinds[name] for name in keys]) if keys else None
        self._key_columns = {name: _Column(kinds[name]) for name in keys}
        self._computed = computed_columns(then)
        self._bucket = bucket
        self._rows = self._deleted = 0
        self._sequences: list[int] = []

    def differences(self, storage: Storage, path: str) -> Iterator[FileDifference]:
        """Read the file, and yield what is said wrongly of it."""
        kinds = {f"{prefix}{name}": one.kind for name, one in self._columns.items() for prefix in ("", _KEY)}
        with storage.open(path) as source:
            size = source.size()
            if size != self._file["_FILE_SIZE"]:
                yield difference(path, "size", size, self._file["_FILE_SIZE"])
            there = set(pq.read_schema(source).names)
            wanted = self._file.get("_WRITE_COLS") or list(self._columns)
            if missing := [name for name in wanted if name not in there]:
                found = f"{self._then['id']}, which has {', '.join(missing)}"
                yield difference(path, "schema", f"one with columns of {', '.join(sorted(there))}", found)
                return
            source.seek(0)
            told: set[str] = set()
            for batch in read_batches(source, kinds, _BATCH_ROWS):
                if batch.num_rows:
                    self._add(batch)
                    for what, expected, said in self._constants(path, batch):
                        if what not in told:
                            told.add(what)
                            yield difference(path, what, expected, said)
        yield from self._counts(path)
        yield from self._ends(path)
        yield from self._stats(path)

    def _add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        for name in self._columns.keys() & set(batch.schema.names):
            self._columns[name].add(batch.column(name))
        if self._keys is None:
            return
        self._keys.add(batch)
        for name, column in self._key_columns.items():
            column.add(batch.column(f"{_KEY}{name}"))
        both = pc.min_max(batch.column(_SEQUENCE))
        found = [*self._sequences, both["min"].as_py(), both["max"].as_py()]
        self._sequences = [min(found), max(found)]
        self._deleted += pc.is_in(batch.column(_ROW_KIND), value_set=_GONE).true_count

    def _constants(self, path: str, batch: pa.RecordBatch) -> Iterator[tuple[str, Any, Any]]:
        """Yield what is not that of all rows: the partition, as the path has it too, and the bucket if rows say it."""
        folders = [] if self._file.get("_EXTERNAL_PATH") else path.split("/")[-2 - len(self._partition) : -2]
        said = _row(self._entry["_PARTITION"], list(self._partition.values()))
        if said is None:
            yield "partition", f"a row of {len(self._partition)} columns", "another row"
            return
        for place, (name, kind) in enumerate(self._partition.items()):
            column = batch.column(name)
            for one in pc.unique(column):
                found = value_of(plain(pa.array([one], column.type), kind)[0], kind, unit_of(column))
                if not same(found, said[place]):
                    yield f"partition key {name}", found, said[place]
                    break
                text = path_text(one, kind)
                folder = f"{name}={text if text.strip() else self._no_partition}"
                if folders and plain_path_text(unquote(folders[place]), kind) != folder:
                    yield f"folder of partition key {name}", folder, folders[place]
                    break
            if name in self._computed:
                yield from self._computed_partition(name, batch, said[place])
        if self._bucket is not None and BUCKET_COLUMN in batch.schema.names:
            for one in pc.unique(batch.column(BUCKET_COLUMN)).to_pylist():
                if one is not None and one != self._bucket:
                    yield "bucket", one, self._bucket
                    break

    def _computed_partition(self, name: str, batch: pa.RecordBatch, said: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - of any type
        """Compare a partition key with what it is computed of."""
        field = self._computed[name]
        column, kind = batch.column(field.column), self._columns[field.column].kind
        for one in pc.unique(plain(column, kind)):
            expected = computed(field, value_of(one, kind, unit_of(column)), kind)
            if expected is not UNKNOWN and not same(expected, said):
                yield f"partition key {name}", expected, said
                break

    @property
    def _no_partition(self) -> str:
        return str(self._then["options"].get("partition.default-name", _DEFAULT_PARTITION))

    def _counts(self, path: str) -> Iterator[FileDifference]:
        said = self._file
        if said["_ROW_COUNT"] != self._rows:
            yield difference(path, "row count", self._rows, said["_ROW_COUNT"])
        if self._keys is not None and said.get("_DELETE_ROW_COUNT") not in {None, self._deleted}:
            yield difference(path, "number of deletes", self._deleted, said["_DELETE_ROW_COUNT"])
        least, greatest = said["_MIN_SEQUENCE_NUMBER"], said["_MAX_SEQUENCE_NUMBER"]
        if self._keys is None and greatest - least + 1 < said["_ROW_COUNT"]:
            # Rows of a log table do not have their numbers: those of a file are one after the other.
            yield difference(path, "sequence numbers", f"one for each of {self._rows} rows", f"{least} to {greatest}")
        if self._sequences:
            yield from bounds(path, "sequence numbers", (self._sequences[0], self._sequences[1]), (least, greatest))

    def _ends(self, path: str) -> Iterator[FileDifference]:
        """Compare the first and the last key."""
        keys = self._keys
        if keys is None or keys.ends is None:
            return
        if keys.unordered is not None and not self._changelog:
            found = f"row {keys.unordered} is not after row {keys.unordered - 1}"
            yield difference(path, "order", "rows that ascend by key, each key once", found)
        said = [_row(self._file[name], keys.kinds) for name in ("_MIN_KEY", "_MAX_KEY")]
        if said[0] is None or said[1] is None:
            yield difference(path, "first and last key", f"rows of {len(keys.kinds)} columns", "other rows")
            return
        yield from bounds(path, "keys", keys.ends, (said[0], said[1]), lambda key: [ordered(one) for one in key])

    def _stats(self, path: str) -> Iterator[FileDifference]:
        chosen = self._file.get("_VALUE_STATS_COLS")
        names = list(self._file.get("_WRITE_COLS") or self._columns) if chosen is None else chosen
        if unknown := [name for name in names if name not in self._columns]:
            yield difference(path, "statistics", f"of columns {', '.join(self._columns)}", f"of {', '.join(unknown)}")
            return
        columns = {f"column {name}": self._columns[name] for name in names}
        yield from self._wrong_stats(path, self._file["_VALUE_STATS"], columns)
        keys = {f"column {_KEY}{name}": column for name, column in self._key_columns.items()}
        yield from self._wrong_stats(path, self._file["_KEY_STATS"], keys)

    def _wrong_stats(self, path: str, stats: Json, columns: dict[str, _Column]) -> Iterator[FileDifference]:
        kinds = [column.kind for column in columns.values()]
        least, greatest = _row(stats["_MIN_VALUES"], kinds), _row(stats["_MAX_VALUES"], kinds)
        nulls = stats["_NULL_COUNTS"] or [None] * len(kinds)
        if least is None or greatest is None or len(nulls) != len(kinds):
            yield difference(path, "statistics", f"of {len(kinds)} columns", "other rows")
            return
        for place, (name, column) in enumerate(columns.items()):
            yield from bounds(path, name, column.ends, (least[place], greatest[place]))
            if nulls[place] is not None and nulls[place] != column.nulls:
                yield difference(path, f"null count of {name}", column.nulls, nulls[place])


def _row(data: bytes, kinds: Sequence[Kind]) -> list[Any] | None:
    """Return the values of a row, None where the bytes are no row of so many columns."""
    try:
        return read_row(data, kinds)
    except NoRowError:
        return None
