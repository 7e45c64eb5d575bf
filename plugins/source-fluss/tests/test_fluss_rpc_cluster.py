from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from lakeward.errors import TableGoneError
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.topology import BucketAddress
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.errors import (
    BucketCountError,
    NotCoordinatorLeaderError,
    ServerUnreachableError,
    StaleMetadataError,
    TableMissingError,
    UnansweredChangeError,
)
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    GetTableInfoRequest,
    MetadataRequest,
    MetadataResponse,
    PbBucketMetadata,
    PbPartitionMetadata,
    PbTableMetadata,
    PbTablePath,
)
from lakeward_source_fluss.wire.tiering_messages import DropKvSnapshotLeaseRequest, DropKvSnapshotLeaseResponse
from lakeward_source_fluss_kit.messages import LimitScanRequest, LimitScanResponse
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, HangUp, quick_options
from lakeward_testing.waiting import wait_until

FRAMES = Path(__file__).with_name("data") / "fluss-frames.jsonl"
PATH = PbTablePath(database_name="d", table_name="t")
BUCKET = BucketAddress(PATH, None, 0)
DROP = DropKvSnapshotLeaseRequest(lease_id="l")
SCAN = LimitScanRequest(table_id=1, bucket_id=0, limit=1)


class Cluster:
    """Two coordinators and two tablet servers; what they say about each other is set by the test."""

    def __init__(self, stack: ExitStack) -> None:
        self.leads: FakeServer | None = None
        self.leader_id: int | None = 1
        self.dropped = False
        self.coordinators = [stack.enter_context(FakeServer(self.coordinate)) for _ in range(2)]
        self.tablets = [
            stack.enter_context(FakeServer(self.store(number), server_type=2, metadata=self.metadata))
            for number in (1, 2)
        ]
        for coordinator in self.coordinators:
            coordinator.metadata = self.metadata
        self.leads = self.coordinators[0]
        self.client = stack.enter_context(FlussClient.connect(quick_options(*self.tablets)))

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            coordinator_server=self.leads.node() if self.leads else None,
            tablet_servers=tuple(server.node(number) for number, server in enumerate(self.tablets, start=1)),
        )

    def coordinate(self, call: Call) -> Answer:
        if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE:
            return DropKvSnapshotLeaseResponse()
        return None

    def store(self, number: int) -> Callable[[Call], Answer]:
        def answer(call: Call) -> Answer:
            if call.api == ApiKey.GET_METADATA and call.read(MetadataRequest).table_path:
                return self.described(call.read(MetadataRequest))
            if call.api == ApiKey.GET_TABLE_INFO:
                return ErrorResponse(error_code=7)
            if call.api == ApiKey.LIMIT_SCAN:
                return LimitScanResponse() if number == self.leader_id else ErrorResponse(error_code=12)
            return None

        return answer

    def described(self, request: MetadataRequest) -> Answer:
        if self.dropped:
            return ErrorResponse(error_code=-1, error_message="Failed to get tables '[d.t]'")
        buckets = (PbBucketMetadata(bucket_id=0, leader_id=self.leader_id), PbBucketMetadata(bucket_id=1, leader_id=-1))
        table = PbTableMetadata(
            table_path=PATH,
            table_id=1,
            schema_id=1,
            table_json=b"{}",
            bucket_metadata=() if request.partitions_id else buckets,
            created_time=0,
            modified_time=0,
        )
        partitions = tuple(
            PbPartitionMetadata(table_id=1, partition_name="p", partition_id=one, bucket_metadata=buckets)
            for one in request.partitions_id
        )
        found = self.metadata()
        return MetadataResponse(
            coordinator_server=found.coordinator_server,
            tablet_servers=found.tablet_servers,
            table_metadata=(table,),
            partition_metadata=partitions,
        )


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack)


def test_the_coordinator_is_found_through_a_tablet_server(cluster: Cluster) -> None:
    cluster.client.call_coordinator(DROP)
    assert len(cluster.coordinators[0].asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)) == 1


def test_a_coordinator_that_no_longer_leads_is_left_for_the_one_that_does(cluster: Cluster) -> None:
    cluster.client.call_coordinator(DROP)
    before = cluster.client.coordinator_connection_id
    cluster.coordinators[0].answer = lambda _: ErrorResponse(error_code=65)
    cluster.leads = cluster.coordinators[1]
    cluster.client.call_coordinator(DROP)
    assert len(cluster.coordinators[1].asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)) == 1
    assert cluster.client.coordinator_connection_id not in {before, 0}


