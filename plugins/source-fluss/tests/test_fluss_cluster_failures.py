"""Servers that go away and come back. On a cluster of its own, as it is broken."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SourceError
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket, TablePath
from lakeward.model.tiering import HeartbeatRequest, Refusal, TableAssignment, TableEpoch
from lakeward_demo.fluss.writer import FlussWriter
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.tables import TableSpec
    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.slow, pytest.mark.crash]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
PATH = TablePath("fail", "t")
NAME = str(PATH)


@pytest.fixture
def source(lake_cluster: LakeCluster) -> Iterator[FlussSource]:
    """The source; the test's one table is dropped afterwards."""
    source = lake_cluster.source()
    yield source
    lake_cluster.drop(NAME)
    source.close()


@pytest.fixture
def table(lake_cluster: LakeCluster, source: FlussSource) -> TableSpec:
    """A log table of 1000 rows, due for tiering."""
    lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    rows = pa.table({"id": range(1000), "name": ["n"] * 1000}, schema=SCHEMA)
    lake_cluster.writer.append(NAME, rows)
    return source.table(PATH)


def test_new_table_without_a_leader_is_an_error_that_names_the_coordinator(lake_cluster: LakeCluster) -> None:
    with closing(FlussWriter(lake_cluster.cluster.bootstrap, leader_s=0)) as writer:
        with pytest.raises(RuntimeError, match=r"fail\.led was made, but has no leader after 0 s: the coordinator"):
            writer.create("fail.led", SCHEMA, buckets=2)
        writer.drop("fail.led")


def test_coordinator_that_missed_a_new_table_is_started_again(lake_cluster: LakeCluster) -> None:
    cluster, rows = lake_cluster.cluster, pa.table({"id": [1], "name": ["n"]}, schema=SCHEMA)
    restarted: list[str] = []

    def restart() -> None:
        cluster.restart_coordinator()
        restarted.append("coordinator")

    with closing(FlussWriter(cluster.bootstrap, None, restart, leader_s=0)) as writer:
        writer.create("fail.led", SCHEMA, buckets=2)
        writer.append("fail.led", rows)
        writer.drop("fail.led")
    assert restarted == ["coordinator"]


def test_new_table_waits_for_a_tablet_server_that_is_away_for_a_moment(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    (tablet,) = lake_cluster.cluster.tablets
    tablet.kill()
    wait_until(lambda: not source._client.tablet_servers(fresh=True), "a cluster without a tablet server")
    again = threading.Thread(target=tablet.start)
    again.start()

    lake_cluster.writer.create(NAME, SCHEMA)

    again.join()
    assert source.table(PATH).schema.names == SCHEMA.names


def test_tables_that_a_test_made_due_stay_due_when_the_coordinator_missed_a_later_one(
    lake_cluster: LakeCluster,
) -> None:
    from lakeward_source_fluss_kit.world import FlussWorld  # noqa: PLC0415 - without a cluster nothing of it is needed

    cluster = lake_cluster.cluster
    with closing(FlussWriter(cluster.bootstrap, None, cluster.restart_coordinator, leader_s=0)) as writer:
        world = FlussWorld(replace(lake_cluster, writer=writer), queue=True)
        with closing(world):
            made = {world.create(TablePath("fail", name), primary_key=False).table_id for name in ("first", "second")}
            answers = [world.source.heartbeat(HeartbeatRequest(request=True)).assignment for _ in made]
    assert {answer.table_id for answer in answers if answer is not None} == made


def test_restarted_coordinator_counts_as_another_one_and_fences_what_was_in_hand(
    lake_cluster: LakeCluster, source: FlussSource, table: TableSpec
) -> None:
    assignment = _handed(source)
    before = source.heartbeat(HeartbeatRequest()).coordinator_epoch
    lake_cluster.cluster.restart_coordinator()

    answer = source.heartbeat(HeartbeatRequest(renewed=(_epoch_of(assignment),)))

    assert answer.coordinator_epoch > before
    # The new coordinator counts from 0. Once the table is due again, a second later, its number is ours; it is not in
    # tiering then.
    assert list(answer.refused) == [table.table_id]
    assert answer.refused[table.table_id] in {Refusal.FENCED, Refusal.NOT_TIERING}


def test_nothing_is_prepared_for_a_table_that_was_lost_with_its_coordinator(
    lake_cluster: LakeCluster, source: FlussSource, table: TableSpec
) -> None:
    _handed(source)
    lake_cluster.cluster.restart_coordinator()

    with pytest.raises(SourceError, match="not ours any more"):
        source.prepare(table, {TableBucket(table.table_id, None, 0): 1000})


def test_offer_after_a_restart_is_newer_than_the_one_before(
    lake_cluster: LakeCluster, source: FlussSource, table: TableSpec
) -> None:
    first = _handed(source)
    lake_cluster.cluster.restart_coordinator()
    second = _handed(source)

    assert second.epoch == first.epoch  # a 0.9 server begins again with 1
    assert second.coordinator_epoch > first.coordinator_epoch
    assert table.table_id == second.table_id


def test_lease_outlives_a_restart_of_the_coordinator(lake_cluster: LakeCluster, source: FlussSource) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, key=["id"])
    lake_cluster.writer.change(NAME, [("upsert", {"id": 1, "name": "a"})])
    table = source.table(PATH)
    wait_until(lambda: source.buckets(table)[0].snapshot is not None, "a snapshot")
    snapshot = source.buckets(table)[0].snapshot
    assert snapshot is not None
    source.leases.acquire("outlives", 60.0, {snapshot.bucket: snapshot.snapshot_id})
    lake_cluster.cluster.restart_coordinator()
    for number in range(3):
        lake_cluster.writer.change(NAME, [("upsert", {"id": number, "name": "b"})])
        end = source.buckets(table)[0].end
        wait_until(partial(_has_snapshot, source, table, end), "a newer snapshot")

    assert source.missing_snapshots([snapshot]) == frozenset()
    source.leases.drop("outlives")


