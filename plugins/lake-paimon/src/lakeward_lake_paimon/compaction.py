"""Merges the files of a key table's buckets, so that a reader has few to merge: as Paimon's universal compaction.

A bucket's files are sorted runs: each file of level 0, and the files of each other level together. Rows of a lower
level are newer. All of level 0 is merged, and then level by level what is not much larger than what is merged already:
so a large run is rewritten only after a large part of it has been written anew. Without an older run, deletes go.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.local_files import storage_errors
from lakeward_lake_paimon.binary_row import decode_row
from lakeward_lake_paimon.column_stats import ColumnStats
from lakeward_lake_paimon.datafile import ParquetFile, parquet_options
from lakeward_lake_paimon.files import paths_of
from lakeward_lake_paimon.key_rows import DELETE, KEY_PREFIX, SEQUENCE, UPDATE_BEFORE, VALUE_KIND, KeyEnds, KeyLayout
from lakeward_lake_paimon.manifests import ADD, FROM_COMPACTION, DataFile, Entry
from lakeward_lake_paimon.merging import merge_runs
from lakeward_lake_paimon.parquet_batches import read_batches
from lakeward_lake_paimon.partitions import partition_folder
from lakeward_lake_paimon.table_schema import read_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.table import Table
    from lakeward_lake_paimon.table_schema import TableSchema

TRIGGER = 5
"""Sorted runs of a bucket from which on it is compacted (`num-sorted-run.compaction-trigger`)."""
MOST_BYTES = 256 << 20
"""After so many bytes no further file or bucket is taken, if that can be: the table's next round waits meanwhile."""
_BY_COMPACTION = frozenset({"lookup", "full-compaction"})
"""Producers of changelogs that are a part of Paimon's own compaction."""
_RATIO = 2
_BATCH_ROWS = 65_536
_GROUP_ROWS = 1 << 17
_GONE = pa.array([UPDATE_BEFORE, DELETE], pa.int8())
Bucket = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class Task:
    """Files of one bucket that are to be merged, in their order, and the level of what comes out."""

    runs: tuple[tuple[Entry, ...], ...]
    level: int
    drops_deletes: bool

    @property
    def entries(self) -> list[Entry]:
        """All the files."""
        return [entry for run in self.runs for entry in run]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(entry.file.size_bytes for entry in self.entries)


def due_tasks(table: Table) -> list[Task]:
    """Return what is to be merged, the bucket with most runs first."""
    options = table.schema.options
    elsewhere = options.get("write-only", "false") == "true" or options.get("changelog-producer") in _BY_COMPACTION
    if not table.schema.primary_keys or elsewhere:
        return []
    trigger = int(options.get("num-sorted-run.compaction-trigger", TRIGGER))
    top = int(options.get("num-levels", trigger + 1)) - 1
    buckets: dict[Bucket, list[Entry]] = defaultdict(list)
    for entry in table.manifests.live(table.latest).values():
        buckets[entry.partition, entry.bucket].append(entry)
    runs = {bucket: _runs(entries) for bucket, entries in buckets.items()}
    due = sorted((one for one in runs.values() if len(one) >= trigger), key=len, reverse=True)
    return [_task(one, max(top, 1)) for one in due]


