from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeward.errors import (
    ConfigError,
    LeaseApiMissingError,
    OutcomeUnknownError,
    ProtocolError,
    SourceError,
    UsageError,
)
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.options import Endpoint
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.errors import (
    ClientClosedError,
    FlussServerError,
    ServerUnreachableError,
    SnapshotMissingError,
    TableMissingError,
    UnansweredChangeError,
    UnansweredReadError,
    UnsupportedApiError,
)
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    GetKvSnapshotMetadataRequest,
    GetTableInfoRequest,
    ListDatabasesRequest,
    ListDatabasesResponse,
    ListTablesRequest,
    ListTablesResponse,
    MetadataResponse,
    PbTablePath,
    ScanKvRequest,
)
from lakeward_source_fluss.wire.tiering_messages import (
    AcquireKvSnapshotLeaseRequest,
    DropKvSnapshotLeaseRequest,
    DropKvSnapshotLeaseResponse,
    LakeTieringHeartbeatRequest,
)
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, HangUp, Recorded, quick_options
from lakeward_testing.waiting import LIMIT_S, wait_until

FRAMES = Path(__file__).with_name("data") / "fluss-frames.jsonl"
DROP = DropKvSnapshotLeaseRequest(lease_id="l")
MISSING_SNAPSHOT = GetKvSnapshotMetadataRequest(table_id=1, bucket_id=0, snapshot_id=6)


def silent(_: Call) -> Answer:
    return None


Serve = Callable[..., FakeServer]
Connect = Callable[..., FlussClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[FakeServer] = []

    def start(answer: Callable[[Call], Answer] = silent, **how: object) -> FakeServer:
        servers.append(FakeServer(answer, **how))  # type: ignore[arg-type]  # passed on as given
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[FlussClient] = []

    def start(*servers: FakeServer, **how: float) -> FlussClient:
        clients.append(FlussClient.connect(quick_options(*servers, **how)))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def test_recorded_calls_are_answered_as_recorded(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Recorded.read(FRAMES)))
    assert client.call_any(ListTablesRequest(database_name="g")).table_name == ("gpk",)


def test_a_refusal_is_raised_as_its_class(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Recorded.read(FRAMES)))
    with pytest.raises(TableMissingError, match=r"GET_TABLE_INFO at 127.*TABLE_NOT_EXIST \(7\)"):
        client.call_any(GetTableInfoRequest(table_path=PbTablePath(database_name="d1", table_name="nope")))


def test_a_refused_call_leaves_the_connection_usable(serve: Serve, connect: Connect) -> None:

    def answer(call: Call) -> Answer:
        if call.api == ApiKey.GET_KV_SNAPSHOT_METADATA:
            return ErrorResponse(error_code=41, error_message="gone")
        return ListDatabasesResponse(database_name=("d",)) if call.api == ApiKey.LIST_DATABASES else None

    server = serve(answer)
    client = connect(server)
    with pytest.raises(SnapshotMissingError):
        client.call_any(MISSING_SNAPSHOT)
    assert client.call_any(ListDatabasesRequest()).database_name == ("d",)
    assert {call.connection for call in server.calls} == {0}


def test_the_handshake_comes_before_all_other_calls(serve: Serve, connect: Connect) -> None:
    server = serve()
    connect(server)
    assert [call.api for call in server.calls] == [ApiKey.API_VERSIONS, ApiKey.GET_METADATA]


def test_answers_out_of_order_reach_their_callers(serve: Serve, connect: Connect) -> None:
    later = threading.Event()

    def answer(call: Call) -> Answer:
        if call.api != ApiKey.LIST_TABLES:
            return None
        name = call.read(ListTablesRequest).database_name
        if name == "first":
            later.wait(LIMIT_S)
        else:
            later.set()
        return ListTablesResponse(table_name=(name,))

    server = serve(answer)
    client = connect(server)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(client.call_any, ListTablesRequest(database_name="first"))
        wait_until(lambda: server.asked(ApiKey.LIST_TABLES), "the call to arrive")
        second = threads.submit(client.call_any, ListTablesRequest(database_name="second"))
        assert second.result().table_name == ("second",)
        assert first.result().table_name == ("first",)
    assert {call.connection for call in server.calls} == {0}


def test_many_threads_share_one_connection(serve: Serve, connect: Connect) -> None:
    def answer(call: Call) -> Answer:
        if call.api == ApiKey.LIST_TABLES:
            return ListTablesResponse(table_name=(call.read(ListTablesRequest).database_name,))
        return None

    server = serve(answer)
    client = connect(server)
    names = [str(number) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda name: client.call_any(ListTablesRequest(database_name=name)), names))
    assert [one.table_name for one in found] == [(name,) for name in names]
    assert {call.connection for call in server.calls} == {0}