def test_reading_goes_on_when_the_tablet_server_comes_back(
    lake_cluster: LakeCluster, source: FlussSource, table: TableSpec
) -> None:
    from lakeward_source_fluss.source.plugin import FlussSourcePlugin  # noqa: PLC0415

    (tablet,) = lake_cluster.cluster.tablets
    reader = FlussSourcePlugin().reader(source.reader_task(table), table)
    bucket = TableBucket(table.table_id, None, 0)
    assert len(next(iter(reader.read_log(LogSplit("s", bucket, (), 0, 1)))).records) == 1
    time.sleep(3.0)  # see the kit's settings
    tablet.kill()
    again = threading.Timer(2.0, tablet.start)
    again.start()

    rows = pa.Table.from_batches([one.records for one in reader.read_log(LogSplit("s", bucket, (), 0, 1000))])

    again.join()
    reader.close()
    assert rows.column("id").to_pylist() == list(range(1000))
    lake_cluster.cluster.wait_ready()
    wait_until(lambda: len(source.buckets(table)) == 1, "the tablet server to answer")


def test_paused_coordinator_makes_calls_fail_in_time_and_not_hang(
    lake_cluster: LakeCluster, source: FlussSource, table: TableSpec
) -> None:
    coordinator = lake_cluster.cluster.coordinator
    assignment = _handed(source)
    coordinator.send(signal.SIGSTOP)
    try:
        # The whole of a minute is the client's business: here it is enough that reads go elsewhere.
        assert source.buckets(table)[0].end == 1000
    finally:
        coordinator.send(signal.SIGCONT)

    assert not source.heartbeat(HeartbeatRequest(renewed=(_epoch_of(assignment),))).refused


def _handed(source: FlussSource) -> TableAssignment:
    found: list[TableAssignment] = []

    def asked() -> bool:
        assignment = source.heartbeat(HeartbeatRequest(request=True)).assignment
        if assignment is not None and assignment.path == PATH:
            found.append(assignment)
        return bool(found)

    wait_until(asked, "the table to be handed over")
    return found[0]


def _epoch_of(assignment: TableAssignment) -> TableEpoch:
    return TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)


def _has_snapshot(source: FlussSource, table: TableSpec, end: int) -> bool:
    snapshot = source.buckets(table)[0].snapshot
    return snapshot is not None and snapshot.log_offset == end
