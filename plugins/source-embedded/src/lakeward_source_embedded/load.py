"""Loads a batch of rows into a table: fits, buckets and merges them, writes one file, registers it atomically."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakewardError
from lakeward.model.batches import SYSTEM_FIELDS, concat_batches
from lakeward_source_embedded.arrow_files import write_arrow
from lakeward_source_embedded.buckets import bucket_of
from lakeward_source_embedded.catalog import check_exists
from lakeward_source_embedded.changelog import Chains, Changelog, chain_keys, merge_changes
from lakeward_source_embedded.database import NO_PARTITION
from lakeward_source_embedded.files import remove
from lakeward_source_embedded.index import (
    ABSENT,
    ROW_BITS,
    TOMBSTONE,
    IndexChange,
    KeyIndex,
    register_run,
    remove_replaced,
)
from lakeward_source_embedded.keys import check_same_keys, key_hashes
from lakeward_source_embedded.pieces import Pieces

if TYPE_CHECKING:
    import sqlite3

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock
    from lakeward_source_embedded.catalog import Catalog
    from lakeward_source_embedded.database import Database
    from lakeward_source_embedded.files import Layout
    from lakeward_source_embedded.rows import Rows

    Ints = npt.NDArray[np.int64]

CHANGE_FIELD = SYSTEM_FIELDS[0]


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Records of one load, bucket group after bucket group; `buckets` holds (partition id, bucket) of each group."""

    records: pa.RecordBatch
    counts: Ints
    buckets: Sequence[tuple[int, int]]


