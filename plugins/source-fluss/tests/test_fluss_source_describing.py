"""What `lakeward doctor` says of a cluster, without one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from lakeward.model.secrets import MASK
from lakeward.model.tables import TablePath, TableSpec
from lakeward.ports import CheckResult
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.source.describe import describe_cluster, server_lakes, shown_settings
from lakeward_source_fluss.source.tables import FlussTable, TableCatalog
from lakeward_source_fluss.wire.apis import LEASE_APIS, ApiKey
from lakeward_source_fluss.wire.messages import ListDatabasesResponse
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, quick_options

MAIN = frozenset(ApiKey)
OF_0_9 = MAIN - {ApiKey.SCAN_KV, ApiKey.LIST_KV_SNAPSHOTS, ApiKey.GET_CLUSTER_HEALTH}
OF_0_8 = OF_0_9 - LEASE_APIS


def _empty(call: Call) -> Answer:
    return ListDatabasesResponse() if call.api == ApiKey.LIST_DATABASES else None


@pytest.fixture
def described() -> Iterator[object]:
    """Describe a server that offers these APIs."""
    servers: list[FakeServer] = []

    def ask(offers: Collection[int]) -> dict[str, CheckResult]:
        servers.append(FakeServer(_empty, offers=offers))
        with FlussClient.connect(quick_options(servers[-1])) as client:
            return {finding.what: finding for finding in describe_cluster(client, TableCatalog(client))}

    yield ask
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("offers", "version", "leases", "scans"),
    [(MAIN, "later than 0.9", "yes", "yes"), (OF_0_9, "Fluss 0.9 ", "yes", "no"), (OF_0_8, "0.8 or older", "no", "no")],
)
def test_release_leases_and_scans_are_told_from_what_servers_offer(
    described: object, offers: Collection[int], version: str, leases: str, scans: str
) -> None:
    assert callable(described)
    found = described(offers)

    assert version in found["servers"].message
    assert found["leases"].message.startswith(leases)
    assert found["SCAN_KV"].message.startswith(scans)
    assert all(finding.ok for finding in found.values())


def test_server_without_the_tiering_protocol_is_said_to_be_good_for_mirrors_alone(described: object) -> None:
    assert callable(described)
    message = described(OF_0_9 - {ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT})["tiering"].message

    assert "PREPARE_LAKE_TABLE_SNAPSHOT" in message
    assert "mirror" in message


def test_settings_of_the_lakes_catalog_are_shown_without_secrets() -> None:
    settings = {
        "type": "rest",
        "uri": "https://bob:pw1@lake.example:8181/api?token=pw2",
        "credential": "pw3",
        "s3.secret-access-key": "pw4",
        "warehouse": "s3://bucket/dir",
    }
    shown = shown_settings(settings)

    assert "pw" not in shown
    assert f"uri=https://{MASK}@lake.example:8181/api?{MASK}" in shown
    assert "warehouse=s3://bucket/dir" in shown
    assert f"credential={MASK}" in shown


def test_lakes_of_the_server_are_those_of_lake_enabled_tables_each_once() -> None:
    def table(name: str, *, enabled: bool, **settings: str) -> FlussTable:
        spec = TableSpec(TablePath("shop", name), 1, 1, pa.schema([]), (), (), (), 1, 180.0)
        return FlussTable(spec, cast("Any", None), enabled, "iceberg", settings)

    tables = [
        table("a", enabled=True, uri="http://catalog"),
        table("b", enabled=True, uri="http://catalog"),
        table("c", enabled=False, uri="http://other"),
    ]
    (found,) = server_lakes(tables)
    assert [str(path) for path in found.tables] == ["shop.a", "shop.b"]
    assert (found.lake_format, found.settings) == ("iceberg", {"uri": "http://catalog"})
