"""The SQLite file of a store: its tables, its transactions, and the translation of its errors.

The database is the truth about a store; a data file counts only if a row references it. WAL and a busy timeout let
several processes and threads work at once; `synchronous=FULL` because a lake commit may already depend on the data.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError, CorruptFileError, SourceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = "1"
DATABASE_FILE = "store.db"
BUSY_TIMEOUT_S = 30.0
"""Longer than any transaction: merging and writing files happen outside of transactions."""
NO_PARTITION = -1
"""`partition_id` of the buckets of an unpartitioned table."""
_IDLE_MOST = 8

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (
  table_id INTEGER PRIMARY KEY AUTOINCREMENT, database TEXT NOT NULL, name TEXT NOT NULL, schema_id INTEGER NOT NULL,
  definition TEXT NOT NULL, properties TEXT NOT NULL, freshness_s REAL NOT NULL, created_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL, next_piece INTEGER NOT NULL DEFAULT 0, UNIQUE (database, name));
CREATE TABLE schemas (
  table_id INTEGER NOT NULL, schema_id INTEGER NOT NULL, arrow BLOB NOT NULL,
  PRIMARY KEY (table_id, schema_id)) WITHOUT ROWID;
CREATE TABLE partitions (
  partition_id INTEGER PRIMARY KEY AUTOINCREMENT, table_id INTEGER NOT NULL, spec TEXT NOT NULL,
  UNIQUE (table_id, spec));
CREATE TABLE buckets (
  table_id INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL,
  log_start INTEGER NOT NULL DEFAULT 0, log_end INTEGER NOT NULL DEFAULT 0,
  snapshot_id INTEGER, snapshot_offset INTEGER, snapshot_ms INTEGER NOT NULL, next_snapshot INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (table_id, partition_id, bucket)) WITHOUT ROWID;
CREATE TABLE segments (
  table_id INTEGER NOT NULL, piece INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL,
  base INTEGER NOT NULL, stop INTEGER NOT NULL, rows INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL,
  file TEXT, batch INTEGER NOT NULL, PRIMARY KEY (table_id, piece)) WITHOUT ROWID;
CREATE UNIQUE INDEX segments_log ON segments (table_id, partition_id, bucket, stop);
CREATE INDEX segments_file ON segments (file);
CREATE TABLE snapshots (
  table_id INTEGER NOT NULL, piece INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL,
  snapshot_id INTEGER NOT NULL, log_offset INTEGER NOT NULL, rows INTEGER NOT NULL, file TEXT NOT NULL,
  PRIMARY KEY (table_id, piece)) WITHOUT ROWID;
CREATE UNIQUE INDEX snapshots_bucket ON snapshots (table_id, partition_id, bucket, snapshot_id);
CREATE TABLE runs (
  run_id INTEGER PRIMARY KEY AUTOINCREMENT, table_id INTEGER NOT NULL, file TEXT NOT NULL, entries INTEGER NOT NULL);
CREATE TABLE leases (lease_id TEXT PRIMARY KEY, expires_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leased_snapshots (
  lease_id TEXT NOT NULL, table_id INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL,
  snapshot_id INTEGER NOT NULL, PRIMARY KEY (lease_id, table_id, partition_id, bucket)) WITHOUT ROWID;
CREATE INDEX leased_snapshots_table ON leased_snapshots (table_id, partition_id, bucket, snapshot_id);
CREATE TABLE tiering (
  table_id INTEGER PRIMARY KEY, state TEXT NOT NULL, epoch INTEGER NOT NULL, due_ms INTEGER NOT NULL,
  place INTEGER NOT NULL DEFAULT 0);
CREATE TABLE lake (
  table_id INTEGER PRIMARY KEY, snapshot_id INTEGER NOT NULL, file TEXT NOT NULL, offsets TEXT NOT NULL);
"""

_HINT = 'Make one with `lakeward embedded create DB.TABLE --columns "id bigint not null, name string"`.'


class Database:
    """Connections to one store's SQLite file, for any number of threads."""

    def __init__(self, root: Path) -> None:
        """Open an existing store.

        Raises:
            ConfigError: there is no store.
            CorruptFileError: the file is damaged, or of an unknown format.
        """
        self.file = root / DATABASE_FILE
        self._idle: deque[sqlite3.Connection] = deque()
        # SQLite's connections are not closed with the last reference to them: Python 3.13 complains of that.
        weakref.finalize(self, _close_all, self._idle)
        self._closed = False
        if not self.file.is_file():
            raise ConfigError(str(root), f"a directory with an embedded store ({DATABASE_FILE})", "none", _HINT)
        with self.read() as sql:
            row = sql.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        found = None if row is None else row[0]
        if found != FORMAT:
            self.close()
            raise CorruptFileError(str(self.file), f"format {FORMAT}", found)

    @classmethod
    def create(cls, root: Path) -> Database:
        """Create the file of a new store in its directory, which exists; open it if the store exists already."""
        file = root / DATABASE_FILE
        with _translated(file):
            sql = sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            try:
                sql.execute("PRAGMA journal_mode = WAL")
                sql.execute("BEGIN EXCLUSIVE")
                if not sql.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                    for statement in _TABLES.split(";\n"):
                        sql.execute(statement)
                    sql.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))
                sql.execute("COMMIT")
            finally:
                sql.close()
        return cls(root)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run an atomic write transaction.

        Raises:
            SourceError: another process held the file for too long; no effect.
            StorageError: the disk refused; no effect.
            CorruptFileError: the file is damaged.
        """
        with self._transaction("BEGIN IMMEDIATE") as sql:
            yield sql

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run a read transaction. Raises as `write`."""
        with self._transaction("BEGIN") as sql:
            yield sql

    def close(self) -> None:
        """Close idle connections; one that is in use is closed when it is released."""
        self._closed = True
        _close_all(self._idle)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with _translated(self.file):
            sql = self._take()
            try:
                sql.execute(begin)
                yield sql
                sql.execute("COMMIT")
            finally:
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                self._give_back(sql)

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _give_back(self, sql: sqlite3.Connection) -> None:
        if self._closed or len(self._idle) >= _IDLE_MOST:
            sql.close()
        else:
            self._idle.append(sql)

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a store whose directory was removed must not come back as an empty file.
        uri = f"{self.file.absolute().as_uri()}?mode=rw"
        sql = sqlite3.connect(
            uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            sql.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            sql.close()
            raise
        return sql


def _close_all(connections: deque[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    """Translate SQLite's errors. OperationalError is a DatabaseError: the order matters."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            message = f"{file}: another process holds the store ({text}); nothing was changed"
            raise SourceError(message) from error
        if "malformed" in text or "no such table" in text or "no such column" in text:
            raise CorruptFileError(str(file), "a whole SQLite database", text) from error
        message = f"{file}: {text}"
        raise StorageError(message) from error
    except sqlite3.IntegrityError as error:
        raise CorruptFileError(str(file), "consistent rows", str(error)) from error
    except sqlite3.DatabaseError as error:
        raise CorruptFileError(str(file), "a whole SQLite database", str(error)) from error
