"""What `lakeward doctor` says of a cluster, without one."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

from lakeward.errors import NewerSourceError, SchemaMismatchError
from lakeward.model.secrets import MASK
from lakeward.model.tables import TablePath, TableSpec
from lakeward.ports import CheckResult
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.releases import GET_TABLE_STATS
from lakeward_source_fluss.source.describe import describe_cluster, server_lakes, shown_settings
from lakeward_source_fluss.source.tables import FlussTable, TableCatalog
from lakeward_source_fluss.wire.apis import LEASE_APIS, ApiKey
from lakeward_source_fluss.wire.messages import (
    DescribeClusterConfigsResponse,
    ErrorResponse,
    GetTableInfoRequest,
    GetTableInfoResponse,
    ListDatabasesResponse,
    ListTablesResponse,
    MetadataResponse,
    PbDescribeConfig,
)
from lakeward_source_fluss_kit.releases import OF_0_9, OF_1_0
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, quick_options

MAIN = frozenset(OF_1_0)
OF_0_8 = frozenset(OF_0_9) - LEASE_APIS - {ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, GET_TABLE_STATS}
OF_1_1 = OF_1_0 | {1065: (0, 0)}


def _configs(**values: str) -> DescribeClusterConfigsResponse:
    return DescribeClusterConfigsResponse(
        configs=tuple(
            PbDescribeConfig(config_key=key, config_value=value, config_source="INITIAL_SERVER_CONFIG")
            for key, value in values.items()
        )
    )


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
    [
        (OF_1_1, "Fluss later than 1.0, told by API_VERSIONS: an API is offered that 1.0 does not have", "yes", "yes"),
        (OF_1_0, "Fluss 1.0, told by API_VERSIONS: APIs of 1.0 are offered, and none above", "yes", "yes"),
        (OF_0_9, "Fluss 0.9, told by API_VERSIONS: APIs of 0.9 are offered, and none of 1.0", "yes", "no"),
        (OF_0_8, "Fluss 0.8 or older, told by API_VERSIONS: no API of 0.9 is offered", "no", "no"),
    ],
)
def test_release_leases_and_scans_are_told_from_what_servers_offer(
    described: object, offers: Collection[int], version: str, leases: str, scans: str
) -> None:
    assert callable(described)
    found = described(offers)

    assert found["release"].message == version
    assert found["release"].warning is ("later" in version)
    assert found["leases"].message.startswith(leases)
    assert found["SCAN_KV"].message.startswith(scans)
    assert all(finding.ok for finding in found.values() if finding.what != "tiering")


@pytest.mark.parametrize(
    ("offers", "unused"),
    [
        (OF_0_9, "nothing that came after 0.9"),
        (
            OF_1_0,
            (
                "APIs of 1.0 (ALTER_DATABASE, SCAN_KV, GET_CLUSTER_HEALTH, LIST_REMOTE_LOG_MANIFESTS, "
                "LIST_KV_SNAPSHOTS); newer versions of calls (ACQUIRE_KV_SNAPSHOT_LEASE 1, GET_KV_SNAPSHOT_METADATA 1, "
                "GET_LATEST_KV_SNAPSHOTS 1, SCAN_KV 1; spoken is 0); filters and remote-first reads of logs; "
                "tables with row TTL are refused"
            ),
        ),
        (dict.fromkeys(OF_0_9, (0, 0)) | {1064: (0, 0), 1070: (0, 0)}, "APIs that are not known here (1070)"),
    ],
)
def test_what_of_a_server_is_not_used_is_said(described: object, offers: dict[int, object], unused: str) -> None:
    assert callable(described)

    assert unused in described(offers)["not used"].message


def test_scan_is_not_called_unused_where_first_rounds_scan() -> None:
    with FakeServer(_empty) as server, FlussClient.connect(quick_options(server)) as client:
        (unused,) = [one for one in describe_cluster(client, TableCatalog(client), "scan") if one.what == "not used"]

    assert "(ALTER_DATABASE, GET_CLUSTER_HEALTH," in unused.message


def test_servers_of_two_releases_are_a_warning_to_end_the_upgrade() -> None:
    with (
        FakeServer(_empty, offers=OF_0_9) as coordinator,
        FakeServer(_empty, offers=OF_1_0, server_type=2) as tablet,
    ):
        both = MetadataResponse(coordinator_server=coordinator.node(), tablet_servers=(tablet.node(1),))
        coordinator.metadata = tablet.metadata = lambda: both
        with FlussClient.connect(quick_options(tablet)) as client:
            (found,) = [one for one in describe_cluster(client, TableCatalog(client)) if one.what == "release"]
            release = client.release

    assert found.message == "the coordinator is Fluss 0.9, a tablet server Fluss 1.0 (told by API_VERSIONS)"
    assert (found.ok, found.warning, "end the upgrade" in found.action) == (True, True, True)
    assert release == "Fluss 0.9 and Fluss 1.0 by the APIs that it offers"


@pytest.mark.parametrize(
    ("answer", "said", "warns"),
    [
        (DescribeClusterConfigsResponse(), [], False),
        (_configs(**{"datalake.enabled": "true"}), ["datalake.enabled = true in the cluster"], False),
        (_configs(**{"datalake.enabled": "false"}), ["datalake.enabled = false in the cluster"], True),
        (_configs(**{"datalake.iceberg.token": "s3cret"}), [], False),
        (
            ErrorResponse(error_code=48),
            ["datalake.enabled of the cluster is not known: this user may not DESCRIBE the cluster"],
            False,
        ),
    ],
)
def test_doctor_says_whether_the_cluster_makes_lake_tables(answer: Answer, said: list[str], warns: bool) -> None:
    def answering(call: Call) -> Answer:
        return answer if call.api == ApiKey.DESCRIBE_CLUSTER_CONFIGS else _empty(call)

    with FakeServer(answering) as server, FlussClient.connect(quick_options(server)) as client:
        found = describe_cluster(client, TableCatalog(client))

    assert [one.message for one in found if "datalake.enabled" in one.message] == said
    assert any(one.warning for one in found) is warns
    assert "s3cret" not in str(found)


def test_server_without_the_tiering_protocol_is_said_to_be_good_for_mirrors_alone(described: object) -> None:
    assert callable(described)
    message = described(set(OF_0_9) - {ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT})["tiering"].message

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


TIERED = {"table.datalake.enabled": "true", "table.datalake.format": "iceberg"}
GOOD = {"schema": {"columns": [{"name": "id", "data_type": {"type": "BIGINT"}}]}, "properties": TIERED}
OF_A_LATER_TYPE = {**GOOD, "schema": {"columns": [{"name": "shape", "data_type": {"type": "GEOMETRY"}}]}}
WITHOUT_LAKE = {**OF_A_LATER_TYPE, "properties": {}}


def _listing(tables: Mapping[str, object]) -> FakeServer:
    """Serve the descriptions of tables."""

    def answer(call: Call) -> Answer:
        if call.api == ApiKey.LIST_DATABASES:
            return ListDatabasesResponse(database_name=("shop",))
        if call.api == ApiKey.LIST_TABLES:
            return ListTablesResponse(table_name=tuple(tables))
        if call.api == ApiKey.GET_TABLE_INFO:
            name = call.read(GetTableInfoRequest).table_path.table_name
            described = json.dumps(tables[name]).encode()
            number = list(tables).index(name)
            return GetTableInfoResponse(
                table_id=number, schema_id=1, table_json=described, created_time=0, modified_time=0
            )
        return None

    return FakeServer(answer)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (OF_A_LATER_TYPE, "expected a known data type, found 'GEOMETRY'"),
        ({**GOOD, "bucket_count": "four"}, "expected bucket_count between 1 and 2147483647, found 'four'"),
        ({**GOOD, "partition_key": ["month"]}, r"expected partition_key as names of columns, found \['month'\]"),
        ({**GOOD, "properties": {**TIERED, "table.datalake.freshness": "soon"}}, "found 'soon'"),
        ("no object", "expected its description as a JSON object"),
    ],
)
def test_table_that_cannot_be_described_is_listed_as_unreadable_beside_the_others(bad: object, why: str) -> None:
    with _listing({"bad": bad, "good": GOOD}) as server, FlussClient.connect(quick_options(server)) as client:
        unreadable, good = TableCatalog(client).tables()

    assert (unreadable.spec.table_id, good.spec.table_id, good.spec.unreadable) == (0, 1, "")
    assert unreadable.lake_enabled
    expected = NewerSourceError if bad is OF_A_LATER_TYPE else SchemaMismatchError
    with pytest.raises(expected, match=rf"table shop\.bad: .*{why}"):
        unreadable.spec.check_readable()


def test_table_that_a_cluster_without_lakes_has_bound_to_a_format_is_not_to_be_tiered_yet() -> None:
    bound = {**GOOD, "properties": {"table.datalake.format": "iceberg"}}
    with _listing({"bound": bound, "good": GOOD}) as server, FlussClient.connect(quick_options(server)) as client:
        tables = TableCatalog(client).tables()
        lakes = server_lakes(tables)

    assert {table.spec.path.table: table.lake_enabled for table in tables} == {"bound": False, "good": True}
    assert [str(path) for lake in lakes for path in lake.tables] == ["shop.good"]


def test_doctor_names_tables_that_cannot_be_described_and_goes_on() -> None:
    tables = {"bad": OF_A_LATER_TYPE, "later": WITHOUT_LAKE, "odd": "no object", "good": GOOD}
    with _listing(tables) as server, FlussClient.connect(quick_options(server)) as client:
        found = describe_cluster(client, TableCatalog(client))

    assert [one.message[:21] for one in found if one.warning] == [
        "table shop.bad: Fluss",
        "table shop.later: Flu",
        "table shop.odd: expec",
    ]
    assert [one.message for one in found if one.what == "lake"] == ["the server's lake: iceberg (no settings)"]
    assert "4 tables, 3 of them lake-enabled" in [one.message for one in found]
