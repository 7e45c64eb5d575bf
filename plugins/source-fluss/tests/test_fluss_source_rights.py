"""A user without a right learns which one is missing, and on which table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakeward.errors import TableError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.source.bucket_log import BucketLog
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.leases import FlussLeases
from lakeward_source_fluss.source.partitions import listed_partitions
from lakeward_source_fluss.source.read_snapshot import snapshot_files
from lakeward_source_fluss.source.registry import LakeRegistry
from lakeward_source_fluss.source.schemas import TableSchemas
from lakeward_source_fluss.source.tables import TableCatalog
from lakeward_source_fluss.wire.apis import RIGHTS, ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import AuthorizationError
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    FetchLogResponse,
    PbFetchLogRespForBucket,
    PbFetchLogRespForTable,
    ScanKvResponse,
)
from lakeward_source_fluss_kit.oneserver import BUCKET, PATH, TABLE_ID, OneServer, client_of
from lakeward_source_fluss_kit.rescaled import Part, RescaledServer

SAID = "Principal User:bob have no authorization"
REFUSAL = ErrorResponse(error_code=ErrorCode.AUTHORIZATION, error_message=SAID)
IN_PARTS = {
    ApiKey.FETCH_LOG: FetchLogResponse(
        tables_resp=(
            PbFetchLogRespForTable(
                table_id=TABLE_ID,
                buckets_resp=(
                    PbFetchLogRespForBucket(bucket_id=0, error_code=ErrorCode.AUTHORIZATION, error_message=SAID),
                ),
            ),
        )
    ),
    ApiKey.SCAN_KV: ScanKvResponse(error_code=ErrorCode.AUTHORIZATION, error_message=SAID),
}
CALLS: dict[ApiKey, Callable[[OneServer], object]] = {}


def made_by(api: ApiKey) -> Callable[[Callable[[OneServer], object]], Callable[[OneServer], object]]:
    def note(call: Callable[[OneServer], object]) -> Callable[[OneServer], object]:
        CALLS[api] = call
        return call

    return note


@made_by(ApiKey.GET_TABLE_INFO)
def describe(server: OneServer) -> object:
    with server.client() as client:
        return TableCatalog(client).table(PATH)


@made_by(ApiKey.GET_TABLE_SCHEMA)
def fetch_schema(server: OneServer) -> object:
    with server.client() as client:
        return TableSchemas(client, server.table)[1]


@made_by(ApiKey.LIST_OFFSETS)
def enumerate_buckets(server: OneServer) -> object:
    with server.client() as client:
        return BucketStates(client, TableCatalog(client), "scan").states(server.table)


@made_by(ApiKey.GET_LATEST_KV_SNAPSHOTS)
def look_for_snapshots(server: OneServer) -> object:
    with server.client() as client:
        return BucketStates(client, TableCatalog(client), "files").states(server.table)


@made_by(ApiKey.GET_KV_SNAPSHOT_METADATA)
def list_files(server: OneServer) -> object:
    with server.client() as client:
        return snapshot_files(client, BUCKET, 1)


@made_by(ApiKey.GET_LAKE_SNAPSHOT)
def look_at_the_record(server: OneServer) -> object:
    with server.client() as client:
        return LakeRegistry(client, TableCatalog(client)).record(server.table)


@made_by(ApiKey.FETCH_LOG)
def read_log(server: OneServer) -> object:
    with server.client() as client:
        return list(server.reader(client).read_log(LogSplit("b0", BUCKET, (), 0, 1)))


@made_by(ApiKey.SCAN_KV)
def scan(server: OneServer) -> object:
    with server.client() as client:
        return list(server.reader(client).read_snapshot(SnapshotSplit("b0", BUCKET, (), 0, 1, True)))


@made_by(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE)
def acquire(server: OneServer) -> object:
    with server.client() as client:
        return FlussLeases(client).acquire("svc", 60.0, {BUCKET: 1})


@made_by(ApiKey.RELEASE_KV_SNAPSHOT_LEASE)
def release_lease(server: OneServer) -> None:
    with server.client() as client:
        FlussLeases(client).release("svc", [BUCKET])


@pytest.mark.parametrize("api", list(CALLS))
def test_right_and_table_are_named_where_a_call_is_refused(api: ApiKey) -> None:
    with OneServer(primary_key=("id",)) as server:
        server.further[api] = lambda _: IN_PARTS.get(api, REFUSAL)
        with pytest.raises(AuthorizationError) as refused:
            CALLS[api](server)
        assert len(server.server.asked(api)) == 1

    named = {str(PATH), f"id {TABLE_ID}"}
    wanted = [f"expected {RIGHTS[api]} on table {name}, found it missing" for name in named]
    assert any(text in str(refused.value) for text in wanted)
    assert f"{api.name} " in str(refused.value)
    assert f"AUTHORIZATION (48): {SAID}" in str(refused.value)
    assert not isinstance(refused.value, TableError), "a right can be granted while the service runs"


def test_right_to_list_partitions_is_named() -> None:
    with RescaledServer(1, {"mon": Part(1, 1)}) as server, client_of(server.server) as client:
        told = server.server.answer
        server.server.answer = lambda call: REFUSAL if call.api == ApiKey.LIST_PARTITION_INFOS else told(call)
        with pytest.raises(AuthorizationError, match=r"expected DESCRIBE on table db\.days, found it missing"):
            listed_partitions(client, server.table)


def test_every_call_that_needs_a_right_on_a_table_is_tried_here() -> None:
    assert set(RIGHTS) == {*CALLS, ApiKey.LIST_PARTITION_INFOS}


def test_bounds_of_a_log_that_was_cut_need_the_right_to_describe_it() -> None:
    with OneServer() as server, server.client() as client:
        server.further[ApiKey.LIST_OFFSETS] = lambda _: REFUSAL
        log = BucketLog(client, Storage(), server.table, BUCKET, 1)
        with pytest.raises(AuthorizationError, match=rf"expected DESCRIBE on table {PATH}"):
            log.truncation(0)