def test_a_request_for_another_count_of_buckets_is_not_sent_again_as_it_is(cluster: Cluster) -> None:
    leader = cluster.tablets[0]
    told = leader.answer
    leader.answer = lambda call: ErrorResponse(error_code=74) if call.api == ApiKey.LIMIT_SCAN else told(call)

    with pytest.raises(BucketCountError, match=r"LIMIT_SCAN at 127\.0\.0\.1:\d+: .*STALE_METADATA \(74\)"):
        cluster.client.call_leader(BUCKET, SCAN)

    assert len(leader.asked(ApiKey.LIMIT_SCAN)) == 1


def test_a_coordinator_that_does_not_lead_yet_is_waited_for(cluster: Cluster) -> None:
    refused: list[Call] = []

    def starting(call: Call) -> Answer:
        if call.api != ApiKey.DROP_KV_SNAPSHOT_LEASE:
            return None
        refused.append(call)
        return ErrorResponse(error_code=65) if len(refused) < 4 else DropKvSnapshotLeaseResponse()

    cluster.coordinators[0].answer = starting
    cluster.client.call_coordinator(DROP)
    assert len(refused) == 4


def test_a_standby_that_takes_over_at_another_address_is_learnt_from_the_tablet_servers(cluster: Cluster) -> None:
    """Metadata names the dead leader for some seconds; the standby answers 65 until it leads."""
    cluster.client.call_coordinator(DROP)
    before = cluster.client.coordinator_connection_id
    refused: list[Call] = []

    def standing_by(call: Call) -> Answer:
        if call.api != ApiKey.DROP_KV_SNAPSHOT_LEASE:
            return None
        refused.append(call)
        return ErrorResponse(error_code=65) if len(refused) < 3 else DropKvSnapshotLeaseResponse()

    answers = count()

    def named_later() -> MetadataResponse:
        if next(answers) >= 2:
            cluster.leads = cluster.coordinators[1]
        return cluster.metadata()

    cluster.coordinators[1].answer = standing_by
    for tablet in cluster.tablets:
        tablet.metadata = named_later
    cluster.coordinators[0].close()
    wait_until(lambda: cluster.client.coordinator_connection_id == 0, "the client to know that its coordinator is gone")

    cluster.client.call_coordinator(DROP)

    assert len(refused) == 3
    assert cluster.client.coordinator_connection_id not in {before, 0}


def test_a_standby_among_the_servers_to_begin_with_is_passed_over(cluster: Cluster) -> None:
    standby = cluster.coordinators[1]
    standby.answer = lambda call: None if call.api == ApiKey.API_VERSIONS else ErrorResponse(error_code=65)
    with FlussClient.connect(quick_options(standby, *cluster.tablets)) as client:
        client.call_coordinator(DROP)

        with pytest.raises(TableMissingError):
            client.call_any(GetTableInfoRequest(table_path=PATH))

    assert not standby.asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)


def hesitant(cluster: Cluster) -> FlussClient:
    """Connect a client whose pauses double: of 4 s the last half is a pause, so no call is on its way at their end."""
    return FlussClient.connect(replace(quick_options(*cluster.tablets), backoff_limit_s=60.0))


def test_waiting_for_a_coordinator_ends_with_its_last_word(cluster: Cluster) -> None:
    cluster.coordinators[0].answer = lambda call: (
        ErrorResponse(error_code=65) if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE else None
    )
    with hesitant(cluster) as client, pytest.raises(NotCoordinatorLeaderError):
        client.call_coordinator(DROP, timeout_s=4.0)


def test_an_election_is_waited_for(cluster: Cluster) -> None:
    cluster.leads = None
    asked = len(cluster.tablets[0].calls)

    def elected_later(_: Call) -> Answer:
        if len(cluster.tablets[0].calls) > asked + 3:
            cluster.leads = cluster.coordinators[1]
        return None

    cluster.tablets[0].answer = elected_later
    cluster.client.tablet_servers(fresh=True)
    cluster.client.call_coordinator(DROP)
    assert cluster.coordinators[1].asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)


def test_a_cluster_without_a_coordinator_is_an_error_in_time(cluster: Cluster) -> None:
    cluster.leads = None
    cluster.client.tablet_servers(fresh=True)
    with pytest.raises(ServerUnreachableError, match="names no coordinator"):
        cluster.client.call_coordinator(DROP, timeout_s=0.2)
    assert cluster.client.coordinator_connection_id == 0


