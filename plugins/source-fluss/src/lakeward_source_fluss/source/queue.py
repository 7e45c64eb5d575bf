"""The server's tiering queue: heartbeats, and which connection a table was renewed on (fluss.md, "The tiering queue").

A 0.9 server's coordinator epoch is the constant 0, and after its restart old and new tiering epochs are alike. So what
the core sees as the coordinator's epoch is ours: the number of the connection in the high bits, the server's epoch in
the low ones. A new connection thus counts as a new coordinator, and an assignment on it is newer than any before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeward.errors import LakewardError, SourceError
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch
from lakeward_source_fluss.source.tables import DEFAULT_FRESHNESS_S
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import server_error
from lakeward_source_fluss.wire.tiering_messages import (
    LakeTieringHeartbeatRequest,
    LakeTieringHeartbeatResponse,
    PbHeartbeatReqForTable,
    PbHeartbeatRespForTable,
    PbLakeTieringTableInfo,
)

if TYPE_CHECKING:
    from lakeward.ports import Clock
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.tables import TableCatalog

_EPOCH_BITS = 31
_EPOCH = (1 << _EPOCH_BITS) - 1
_REFUSALS = {
    ErrorCode.TABLE_NOT_EXIST: Refusal.GONE,
    ErrorCode.FENCED_TIERING_EPOCH: Refusal.FENCED,
    ErrorCode.INVALID_COORDINATOR: Refusal.COORDINATOR_CHANGED,
    # A table that is in another state than to be tiered is a plain exception inside the server.
    ErrorCode.UNKNOWN_SERVER_ERROR: Refusal.NOT_TIERING,
}
_log = logging.getLogger("lakeward.source.fluss")


class TieringQueue:
    """Sends heartbeats, and knows which tables were renewed on the current connection."""

    def __init__(self, client: FlussClient, catalog: TableCatalog, clock: Clock) -> None:
        """Use an open client. The catalog is asked for the freshness of a table that is assigned.

        The wall clock makes the connections' numbers grow across starts.
        """
        self._client = client
        self._catalog = catalog
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: int | None = None
        self._number = 0
        self._held: dict[int, tuple[TableEpoch, int]] = {}

    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        """Send one heartbeat. See `lakeward.ports.Source.heartbeat`."""
        request = LakeTieringHeartbeatRequest(
            tiering_tables=_entries(heartbeat.renewed),
            finished_tables=_entries(heartbeat.finished),
            failed_tables=_entries(heartbeat.failed),
            request_table=heartbeat.request,
            force_finished_tables=tuple(sorted(heartbeat.forced)),
        )
        response, connection = self._client.call_coordinator_seen(request)
        number = self._connection_number(connection)
        refused = _refused(response, self._client.release)
        epoch = number << _EPOCH_BITS | response.coordinator_epoch & _EPOCH
        assignment = None if response.tiering_table is None else self._assignment(response.tiering_table, epoch)
        self._remember(heartbeat, assignment, refused.keys(), number)
        return HeartbeatResponse(epoch, assignment, refused)

    def confirm(self, table_id: int) -> None:
        """Check that an assigned table was renewed on the current connection; if not, renew it.

        Asked right before a commit: a lost connection to the coordinator counts as a lost epoch until then. A table
        that no heartbeat of ours has named is not assigned to us, and nothing is asked.

        Raises:
            SourceError: it is no longer ours, or the server cannot say.
        """
        with self._lock:
            held = self._held.get(table_id)
        if held is None or held[1] == self._connection_number(self._client.coordinator_connection_id):
            return
        answer = self.heartbeat(HeartbeatRequest(renewed=(held[0],)))
        if refusal := answer.refused.get(table_id):
            message = (
                f"table {table_id}: not ours any more since the coordinator's connection was lost: {refusal.value}"
            )
            raise SourceError(message)

    def _assignment(self, table: PbLakeTieringTableInfo, epoch: int) -> TableAssignment:
        path = TablePath(table.table_path.database_name, table.table_path.table_name)
        try:
            freshness_s = self._catalog.table(path).spec.freshness_s
        except LakewardError:
            freshness_s = DEFAULT_FRESHNESS_S  # it is ours now: opening the round meets the same error
        return TableAssignment(path, table.table_id, table.tiering_epoch, epoch, freshness_s)

    def _remember(
        self, heartbeat: HeartbeatRequest, assignment: TableAssignment | None, refused: Iterable[int], number: int
    ) -> None:
        with self._lock:
            for table in (*heartbeat.failed, *heartbeat.finished):
                self._held.pop(table.table_id, None)
            for table in heartbeat.renewed:
                self._held[table.table_id] = (table, number)
            for table_id in refused:
                self._held.pop(table_id, None)
            if assignment is not None:
                epoch = TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)
                self._held[assignment.table_id] = (epoch, number)

    def _connection_number(self, connection: int) -> int:
        """Return a number that is new for each connection to a coordinator, and higher than any of an earlier start."""
        with self._lock:
            if connection != self._connection:
                self._connection = connection
                self._number = max(self._number + 1, self._clock.wall_ms() // 1000)
            return self._number


def _entries(tables: Iterable[TableEpoch]) -> tuple[PbHeartbeatReqForTable, ...]:
    return tuple(
        PbHeartbeatReqForTable(
            table_id=table.table_id,
            coordinator_epoch=table.coordinator_epoch & _EPOCH,
            tiering_epoch=table.epoch,
        )
        for table in tables
    )


def _refused(response: LakeTieringHeartbeatResponse, server: str) -> dict[int, Refusal]:
    """Read the answers for each table; the one that was processed first counts."""
    refused: dict[int, Refusal] = {}
    for part in (response.failed_table_resp, response.tiering_table_resp, response.finished_table_resp):
        for answer in part:
            refusal = _refusal(answer, server)
            if refusal is not None:
                refused.setdefault(answer.table_id, refusal)
    return refused


def _refusal(answer: PbHeartbeatRespForTable, server: str) -> Refusal | None:
    if answer.error is None or answer.error.error_code == ErrorCode.NONE:
        return None
    code = answer.error.error_code
    known = {int(one): refusal for one, refusal in _REFUSALS.items()}
    if code not in known:
        # Whatever the reason is, the table was not renewed: others go on.
        what = f"LAKE_TIERING_HEARTBEAT for table {answer.table_id}"
        error = server_error(what, code, answer.error.error_message, server)
        _log.warning("the coordinator refused a table for a reason that is not known here: %s", error)
    return known.get(code, Refusal.NOT_TIERING)