def test_a_change_without_an_answer_has_an_unknown_outcome_and_is_sent_once(serve: Serve, connect: Connect) -> None:
    server = serve()
    client = connect(server)
    with pytest.raises(OutcomeUnknownError, match=r"DROP_KV_SNAPSHOT_LEASE: no answer .* may have taken effect"):
        client.call_coordinator(DROP, timeout_s=0.2)
    assert len(server.asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)) == 1


def test_a_read_without_an_answer_had_no_effect(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    with pytest.raises(UnansweredReadError):
        client.call_coordinator(ListDatabasesRequest(), timeout_s=0.2)


def test_an_answer_that_comes_too_late_harms_nobody(serve: Serve, connect: Connect) -> None:
    late = threading.Event()

    def answer(call: Call) -> Answer:
        if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE:
            late.wait(LIMIT_S)
            return DropKvSnapshotLeaseResponse()
        return ListDatabasesResponse() if call.api == ApiKey.LIST_DATABASES else None

    server = serve(answer)
    client = connect(server)
    with pytest.raises(UnansweredChangeError):
        client.call_coordinator(DROP, timeout_s=0.5)
    late.set()
    for _ in range(3):
        client.call_coordinator(ListDatabasesRequest())
    assert {call.connection for call in server.calls} == {0}


def test_a_connection_that_fell_silent_is_given_up(serve: Serve, connect: Connect) -> None:
    def answer(call: Call) -> Answer:
        is_drop = call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE
        return DropKvSnapshotLeaseResponse() if is_drop and call.connection > 0 else None

    server = serve(answer)
    client = connect(server, silence_s=0.1)
    before = client.coordinator_connection_id
    with pytest.raises(UnansweredChangeError):
        client.call_coordinator(DROP, timeout_s=0.2)
    client.call_coordinator(DROP)
    assert {call.connection for call in server.asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)} == {0, 1}
    assert before != client.coordinator_connection_id


def test_a_change_on_a_broken_connection_has_an_unknown_outcome(serve: Serve, connect: Connect) -> None:
    def answer(call: Call) -> Answer:
        if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE:
            raise HangUp
        return None

    server = serve(answer)
    client = connect(server)
    with pytest.raises(UnansweredChangeError, match="broke"):
        client.call_coordinator(DROP)
    assert len(server.asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)) == 1


def test_a_read_on_a_broken_connection_is_repeated_on_a_new_one(serve: Serve, connect: Connect) -> None:
    def answer(call: Call) -> Answer:
        if call.api == ApiKey.LIST_DATABASES:
            if call.connection == 0:
                raise HangUp
            return ListDatabasesResponse(database_name=("d",))
        return None

    client = connect(serve(answer))
    assert client.call_coordinator(ListDatabasesRequest()).database_name == ("d",)


def test_a_new_connection_to_the_coordinator_has_another_id(serve: Serve, connect: Connect) -> None:
    server = serve(lambda call: ListDatabasesResponse() if call.api == ApiKey.LIST_DATABASES else None)
    client = connect(server)
    client.call_coordinator(ListDatabasesRequest())
    first = client.coordinator_connection_id
    client.call_coordinator(ListDatabasesRequest())
    assert client.coordinator_connection_id == first != 0
    server.hang_up()
    client.call_coordinator(ListDatabasesRequest())
    assert client.coordinator_connection_id not in {first, 0}


def test_an_answer_tells_the_connection_that_it_came_on(serve: Serve, connect: Connect) -> None:
    server = serve(lambda call: ListDatabasesResponse() if call.api == ApiKey.LIST_DATABASES else None)
    client = connect(server)
    _, first = client.call_coordinator_seen(ListDatabasesRequest())
    assert first == client.coordinator_connection_id
    server.hang_up()
    _, second = client.call_coordinator_seen(ListDatabasesRequest())
    assert first != second == client.coordinator_connection_id


def test_an_api_that_is_not_offered_is_never_sent(serve: Serve, connect: Connect) -> None:
    server = serve(offers=[ApiKey.API_VERSIONS, ApiKey.GET_METADATA, ApiKey.LAKE_TIERING_HEARTBEAT])
    client = connect(server)
    with pytest.raises(UnsupportedApiError, match=r"SCAN_KV \(1061\)"):
        client.call_tablet(0, ScanKvRequest())
    with pytest.raises(LeaseApiMissingError, match="ACQUIRE_KV_SNAPSHOT_LEASE"):
        client.call_coordinator(AcquireKvSnapshotLeaseRequest(lease_id="l", lease_duration_ms=1))
    assert not client.supports(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE)
    assert not client.supports(ApiKey.SCAN_KV)
    assert client.supports(ApiKey.LAKE_TIERING_HEARTBEAT)
    assert not server.asked(ApiKey.SCAN_KV)