class Loader:
    """Loads batches; the caller holds the table's lock."""

    def __init__(self, layout: Layout, database: Database, catalog: Catalog, clock: Clock) -> None:
        """Work on an open store."""
        self._layout = layout
        self._database = database
        self._catalog = catalog
        self._clock = clock

    def append(self, spec: TableSpec, rows: Rows) -> int:
        """Append rows, at least one, fitted to a log table as it is now; return the number of log records."""
        groups, buckets = self._groups(spec, rows.records)
        order = np.argsort(groups, kind="stable")
        records = rows.records
        if not np.array_equal(order, np.arange(len(order))):
            records = records.take(pa.array(order))
        counts = np.bincount(groups, minlength=len(buckets)).astype(np.int64)
        self._store(spec, _Grouped(records, counts, buckets), None, None)
        return len(records)

    def merge(self, spec: TableSpec, rows: Rows) -> int:
        """Merge changes into a primary-key table. See `append`.

        Raises:
            TooManyBytes: the rows that these replace are too many at once; nothing was changed.
        """
        operations = np.zeros(0, dtype=np.int8) if rows.operations is None else rows.operations
        hashes = key_hashes(rows.records, spec.primary_key)
        chains = chain_keys(hashes)
        _check_chains(spec, rows.records, chains)
        with self._database.read() as sql:
            index = KeyIndex.read(self._layout, sql, spec.table_id)
        located = index.find(hashes[chains.heads])
        found = located != ABSENT
        old = Pieces(self._layout, self._database, spec).take(located[found])
        if len(old):
            check_same_keys(rows.records.take(pa.array(chains.heads[found])), old, spec.primary_key)
        groups, buckets = self._groups(spec, rows.records)
        changelog = merge_changes(operations, chains, found, groups, len(buckets))
        records = _gather(rows.records, old, changelog)
        grouped = _Grouped(records, changelog.counts, buckets)
        self._store(spec, grouped, index, _Entries(hashes, chains, found, groups, changelog.places))
        return len(records)

    def find(self, spec: TableSpec, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return the newest rows of a primary-key table that have these keys; a key without a row is left out."""
        hashes = key_hashes(keys, spec.primary_key)
        with self._database.read() as sql:
            located = KeyIndex.read(self._layout, sql, spec.table_id).find(hashes)
        found = located != ABSENT
        rows = Pieces(self._layout, self._database, spec).take(located[found])
        if len(rows):
            check_same_keys(keys.filter(pa.array(found)), rows, spec.primary_key)
        return rows

    def skip(self, spec: TableSpec, bucket: tuple[int, int], count: int) -> None:
        """Advance a bucket's log by `count` offsets (> 0) without a record."""
        grouped = _Grouped(pa.RecordBatch.from_arrays([], names=[]), np.array([count]), [bucket])
        with self._database.read() as sql:
            piece, ends = self._positions(sql, spec, grouped)
        self._register(spec, None, [(piece, *bucket, ends[0], ends[0] + count, 0)], None)

    def _groups(self, spec: TableSpec, records: pa.RecordBatch) -> tuple[Ints, list[tuple[int, int]]]:
        """Return each row's group, and the (partition id, bucket) of each group."""
        partitions, ids = self._partitions(spec, records)
        codes = partitions * spec.buckets + self._numbers(spec, records)
        present, groups = np.unique(codes, return_inverse=True)
        return groups.astype(np.int64), [(ids[code // spec.buckets], int(code) % spec.buckets) for code in present]

    def _partitions(self, spec: TableSpec, records: pa.RecordBatch) -> tuple[Ints, list[int]]:
        codes = np.zeros(len(records), dtype=np.int64)
        if not spec.partition_keys:
            return codes, [NO_PARTITION]
        values: list[list[str]] = []
        for name in spec.partition_keys:
            coded = records.column(name).dictionary_encode()
            values.append(coded.dictionary.to_pylist())
            codes = codes * len(values[-1]) + coded.indices.to_numpy()
        present, codes = np.unique(codes, return_inverse=True)
        specs = [_decoded(int(code), values) for code in present]
        return codes.astype(np.int64), self._catalog.partitions(spec, specs)

    def _numbers(self, spec: TableSpec, records: pa.RecordBatch) -> Ints:
        if spec.bucket_key:
            return bucket_of(records.column(spec.bucket_key[0]), spec.buckets)
        # Without a bucket key any bucket will do: even, contiguous slices, and the next load begins at another bucket.
        with self._database.read() as sql:
            row = sql.execute("SELECT next_piece FROM tables WHERE table_id = ?", (spec.table_id,)).fetchone()
        shift = 0 if row is None else int(row[0])
        return (np.arange(len(records), dtype=np.int64) * spec.buckets // len(records) + shift) % spec.buckets

    def _store(self, spec: TableSpec, grouped: _Grouped, index: KeyIndex | None, entries: _Entries | None) -> None:
        """Write the files, then register them in one transaction; on any failure nothing is left."""
        filled = [group for group, count in enumerate(grouped.counts) if count]
        if not filled:
            return
        with self._database.read() as sql:
            first_piece, ends = self._positions(sql, spec, grouped)
        pieces = {group: first_piece + number for number, group in enumerate(filled)}
        file = self._layout.new_file("log", spec.table_id, f"{first_piece:012d}")
        path = self._layout.root / file
        starts = np.cumsum(grouped.counts) - grouped.counts
        batches = (grouped.records.slice(int(starts[group]), int(grouped.counts[group])) for group in filled)
        write_arrow(path, grouped.records.schema, batches)
        change: IndexChange | None = None
        try:
            if index is not None and entries is not None:
                change = index.add(*entries.located(pieces))
            segments = [
                (pieces[group], *grouped.buckets[group], ends[group], ends[group] + int(grouped.counts[group]), number)
                for number, group in enumerate(filled)
            ]
            self._register(spec, file, segments, change)
        except LakewardError:
            remove([path])
            if index is not None and change is not None:
                index.discard(change)
            raise
        if change is not None:
            remove_replaced(self._layout, change)

    def _positions(self, sql: sqlite3.Connection, spec: TableSpec, grouped: _Grouped) -> tuple[int, list[int]]:
        check_exists(sql, spec)
        query = "SELECT next_piece FROM tables WHERE table_id = ?"
        first_piece = int(sql.execute(query, (spec.table_id,)).fetchone()[0])
        partitions = json.dumps(sorted({partition for partition, _ in grouped.buckets}))
        query = (
            "SELECT partition_id, bucket, log_end FROM buckets"
            " WHERE table_id = ? AND partition_id IN (SELECT value FROM json_each(?))"
        )
        rows = sql.execute(query, (spec.table_id, partitions))
        ends = {(partition_id, bucket): int(end) for partition_id, bucket, end in rows}
        return first_piece, [ends[bucket] for bucket in grouped.buckets]

    def _register(
        self,
        spec: TableSpec,
        file: str | None,
        segments: Sequence[tuple[int, int, int, int, int, int]],
        change: IndexChange | None,
    ) -> None:
        with self._database.write() as sql:
            check_exists(sql, spec)
            query = "SELECT last_ms FROM tables WHERE table_id = ?"
            # Within a table time never goes back, even if the clock does.
            now = max(self._clock.wall_ms(), int(sql.execute(query, (spec.table_id,)).fetchone()[0]))
            sql.executemany(
                "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        spec.table_id,
                        piece,
                        partition_id,
                        bucket,
                        base,
                        stop,
                        stop - base if file else 0,
                        now,
                        file,
                        number,
                    )
                    for piece, partition_id, bucket, base, stop, number in segments
                ),
            )
            sql.executemany(
                "UPDATE buckets SET log_end = ? WHERE table_id = ? AND partition_id = ? AND bucket = ?",
                ((stop, spec.table_id, partition_id, bucket) for _, partition_id, bucket, _, stop, _ in segments),
            )
            sql.execute(
                "UPDATE tables SET next_piece = ?, last_ms = ? WHERE table_id = ?",
                (segments[-1][0] + 1, now, spec.table_id),
            )
            if change is not None:
                register_run(sql, spec.table_id, change)


@dataclass(frozen=True, slots=True)
class _Entries:
    """What a load changes in the key index."""

    hashes: npt.NDArray[np.uint64]
    chains: Chains
    found: npt.NDArray[np.bool_]
    groups: Ints
    places: Ints

    def located(self, pieces: dict[int, int]) -> tuple[npt.NDArray[np.uint64], Ints]:
        """Return the entries, sorted by hash: the new location, or a tombstone if the key was deleted."""
        lasts = self.chains.lasts
        piece_of = np.zeros(int(self.groups.max(initial=0)) + 1, dtype=np.int64)
        for group, piece in pieces.items():
            piece_of[group] = piece
        places = self.places[lasts]
        locations = np.where(places >= 0, (piece_of[self.groups[lasts]] << ROW_BITS) | places, TOMBSTONE)
        kept = (places >= 0) | self.found
        return self.hashes[lasts][kept], locations[kept]


def _decoded(code: int, values: Sequence[Sequence[str]]) -> tuple[str, ...]:
    parts: list[str] = []
    for names in reversed(values):
        code, rest = divmod(code, len(names))
        parts.insert(0, names[rest])
    return tuple(parts)


def _check_chains(spec: TableSpec, records: pa.RecordBatch, chains: Chains) -> None:
    chained = np.flatnonzero(chains.previous >= 0)
    if len(chained):
        before = records.take(pa.array(chains.previous[chained]))
        check_same_keys(records.take(pa.array(chained)), before, spec.primary_key)


def _gather(records: pa.RecordBatch, old: pa.RecordBatch, changelog: Changelog) -> pa.RecordBatch:
    """Return the log records: the values, and the change column."""
    if not (len(old) == 0 and np.array_equal(changelog.rows, np.arange(len(records)))):
        both = concat_batches([records, old], records.schema) if len(old) else records
        records = both.take(pa.array(changelog.rows))
    changes = pc.cast(pa.array(changelog.changes), pa.uint8())
    return pa.RecordBatch.from_arrays([*records.columns, changes], schema=records.schema.append(CHANGE_FIELD))
