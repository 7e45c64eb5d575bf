from __future__ import annotations

from lakeward_demo.fluss.probe import knows_tablet_server
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.messages import ErrorResponse, MetadataResponse
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer


def answers_by_itself(_call: Call) -> Answer:
    return None


def refuses(call: Call) -> Answer:
    return ErrorResponse(error_code=65, error_message="starting") if call.api == ApiKey.GET_METADATA else None


def test_a_coordinator_that_lists_a_tablet_server_knows_one() -> None:
    with FakeServer(answers_by_itself) as server:
        assert knows_tablet_server(server.endpoint.port)


def test_a_coordinator_without_tablet_servers_knows_none() -> None:
    with FakeServer(answers_by_itself) as server:
        server.metadata = lambda: MetadataResponse(coordinator_server=server.node())
        assert not knows_tablet_server(server.endpoint.port)


def test_a_server_that_refuses_or_is_gone_knows_none() -> None:
    with FakeServer(refuses) as server:
        assert not knows_tablet_server(server.endpoint.port)
    assert not knows_tablet_server(server.endpoint.port)