def test_a_cluster_that_is_not_there_is_named(serve: Serve) -> None:
    server = serve()
    server.close()
    with pytest.raises(ServerUnreachableError, match=str(server.endpoint)):
        FlussClient.connect(quick_options(server))


def test_the_next_bootstrap_server_is_asked_where_the_first_is_away(serve: Serve, connect: Connect) -> None:
    away, there = serve(), serve()
    away.close()
    connect(away, there)
    assert there.asked(ApiKey.GET_METADATA)


def test_a_server_that_hangs_leaves_time_for_the_others(serve: Serve, connect: Connect) -> None:
    both = MetadataResponse()
    there = serve(lambda call: ListDatabasesResponse() if call.api == ApiKey.LIST_DATABASES else None)
    hangs = serve(metadata=lambda: both)
    both = MetadataResponse(coordinator_server=there.node(), tablet_servers=(hangs.node(1), there.node(2)))
    client = connect(hangs, there, timeout_s=2.0)
    client.call_any(ListDatabasesRequest())
    assert hangs.asked(ApiKey.LIST_DATABASES)


def test_a_client_that_was_forked_refuses_to_work(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    opened_in, client._loop._process = client._loop._process, -1
    with pytest.raises(UsageError, match="no fork"):
        client.call_any(ListDatabasesRequest())
    client._loop._process = opened_in


def test_a_closed_client_says_so(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    client.close()
    client.close()
    with pytest.raises(ClientClosedError):
        client.call_any(ListDatabasesRequest())


def test_closing_fails_the_calls_in_flight(serve: Serve, connect: Connect) -> None:
    server = serve()
    client = connect(server)
    with ThreadPoolExecutor(2) as threads:
        change = threads.submit(client.call_coordinator, LakeTieringHeartbeatRequest())
        wait_until(lambda: server.asked(ApiKey.LAKE_TIERING_HEARTBEAT), "the call to arrive")
        client.close()
        with pytest.raises((OutcomeUnknownError, SourceError)):
            change.result(LIMIT_S)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes.fromhex("15030300020228"),
        b"\x00" * 64,
        b"\xff" * 64,
        bytes.fromhex("0000000902ffffffffff0f1200"),
    ],
)
def test_a_server_that_talks_garbage_is_an_error_and_no_hang(serve: Serve, garbage: bytes) -> None:
    server = serve(lambda _: garbage)
    with pytest.raises(SourceError, match=str(server.endpoint)):
        FlussClient.connect(quick_options(server))


def test_an_answer_to_a_call_that_nobody_made_breaks_the_connection(serve: Serve, connect: Connect) -> None:
    stray = bytes.fromhex("000000050000000999")
    server = serve(lambda call: stray if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE else None)
    client = connect(server)
    with pytest.raises(UnansweredChangeError, match="expected the id of a request"):
        client.call_coordinator(DROP)


def test_a_failure_of_the_server_fails_what_is_in_flight(serve: Serve, connect: Connect) -> None:
    failure = bytes.fromhex("0000000c02 08ffffffffffffffffff01".replace(" ", ""))
    server = serve(lambda call: failure if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE else None)
    client = connect(server)
    with pytest.raises(UnansweredChangeError, match="gave the connection up: -1"):
        client.call_coordinator(DROP)


def test_a_malformed_body_is_an_error(serve: Serve, connect: Connect) -> None:
    def answer(call: Call) -> Answer:
        if call.api == ApiKey.LIST_TABLES:
            return bytes.fromhex("0000000700") + call.request_id.to_bytes(4, "big") + b"\x0a\x7f"
        return None

    with pytest.raises(ProtocolError, match="table_name"):
        connect(serve(answer)).call_any(ListTablesRequest(database_name="d"))


def test_an_error_without_text_still_names_the_code(serve: Serve, connect: Connect) -> None:

    client = connect(serve(lambda call: ErrorResponse(error_code=15) if call.api == ApiKey.LIST_TABLES else None))
    with pytest.raises(FlussServerError, match=r"INVALID_TABLE \(15\)$"):
        client.call_any(ListTablesRequest(database_name="d"))


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:-1"])
def test_a_malformed_endpoint_is_a_configuration_error(text: str) -> None:

    with pytest.raises(ConfigError, match=r"source\.bootstrap: expected HOST:PORT"):
        Endpoint.parse(text)


def test_endpoints_are_read_and_shown_alike() -> None:
    for text in ("h.example:9123", "127.0.0.1:1", "[::1]:9123"):
        assert str(Endpoint.parse(text)) == text
