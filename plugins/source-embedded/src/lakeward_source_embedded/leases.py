"""Leases on KV snapshots, with Fluss's semantics: no existence check, one snapshot per bucket and lease.

Source: fluss.md, "Leases on KV snapshots".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import LeaseApiMissingError, SourceError, UsageError
from lakeward.model.leases import Protection
from lakeward.model.tables import TableBucket
from lakeward_source_embedded.catalog import bucket_at, key_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from lakeward.ports import Clock
    from lakeward_source_embedded.database import Database

_ID = re.compile(r"[^/\x00]{1,199}")
_LEASED = "SELECT lease_id, table_id, partition_id, bucket, snapshot_id FROM leased_snapshots ORDER BY 1, 2, 3, 4"


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """One lease in the store; `expires_ms` is wall-clock time, `held` maps buckets to snapshot ids."""

    lease_id: str
    expires_ms: int
    held: Mapping[TableBucket, int]


class EmbeddedLeases:
    """See `lakeward.ports.SnapshotLeases`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Work on an open store; the clock's wall clock is the server's clock of expiry."""
        self._database = database
        self._clock = clock

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See Protocol. Like Fluss, this does not check that the snapshots still exist."""
        if not _ID.fullmatch(lease_id) or lease_id in {".", ".."}:
            message = f"lease id: expected 1 to 199 characters without '/', found {lease_id!r}"
            raise UsageError(message)
        if not 0 < duration_s < float("inf"):
            message = f"lease {lease_id!r}: expected a duration > 0 s, found {duration_s!r}"
            raise UsageError(message)
        with self._database.write() as sql:
            check_lease_api(sql)
            _check_tables(sql, snapshots)
            now = self._clock.wall_ms()
            sql.execute(
                "INSERT INTO leases VALUES (?, ?) "
                "ON CONFLICT (lease_id) DO UPDATE SET expires_ms = excluded.expires_ms",
                (lease_id, now + round(duration_s * 1000)),
            )
            sql.executemany(
                "INSERT OR REPLACE INTO leased_snapshots VALUES (?, ?, ?, ?, ?)",
                ((lease_id, *key_of(bucket), snapshot_id) for bucket, snapshot_id in snapshots.items()),
            )
        return Protection(until_s=duration_s)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """See Protocol. A lease that becomes empty is deleted."""
        with self._database.write() as sql:
            check_lease_api(sql)
            freed = sql.executemany(
                "DELETE FROM leased_snapshots WHERE lease_id = ? AND table_id = ? AND partition_id = ? AND bucket = ?",
                ((lease_id, *key_of(bucket)) for bucket in buckets),
            )
            if freed.rowcount > 0:
                sql.execute(
                    "DELETE FROM leases WHERE lease_id = ?1"
                    " AND NOT EXISTS (SELECT 1 FROM leased_snapshots WHERE lease_id = ?1)",
                    (lease_id,),
                )

    def drop(self, lease_id: str) -> None:
        """See Protocol."""
        with self._database.write() as sql:
            check_lease_api(sql)
            sql.execute("DELETE FROM leased_snapshots WHERE lease_id = ?", (lease_id,))
            sql.execute("DELETE FROM leases WHERE lease_id = ?", (lease_id,))

    def list_leases(self) -> tuple[LeaseStatus, ...]:
        """Return all stored leases, expired or not, by id."""
        with self._database.read() as sql:
            leases = sql.execute("SELECT lease_id, expires_ms FROM leases ORDER BY lease_id").fetchall()
            leased = sql.execute(_LEASED).fetchall()
        held: dict[str, dict[TableBucket, int]] = {lease_id: {} for lease_id, _ in leases}
        for lease_id, table_id, partition_id, bucket, snapshot_id in leased:
            held.setdefault(lease_id, {})[bucket_at(table_id, partition_id, bucket)] = snapshot_id
        return tuple(LeaseStatus(lease_id, expires_ms, held[lease_id]) for lease_id, expires_ms in leases)

    def reap(self) -> int:
        """Delete expired leases; return how many."""
        with self._database.write() as sql:
            now = self._clock.wall_ms()
            sql.execute(
                "DELETE FROM leased_snapshots WHERE lease_id IN (SELECT lease_id FROM leases WHERE expires_ms <= ?)",
                (now,),
            )
            return sql.execute("DELETE FROM leases WHERE expires_ms <= ?", (now,)).rowcount


def check_lease_api(sql: sqlite3.Connection) -> None:
    """Refuse if the store is set to behave like an old server.

    Raises:
        LeaseApiMissingError: the setting `lease-api` is false.
    """
    row = sql.execute("SELECT value FROM meta WHERE key = 'option.lease-api'").fetchone()
    if row is not None and row[0] == "false":
        message = "this embedded store has no lease API (its setting lease-api is false)"
        raise LeaseApiMissingError(message)


def _check_tables(sql: sqlite3.Connection, snapshots: Mapping[TableBucket, int]) -> None:
    for table_id in {bucket.table_id for bucket in snapshots}:
        row = sql.execute(
            "SELECT json_array_length(definition, '$.primary_key') FROM tables WHERE table_id = ?", (table_id,)
        ).fetchone()
        if row is None or row[0] == 0:
            found = "none" if row is None else "a log table, which has no KV snapshots"
            message = f"lease: expected a primary-key table with id {table_id}, found {found}"
            raise SourceError(message)