def test_a_coordinator_that_dies_with_a_change_leaves_it_unknown(cluster: Cluster) -> None:
    def dying(call: Call) -> Answer:
        if call.api == ApiKey.DROP_KV_SNAPSHOT_LEASE:
            raise HangUp
        return None

    cluster.coordinators[0].answer = dying
    with pytest.raises(UnansweredChangeError):
        cluster.client.call_coordinator(DROP)
    assert len(cluster.coordinators[0].asked(ApiKey.DROP_KV_SNAPSHOT_LEASE)) == 1


def test_leaders_leave_out_buckets_without_one(cluster: Cluster) -> None:
    assert cluster.client.leaders(PATH) == {0: 1}
    assert cluster.client.leaders(PATH, 7) == {0: 1}


def test_leaders_are_remembered_until_they_are_asked_for_afresh(cluster: Cluster) -> None:
    cluster.client.leaders(PATH)
    cluster.leader_id = 2
    assert cluster.client.leaders(PATH) == {0: 1}
    assert cluster.client.leaders(PATH, fresh=True) == {0: 2}
    cluster.leader_id = 1
    cluster.client.forget_leaders(PATH)
    assert cluster.client.leaders(PATH) == {0: 1}


def test_a_leader_that_moved_is_followed(cluster: Cluster) -> None:
    cluster.client.call_leader(BUCKET, SCAN)
    cluster.leader_id = 2
    cluster.client.call_leader(BUCKET, SCAN)
    assert len(cluster.tablets[1].asked(ApiKey.LIMIT_SCAN)) == 1


def test_a_bucket_without_a_leader_is_named_when_the_time_is_over(cluster: Cluster) -> None:
    with (
        hesitant(cluster) as client,
        pytest.raises(StaleMetadataError, match=r"d\.t bucket 1: .*LEADER_NOT_AVAILABLE"),
    ):
        client.call_leader(BucketAddress(PATH, None, 1), SCAN, timeout_s=4.0)


def test_an_unknown_table_is_a_table_gone_although_metadata_says_minus_one(cluster: Cluster) -> None:
    cluster.dropped = True
    with pytest.raises(TableMissingError) as raised:
        cluster.client.leaders(PATH)
    assert isinstance(raised.value, TableGoneError)


def test_an_unknown_tablet_server_is_named(cluster: Cluster) -> None:
    with pytest.raises(ServerUnreachableError, match=r"tablet server 9: not among the cluster's \[1, 2\]"):
        cluster.client.call_tablet(9, SCAN)


def test_the_tablet_servers_are_known(cluster: Cluster) -> None:
    assert cluster.client.tablet_servers() == {
        1: str(cluster.tablets[0].endpoint),
        2: str(cluster.tablets[1].endpoint),
    }


def test_a_tablet_server_that_is_away_is_an_error_while_the_others_answer(cluster: Cluster) -> None:
    cluster.tablets[0].close()
    with pytest.raises(ServerUnreachableError):
        cluster.client.call_tablet(1, SCAN)
    cluster.leader_id = 2
    cluster.client.call_tablet(2, SCAN)


def test_a_server_that_hangs_costs_one_call_and_not_each(cluster: Cluster) -> None:
    silent = cluster.tablets[0]
    silent.answer = lambda _call: None
    for _ in range(3):
        with pytest.raises(TableMissingError):
            cluster.client.call_any(GetTableInfoRequest(table_path=PATH))
    assert len(silent.asked(ApiKey.GET_TABLE_INFO)) == 1
    assert len(cluster.tablets[1].asked(ApiKey.GET_TABLE_INFO)) == 3


@pytest.mark.parametrize(("release", "scans"), [(None, False), ("main", True)])
def test_recorded_servers_of_two_releases_offer_leases_and_only_main_offers_scans(
    release: str | None, scans: bool
) -> None:
    keys = offered(release)
    with (
        FakeServer(lambda _: None, offers=keys[1]) as coordinator,
        FakeServer(lambda _: None, offers=keys[2], server_type=2) as tablet,
    ):
        both = MetadataResponse(coordinator_server=coordinator.node(), tablet_servers=(tablet.node(1),))
        tablet.metadata = lambda: both
        with FlussClient.connect(quick_options(tablet)) as client:
            assert client.supports(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE)
            assert client.supports(ApiKey.SCAN_KV) is scans
            assert client.supports(ApiKey.LIST_KV_SNAPSHOTS) is scans


def offered(release: str | None) -> dict[int, list[int]]:
    """Return the recorded keys by server type."""
    frames = map(json.loads, FRAMES.read_text(encoding="utf-8").splitlines())
    answers = [one["response"] for one in frames if one["key"] == 1000 and one.get("server") == release]
    return {one["server_type"]: [version["api_key"] for version in one["api_versions"]] for one in answers}
