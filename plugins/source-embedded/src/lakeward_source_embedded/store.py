"""The Python API of the embedded source: one directory, many processes."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakeward.clock import SystemClock
from lakeward.errors import RowError, UsageError
from lakeward_source_embedded.catalog import Catalog, check_exists, delete_partition, delete_table, read_spec
from lakeward_source_embedded.database import NO_PARTITION, Database
from lakeward_source_embedded.files import Layout, disk
from lakeward_source_embedded.index import register_run, remove_replaced
from lakeward_source_embedded.inputs import LoadProgress, open_file, skipped, steps_of
from lakeward_source_embedded.leases import EmbeddedLeases, LeaseStatus
from lakeward_source_embedded.load import Loader
from lakeward_source_embedded.offsets import LakeOffsets
from lakeward_source_embedded.options import DEFAULT_FRESHNESS_S, STORE_SETTINGS, check_store_option
from lakeward_source_embedded.pieces import TooManyBytes
from lakeward_source_embedded.queue import TieringQueue
from lakeward_source_embedded.retention import Retention, remove_folder
from lakeward_source_embedded.rows import as_deletes, fit_rows
from lakeward_source_embedded.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.model.tables import BucketState, TablePath, TableSpec
    from lakeward.ports import Clock
    from lakeward_source_embedded.rows import Rows


class EmbeddedStore:
    """A streaming store in one directory: log tables and primary-key tables, safe for several processes at once."""

    def __init__(self, root: Path, database: Database, clock: Clock) -> None:
        """Use `create` or `open`."""
        self.root = root
        self.clock = clock
        self.layout = Layout(root)
        self.database = database
        self.catalog = Catalog(database, clock)
        self.lease_table = EmbeddedLeases(database, clock)
        self.queue = TieringQueue(database, clock)
        self.offsets = LakeOffsets(self.layout, database)
        self._loader = Loader(self.layout, database, self.catalog, clock)
        self._snapshots = Snapshots(self.layout, database, clock)
        self._retention = Retention(self.layout, database, clock)

    @classmethod
    def create(cls, directory: str | Path, *, clock: Clock | None = None) -> Self:
        """Create a store, or open it if it exists already; the directory is made if it is missing.

        Without a clock it has the system's.

        Raises:
            StorageError: the directory cannot be written.
        """
        root = Path(directory).absolute()
        with disk(root):
            root.mkdir(parents=True, exist_ok=True)
        return cls(root, Database.create(root), clock or SystemClock())

    @classmethod
    def open(cls, directory: str | Path, *, clock: Clock | None = None) -> Self:
        """Open a store where `create` made it. Without a clock it has the system's.

        Raises:
            ConfigError: there is no store.
            CorruptFileError: its database is damaged.
        """
        root = Path(directory).absolute()
        return cls(root, Database(root), clock or SystemClock())

    def create_table(  # noqa: PLR0917 - the order of a CREATE TABLE; most are left at their default
        self,
        path: TablePath,
        schema: pa.Schema,
        primary_key: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        bucket_key: Sequence[str] | None = None,
        buckets: int = 1,
        freshness_s: float = DEFAULT_FRESHNESS_S,
        properties: Mapping[str, str] | None = None,
    ) -> TableSpec:
        """Create a table.

        Args:
            path: its name.
            schema: the user's columns, types of Fluss only; key columns become NOT NULL.
            primary_key: empty = a log table.
            partition_keys: string columns; of a primary-key table, part of the key.
            bucket_key: at most one column; None = the first primary-key column that is no partition key.
            buckets: of each partition.
            freshness_s: seconds that the lake may be behind; a property of that name wins.
            properties: see `options.TABLE_SETTINGS`.

        Returns:
            The table as it was created; it is due for tiering at once.

        Raises:
            UsageError: names, keys or types do not fit.
            ConfigError: a property is unknown or wrong.
        """
        return self.catalog.create_table(
            path,
            schema,
            primary_key=primary_key,
            partition_keys=partition_keys,
            bucket_key=bucket_key,
            buckets=buckets,
            freshness_s=freshness_s,
            properties=properties or {},
        )

    def drop_table(self, path: TablePath) -> None:
        """Drop a table with all its files, leased or not.

        Raises:
            TableGoneError: there is no such table.
        """
        with self._locked(path) as spec:
            with self.database.write() as sql:
                check_exists(sql, spec)
                delete_table(sql, spec.table_id)
            for folder in self.layout.table_folders(spec.table_id):
                remove_folder(folder)
            self.layout.remove_lock(spec.table_id)

    def add_column(self, path: TablePath, field: pa.Field) -> TableSpec:
        """Add a nullable column at the end; older rows have null there.

        Raises:
            UsageError: reserved, doubled, NOT NULL or of an unknown type.
            TableGoneError: there is no such table.
        """
        return self.catalog.add_column(path, field)

    def widen_column(self, path: TablePath, name: str, kind: pa.DataType) -> TableSpec:
        """Give a column a type that holds all values of its present one; rows that are there are read as of that type.

        Raises:
            UsageError: no such column, one of a key, or a type that does not hold them.
            TableGoneError: there is no such table.
        """
        with self._locked(path):
            return self.catalog.widen_column(path, name, kind)

    def rename_column(self, path: TablePath, name: str, new: str) -> TableSpec:
        """Give a column that is in no key another name; rows that are there are read under it.

        Raises:
            UsageError: no such column, one of a key, a name that is taken or reserved, or the table is an old one.
            TableGoneError: there is no such table.
        """
        with self._locked(path):
            return self.catalog.rename_column(path, name, new)

    def drop_column(self, path: TablePath, name: str) -> TableSpec:
        """Drop a column that is in no key. One that is added later under its name has none of its values.

        Raises:
            UsageError: no such column, one of a key, the only one, or the table is an old one.
            TableGoneError: there is no such table.
        """
        with self._locked(path):
            return self.catalog.drop_column(path, name)

    def set_property(self, path: TablePath, key: str, text: str) -> TableSpec:
        """Change one property of a table (see `options.TABLE_SETTINGS`). Raises as `create_table`."""
        return self.catalog.set_property(path, key, text)

    def create_partition(self, path: TablePath, values: Sequence[str]) -> int:
        """Create a partition (loads create them by themselves); returns its id.

        Values are those of the partition keys, in their order.
        """
        spec = self.catalog.table(path)
        return self.catalog.partitions(spec, [_partition(spec, values)])[0]

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """Drop a partition with its rows and snapshots, leased or not.

        Raises:
            UsageError: there is no such partition.
        """
        with self._locked(path) as spec:
            partition_id = self._partition_id(spec, values)
            change = self._snapshots.without(spec, partition_id) if spec.has_primary_key else None
            with self.database.write() as sql:
                delete_partition(sql, spec, _partition(spec, values))
                if change is not None:
                    register_run(sql, spec.table_id, change)
            if change is not None:
                remove_replaced(self.layout, change)
            self._retention.sweep(spec)

    def load(self, path: TablePath, rows: object, change: str | None = None) -> int:
        """Load rows: append to a log table, upsert (or what `change` says) into a primary-key table.

        Rows are a pyarrow Table, RecordBatch, RecordBatchReader, or an iterable of tables and batches. `change` is the
        column that says insert, update or delete (names, `+I`, `-D`, or numbers of `Change`). Each step of up to a
        million rows and 256 MiB (for a primary-key table including the rows that it replaces) is atomic; due snapshots
        and clean-up follow. Returned is the number of log records written.

        Raises:
            RowError: names column, row (counted over the call) and value; says how many rows before it are stored.
            TableGoneError: there is no such table.
            StorageError: the disk refused; the step left nothing behind.
        """
        progress = LoadProgress()
        try:
            return self._load_steps(path, rows, change, progress)
        except RowError as error:
            if not progress.rows:
                raise
            message = f"{error} (the {progress.rows} rows before this batch are stored)"
            raise RowError(message) from error

    def load_file(
        self, path: TablePath, file: str | Path, change_column: str | None = None, *, skip_rows: int = 0
    ) -> int:
        """Load a Parquet, CSV or Arrow IPC file: its ending says which. See `load`.

        `skip_rows` (>= 0) rows were stored before, as the error of an earlier load says.

        Raises:
            RowError: as `load`; says how to go on.
            UsageError: the file cannot be read, or has fewer rows than are skipped.
        """
        spec, progress = self.catalog.table(path), LoadProgress(skip_rows)
        rows = skipped(open_file(spec, Path(file), change_column), Path(file), skip_rows)
        try:
            return self._load_steps(path, rows, change_column, progress)
        except RowError as error:
            message = f"{file}: {error}. {progress.advice}"
            raise RowError(message) from error

    def update(self, path: TablePath, row: pa.Table) -> None:
        """Change one row of a primary-key table: `row` has its key, and the columns that get another value.

        Raises:
            UsageError: a log table, or no row of that key.
            RowError: as `load`.
        """
        with self._locked(path) as spec:
            if not spec.has_primary_key:
                message = f"table {path}: expected a primary-key table, found a log table, whose rows stay as they are"
                raise UsageError(message)
            given = fit_rows(spec, *as_deletes(spec, row), 1).records  # which need no more than a key
            old = self._loader.find(spec, given)
            if not len(old):
                key = ", ".join(f"{name} {given.column(name)[0].as_py()!r}" for name in spec.primary_key)
                message = f"table {path}: expected a row with {key}, found none"
                raise UsageError(message)
            names = spec.schema.names
            arrays = [(given if name in row.column_names else old).column(name) for name in names]
            self._load_step(spec, pa.table(arrays, names=names), None, 1)

    def append_empty(self, path: TablePath, bucket: int, count: int, partition: Sequence[str] = ()) -> None:
        """Advance a bucket's log by `count` offsets without a record, as an empty batch of Fluss does."""
        with self._locked(path) as spec:
            self._loader.skip(spec, self._bucket(spec, bucket, partition), count)

    def trim_log(self, path: TablePath, bucket: int, before: int, partition: Sequence[str] = ()) -> None:
        """Delete log records below an offset, tiered or not."""
        with self._locked(path) as spec:
            self._retention.trim(spec, self._bucket(spec, bucket, partition), before)

    def snapshot(self, path: TablePath) -> int:
        """Take KV snapshots of all changed buckets now, then clean up; returns how many were taken.

        Raises:
            UsageError: a log table has none.
        """
        with self._locked(path) as spec:
            if not spec.has_primary_key:
                message = f"table {path}: expected a primary-key table, found a log table, which has no KV snapshots"
                raise UsageError(message)
            taken = self._snapshots.take_all(spec)
            self._snapshots.clean_up(spec)
            return taken

    def maintain(self) -> None:
        """Do all upkeep: due snapshots, clean-up, log retention, expired leases, leftovers of crashes."""
        self.lease_table.reap()
        for spec in self.catalog.tables():
            if spec.unreadable:
                continue  # its own commands say so; the others are kept
            with self.layout.lock(spec.table_id):
                self._keep_house(spec)
                self._retention.drop_segments(spec)
                self._retention.sweep(spec)
        self._retention.sweep_dropped()

    def set_option(self, key: str, text: str) -> None:
        """Change a setting of the whole store; every process sees it at once.

        Raises:
            ConfigError: see `options.STORE_SETTINGS`.
        """
        check_store_option(key, text)
        with self.database.write() as sql:
            sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"option.{key}", text))

    def options(self) -> dict[str, str]:
        """Return all settings of the store."""
        with self.database.read() as sql:
            stored = dict(sql.execute("SELECT key, value FROM meta").fetchall())
        return {key: stored.get(f"option.{key}", setting.default) for key, setting in STORE_SETTINGS.items()}

    def tables(self) -> tuple[TableSpec, ...]:
        """Return all tables, by name."""
        return self.catalog.tables()

    def table(self, path: TablePath) -> TableSpec:
        """Return one table; TableGoneError if there is none."""
        return self.catalog.table(path)

    def buckets(self, path: TablePath) -> tuple[BucketState, ...]:
        """Return the state of every bucket of a table."""
        return self.catalog.buckets(self.catalog.table(path))

    def leases(self) -> tuple[LeaseStatus, ...]:
        """Return all leases with expiry and what they hold."""
        return self.lease_table.list_leases()

    def close(self) -> None:
        """Free all resources; calling it twice is harmless."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load_steps(self, path: TablePath, rows: object, change: str | None, progress: LoadProgress) -> int:
        written = 0
        for step in steps_of(rows):
            with self._locked(path) as spec:
                written += self._load_step(spec, step, change, progress.rows)
            progress.rows += len(step)
        return written

    def _load_step(self, spec: TableSpec, step: pa.Table, change: str | None, first_row: int) -> int:
        fitted = fit_rows(spec, step, change, first_row)
        written = self._load_rows(spec, fitted) if len(fitted.records) else 0
        self._keep_house(spec)
        return written

    def _load_rows(self, spec: TableSpec, rows: Rows) -> int:
        """Load a step; in halves if the rows that it replaces are too large for one batch."""
        if not spec.has_primary_key:
            return self._loader.append(spec, rows)
        try:
            return self._loader.merge(spec, rows)
        except TooManyBytes:
            first, second = rows.halves()
        return self._load_rows(spec, first) + self._load_rows(spec, second)

    def _keep_house(self, spec: TableSpec) -> None:
        """Do due upkeep after a change: snapshots, clean-up, retention."""
        if spec.has_primary_key:
            self._snapshots.take_due(spec)
            self._snapshots.clean_up(spec)
        self._retention.expire(spec)

    @contextmanager
    def _locked(self, path: TablePath) -> Iterator[TableSpec]:
        """Hold the write lock of a table; the spec is read again under the lock."""
        table_id = self.catalog.table(path).table_id
        with self.layout.lock(table_id):
            with self.database.read() as sql:
                spec = read_spec(sql, path)
            if spec.table_id == table_id:
                yield spec
                return
        with self._locked(path) as spec:
            yield spec

    def _bucket(self, spec: TableSpec, bucket: int, values: Sequence[str]) -> tuple[int, int]:
        if not 0 <= bucket < spec.buckets:
            message = f"table {spec.path}: expected a bucket below {spec.buckets}, found {bucket}"
            raise UsageError(message)
        return (self._partition_id(spec, values) if spec.partition_keys else NO_PARTITION), bucket

    def _partition_id(self, spec: TableSpec, values: Sequence[str]) -> int:
        wanted = _partition(spec, values)
        for state in self.catalog.buckets(spec):
            if state.partition == wanted and state.bucket.partition_id is not None:
                return state.bucket.partition_id
        message = f"table {spec.path}: expected a partition, found none of the values {wanted!r}"
        raise UsageError(message)


def _partition(spec: TableSpec, values: Sequence[str]) -> tuple[str, ...]:
    if len(values) != len(spec.partition_keys) or not values or isinstance(values, str):
        message = f"table {spec.path}: expected a value for each of {list(spec.partition_keys)}, found {values!r}"
        raise UsageError(message)
    return tuple(values)
