"""Heartbeats, and what a lost connection to the coordinator does to what is in hand. Without a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakeward.errors import SourceError
from lakeward.model.tiering import HeartbeatRequest, Refusal, TableEpoch
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.source.queue import TieringQueue
from lakeward_source_fluss.source.tables import TableCatalog
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import ErrorResponse
from lakeward_source_fluss.wire.tiering_messages import (
    LakeTieringHeartbeatRequest,
    LakeTieringHeartbeatResponse,
    PbHeartbeatRespForTable,
)
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, quick_options
from lakeward_testing.clock import FakeClock
from lakeward_testing.waiting import wait_until

CLAIM = TableEpoch(7, 1, 0)


class Coordinator:
    """Answers heartbeats; `refuses` is the code for each table that is renewed."""

    def __init__(self) -> None:
        self.refuses: int | None = None
        self.epoch = 0
        self.server = FakeServer(self._answer)

    @property
    def renewals(self) -> int:
        """How many heartbeats renewed a table."""
        asked = self.server.asked(ApiKey.LAKE_TIERING_HEARTBEAT)
        return sum(bool(call.read(LakeTieringHeartbeatRequest).tiering_tables) for call in asked)

    def break_off(self, client: FlussClient) -> None:
        """Break all connections, and wait until the client knows."""
        before = client.coordinator_connection_id
        self.server.hang_up()
        wait_until(lambda: client.coordinator_connection_id != before, "the client to know")

    def _answer(self, call: Call) -> Answer:
        if call.api != ApiKey.LAKE_TIERING_HEARTBEAT:
            return None
        error = None if self.refuses is None else ErrorResponse(error_code=self.refuses)
        tables = call.read(LakeTieringHeartbeatRequest).tiering_tables
        answers = tuple(PbHeartbeatRespForTable(table_id=table.table_id, error=error) for table in tables)
        return LakeTieringHeartbeatResponse(coordinator_epoch=self.epoch, tiering_table_resp=answers)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    """A coordinator."""
    started = Coordinator()
    yield started
    started.server.close()


@pytest.fixture
def client(coordinator: Coordinator) -> Iterator[FlussClient]:
    """A client of it."""
    with FlussClient.connect(quick_options(coordinator.server)) as opened:
        yield opened


@pytest.fixture
def queue(client: FlussClient) -> TieringQueue:
    """The queue, with table 7 in hand."""
    queue = TieringQueue(client, TableCatalog(client), FakeClock())
    queue.heartbeat(HeartbeatRequest(renewed=(CLAIM,)))
    return queue


def test_a_table_renewed_on_the_connection_of_now_is_not_asked_for(
    coordinator: Coordinator, queue: TieringQueue
) -> None:
    queue.confirm(7)
    assert coordinator.renewals == 1


def test_after_a_lost_connection_a_table_counts_once_it_is_renewed(
    coordinator: Coordinator, client: FlussClient, queue: TieringQueue
) -> None:
    coordinator.break_off(client)
    queue.confirm(7)
    queue.confirm(7)
    assert coordinator.renewals == 2


def test_after_a_lost_connection_a_table_that_is_refused_is_lost(
    coordinator: Coordinator, client: FlussClient, queue: TieringQueue
) -> None:
    coordinator.break_off(client)
    coordinator.refuses = ErrorCode.FENCED_TIERING_EPOCH
    with pytest.raises(SourceError, match="table 7: not ours any more"):
        queue.confirm(7)


def test_a_heartbeat_counts_for_the_connection_that_its_answer_came_on(
    coordinator: Coordinator, client: FlussClient, queue: TieringQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks right after the answer, and another call opens the next one before the queue looks."""
    seen = client.call_coordinator_seen

    def broken_after(request: LakeTieringHeartbeatRequest) -> tuple[LakeTieringHeartbeatResponse, int]:
        answer = seen(request)
        coordinator.break_off(client)
        seen(LakeTieringHeartbeatRequest())
        return answer

    monkeypatch.setattr(client, "call_coordinator_seen", broken_after)
    queue.heartbeat(HeartbeatRequest(renewed=(CLAIM,)))
    monkeypatch.undo()

    before = coordinator.renewals
    queue.confirm(7)
    assert coordinator.renewals == before + 1


def test_each_connection_has_an_epoch_of_its_own_that_is_higher(
    coordinator: Coordinator, client: FlussClient, queue: TieringQueue
) -> None:
    first = queue.heartbeat(HeartbeatRequest()).coordinator_epoch
    assert queue.heartbeat(HeartbeatRequest()).coordinator_epoch == first
    coordinator.break_off(client)
    assert queue.heartbeat(HeartbeatRequest()).coordinator_epoch > first


def test_epoch_that_the_server_counts_up_is_another_coordinator_on_the_same_connection(
    coordinator: Coordinator, queue: TieringQueue
) -> None:
    first = queue.heartbeat(HeartbeatRequest()).coordinator_epoch
    coordinator.epoch = 1

    assert queue.heartbeat(HeartbeatRequest()).coordinator_epoch == first + 1


@pytest.mark.parametrize(("code", "logged"), [(999, ["UNKNOWN_CODE (999)"]), (-1, [])])
def test_refusal_for_a_reason_of_a_later_server_is_logged_with_its_code(
    coordinator: Coordinator, queue: TieringQueue, caplog: pytest.LogCaptureFixture, code: int, logged: list[str]
) -> None:
    coordinator.refuses = code

    assert queue.heartbeat(HeartbeatRequest(renewed=(CLAIM,))).refused == {7: Refusal.NOT_TIERING}

    named = [record.getMessage().rpartition(" answered ")[2].partition(";")[0] for record in caplog.records]
    assert named == logged
    assert all("LAKE_TIERING_HEARTBEAT for table 7" in record.getMessage() for record in caplog.records)
    assert all("the server is Fluss 1.0" in record.getMessage() for record in caplog.records)


def test_refusals_say_why(coordinator: Coordinator, queue: TieringQueue) -> None:
    coordinator.refuses = ErrorCode.INVALID_COORDINATOR
    assert queue.heartbeat(HeartbeatRequest(renewed=(CLAIM,))).refused == {7: Refusal.COORDINATOR_CHANGED}