def _runs(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Return a bucket's sorted runs, the newest first."""
    fresh = [entry for entry in entries if not entry.file.level]
    runs = [(entry,) for entry in sorted(fresh, key=lambda one: one.file.max_sequence, reverse=True)]
    levels: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.file.level:
            levels[entry.file.level].append(entry)
    return runs + [tuple(levels[level]) for level in sorted(levels)]


def _task(runs: Sequence[tuple[Entry, ...]], top: int) -> Task:
    taken, size = 0, 0
    for run in runs:
        level, bytes_of = run[0].file.level, sum(entry.file.size_bytes for entry in run)
        # What comes out needs a level between 0 and the next older run's.
        if level > 1 and (bytes_of > _RATIO * size or size + bytes_of > MOST_BYTES):
            break
        taken, size = taken + 1, size + bytes_of
    older = runs[taken:]
    level = older[0][0].file.level - 1 if older else top
    return Task(tuple(runs[:taken]), level, drops_deletes=not older)


def merge_task(table: Table, task: Task, options: PaimonOptions, name: str) -> list[Entry]:
    """Write the merged rows; return the entries of the new files. `name` is part of their names, and new.

    Memory: a batch of rows for each run, and a row group.

    Raises:
        StorageError: the storage refused.
    """
    layout = KeyLayout(table.schema)
    runs = [_ordered_tables(table, layout, run) for run in task.runs]
    with storage_errors(table.location):
        merged = merge_runs(runs, layout.key_names)
        return list(_written(table, task, layout, _grouped(_kept(merged, task)), options, name))


def _kept(tables: Iterator[pa.Table], task: Task) -> Iterator[pa.Table]:
    for rows in tables:
        if task.drops_deletes:
            yield rows.filter(pc.invert(pc.is_in(rows.column(VALUE_KIND), value_set=_GONE)))
        else:
            yield rows


def _grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Gather rows up to the size of a row group."""
    pending: list[pa.Table] = []
    for rows in tables:
        if rows.num_rows:
            pending.append(rows)
        if sum(one.num_rows for one in pending) >= _GROUP_ROWS:
            yield pa.concat_tables(pending).combine_chunks()
            pending.clear()
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def _ordered_tables(table: Table, layout: KeyLayout, run: Sequence[Entry]) -> Iterator[pa.Table]:
    """Yield the rows of one run in the order of their keys."""
    kinds = [field.kind for field in layout.keys]
    fine_ids = {field.id for field in table.schema.fields if field.kind.has_nanoseconds}
    for entry in sorted(run, key=lambda one: decode_row(one.file.min_key, kinds)):
        path = next(paths_of(table, entry))
        then = {field.id: field.name for field in _schema_of(table, entry).fields}
        ids = {field.name: field.id for field in table.schema.fields}
        names = [name for number, name in then.items() if number in fine_ids]
        fine = {*names, *(f"{KEY_PREFIX}{name}" for name in names)}
        with storage_errors(path), table.storage.open(path) as source:
            for batch in read_batches(source, fine, _BATCH_ROWS):
                columns = []
                for field in layout.schema:
                    # A column is known by its id, whatever it was called when the file was written.
                    name = then.get(ids[field.name]) if field.name in ids else field.name
                    there = name is not None and name in batch.schema.names
                    columns.append(
                        pc.cast(batch.column(name), field.type) if there else pa.nulls(len(batch), field.type)
                    )
                yield pa.Table.from_arrays(columns, schema=layout.schema)


def _schema_of(table: Table, entry: Entry) -> TableSchema:
    same = entry.file.schema_id == table.schema.id
    return table.schema if same else read_schema(table.storage, table.location, entry.file.schema_id)


def _written(  # noqa: PLR0917 - what is written, whence, where to
    table: Table, task: Task, layout: KeyLayout, groups: Iterator[pa.Table], options: PaimonOptions, name: str
) -> Iterator[Entry]:
    first = task.entries[0]
    kinds = [field.kind for field in table.schema.named(table.schema.partition_keys)]
    folder = partition_folder(table.schema, decode_row(first.partition, kinds))
    place = f"{table.location}/{folder}bucket-{first.bucket}"
    told = parquet_options(table.schema, options.compression, options.compression_level)
    out: _Output | None = None
    number = 0
    for rows in groups:
        if out is None:
            number += 1
            path = f"{place}/data-{name}-b{first.bucket}-{number:05d}.parquet"
            out = _Output(ParquetFile(table.storage, path, layout.schema, told), layout)
        out.write(rows)
        if out.file.size_bytes >= options.target_file_size_bytes:
            yield out.close(table, task)
            out = None
    if out is not None:
        yield out.close(table, task)


class _Output:
    """One file that is being written."""

    def __init__(self, file: ParquetFile, layout: KeyLayout) -> None:
        self.file = file
        self._layout = layout
        self._ends = KeyEnds(layout)
        self._sequences: list[int] = []
        self._deleted = 0

    def write(self, rows: pa.Table) -> None:
        self.file.write(rows)
        self._ends.add(rows)
        found = pc.min_max(rows.column(SEQUENCE))
        self._sequences += [found["min"].as_py(), found["max"].as_py()]
        self._deleted += pc.sum(pc.is_in(rows.column(VALUE_KIND), value_set=_GONE)).as_py() or 0

    def close(self, table: Table, task: Task) -> Entry:
        size = self.file.close()
        first, last = self._ends.rows()
        keys, _ = ColumnStats.of_keys(table.schema, self._layout.schema, KEY_PREFIX).gather(self.file)
        values, columns = ColumnStats.of_values(table.schema, self._layout.schema, task.level).gather(self.file)
        described = DataFile(
            name=self.file.path.rpartition("/")[2],
            size_bytes=size,
            rows=self.file.rows,
            schema_id=table.schema.id,
            min_sequence=min(self._sequences),
            max_sequence=max(self._sequences),
            created_ms=time.time_ns() // 1_000_000,
            min_key=first,
            max_key=last,
            key_stats=keys,
            value_stats=values,
            value_stats_columns=columns,
            level=task.level,
            deleted_rows=self._deleted,
            source=FROM_COMPACTION,
        )
        old = task.entries[0]
        return Entry(ADD, old.partition, old.bucket, old.total_buckets, described)
