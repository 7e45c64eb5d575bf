"""Leaders that move, tables and partitions that change under a reader, ZooKeeper away, a full disk."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import LakewardError, StorageError, TableError, TableGoneError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket, TablePath
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.tables import TableSpec
    from lakeward_source_fluss.source.reader import FlussReader
    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss.wire.messages import PbTablePath
    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.slow, pytest.mark.crash]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
DAY = pa.field("day", pa.string(), nullable=False)
PATH = TablePath("changes", "t")
NAME = str(PATH)
PIECE = 1
"""Bytes of a fetch: a whole batch comes each time, so there is a moment between two."""


@pytest.fixture
def source(lake_cluster: LakeCluster) -> Iterator[FlussSource]:
    """The source; the test's one table is dropped afterwards."""
    source = lake_cluster.source()
    yield source
    lake_cluster.drop(NAME)
    source.close()


@pytest.fixture
def reading(
    lake_cluster: LakeCluster, source: FlussSource, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[TableSpec], FlussReader]]:
    """Open readers whose fetches and batches are small."""
    from lakeward_source_fluss.formats.storage import Storage  # noqa: F401, PLC0415 - what a subtask loads
    from lakeward_source_fluss.source import reader  # noqa: PLC0415
    from lakeward_source_fluss.source.connect import connect  # noqa: PLC0415
    from lakeward_source_fluss.source.options import FlussOptions  # noqa: PLC0415

    opened: list[FlussReader] = []
    monkeypatch.setattr("lakeward.model.batches.ROWS_LEAST", 1)
    # A cluster on a busy machine takes its time to choose another leader.
    monkeypatch.setattr("lakeward_source_fluss.source.bucket_log.PATIENCE_S", LIMIT_S)

    def start(table: TableSpec, spool: str = "") -> FlussReader:
        options = FlussOptions(bootstrap=lake_cluster.cluster.bootstrap, fetch_bytes=PIECE, spool=spool)
        opened.append(reader.FlussReader(connect(options), options, table))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_reading_follows_a_leader_whose_server_dies(
    lake_cluster: LakeCluster, source: FlussSource, reading: Callable[[TableSpec], FlussReader]
) -> None:
    cluster = lake_cluster.cluster
    second = cluster.add_tablet()
    _until(lambda: set(source._client.tablet_servers(fresh=True)) == {0, 1}, "both tablet servers")
    try:
        lake_cluster.writer.create(NAME, SCHEMA, properties={"table.replication.factor": "2"})
        _until(lambda: bool(source._client.leaders(_wire(), fresh=True)), "a leader")
        lake_cluster.writer.forget()  # what it learned when there was no leader yet, it would believe for ever
        for start in range(0, 1000, 100):
            lake_cluster.writer.append(NAME, _rows(start, 100))
        table = source.table(PATH)
        (state,) = source.buckets(table)
        batches = reading(table).read_log(LogSplit("s", state.bucket, (), 0, 1000))
        found = [next(batches).records]
        leader = source._client.leaders(_wire(), fresh=True)[0]
        cluster.tablets[leader].kill()

        found += [batch.records for batch in batches]

        assert pa.Table.from_batches(found).column("id").to_pylist() == list(range(1000))
        assert source.buckets(table)[0].end == 1000
        assert source._client.leaders(_wire(), fresh=True)[0] != leader
    finally:
        if not cluster.tablets[0].running:
            cluster.tablets[0].start()
            _until(lambda: set(source._client.tablet_servers(fresh=True)) == {0, 1}, "the first server again")
        lake_cluster.drop(NAME)
        second.kill()
        cluster.tablets.remove(second)
        # By its id: a list of the dead one alone would do for a count, and a new table would be put on it.
        _until(lambda: set(source._client.tablet_servers(fresh=True)) == {0}, "the first tablet server alone")


def test_reading_goes_on_while_zookeeper_is_away_and_writing_afterwards(
    lake_cluster: LakeCluster, source: FlussSource, reading: Callable[[TableSpec], FlussReader]
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA)
    for start in range(0, 300, 100):
        lake_cluster.writer.append(NAME, _rows(start, 100))
    table = source.table(PATH)
    batches = reading(table).read_log(LogSplit("s", TableBucket(table.table_id, None, 0), (), 0, 300))
    found = [next(batches).records]
    lake_cluster.cluster.zookeeper.kill()
    again = threading.Timer(1.5, lake_cluster.cluster.zookeeper.start)
    again.start()

    found += [batch.records for batch in batches]

    again.join()
    assert pa.Table.from_batches(found).column("id").to_pylist() == list(range(300))
    assert source.buckets(table)[0].end == 300
    lake_cluster.writer.append(NAME, _rows(300, 1))
    _until(lambda: source.buckets(table)[0].end == 301, "the row")


def test_table_that_is_made_anew_under_a_reader_is_never_taken_for_the_old_one(
    lake_cluster: LakeCluster, source: FlussSource, reading: Callable[[TableSpec], FlussReader]
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA)
    for start in range(0, 300, 100):
        lake_cluster.writer.append(NAME, _rows(start, 100))
    old = source.table(PATH)
    batches = reading(old).read_log(LogSplit("s", TableBucket(old.table_id, None, 0), (), 0, 300))
    next(batches)
    lake_cluster.drop(NAME)
    lake_cluster.writer.create(NAME, SCHEMA)
    lake_cluster.writer.append(NAME, _rows(5000, 300))

    with pytest.raises(TableGoneError, match=r"table changes\.t: expected id \d+, found \d+; it was created anew"):
        list(batches)
    with pytest.raises(TableGoneError):
        source.buckets(old)


def test_rows_of_a_schema_that_is_newer_than_the_round_are_left_to_the_next_one(
    lake_cluster: LakeCluster, source: FlussSource, reading: Callable[[TableSpec], FlussReader]
) -> None:
    from lakeward_source_fluss_kit.messages import AlterTableRequest, PbAddColumn  # noqa: PLC0415

    lake_cluster.writer.create(NAME, SCHEMA)
    lake_cluster.writer.append(NAME, _rows(0, 100))
    old = source.table(PATH)
    bucket = TableBucket(old.table_id, None, 0)
    column = PbAddColumn(column_name="more", data_type_json=b'{"type":"BIGINT"}', column_position_type=0)
    source._client.call_coordinator(
        AlterTableRequest(table_path=_wire(), ignore_if_not_exists=False, add_columns=(column,))
    )
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    lake_cluster.writer.forget()

    def written() -> bool:  # again and again: right after a change of schema a server may take rows and drop them
        lake_cluster.writer.append(NAME, pa.table({"id": [100], "name": ["n"], "more": [7]}, schema=wider))
        return source.buckets(old)[0].end == 101

    wait_until(written, "a row of the new schema", turn_s=1.0)

    # What the round had planned is read as it was; what came with the new column is not cut down to the old ones.
    planned = list(reading(old).read_log(LogSplit("s", bucket, (), 0, 100)))
    assert sum(len(batch.records) for batch in planned) == 100
    with pytest.raises(TableError, match="was changed while the round ran; the next one takes the new columns in"):
        list(reading(old).read_log(LogSplit("s", bucket, (), 0, 101)))
    now = source.table(PATH)
    rows = pa.Table.from_batches([one.records for one in reading(now).read_log(LogSplit("s", bucket, (), 0, 101))])
    assert rows.column("more").to_pylist() == [None] * 100 + [7]


def test_partition_that_is_dropped_under_a_reader_fails_the_round_and_not_the_table(
    lake_cluster: LakeCluster, source: FlussSource, reading: Callable[[TableSpec], FlussReader]
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA.append(DAY), partition=["day"], bucket_key=["id"])
    for day in ("mon", "tue"):
        lake_cluster.writer.partition(NAME, {"day": day})
        for start in range(0, 300, 100):
            lake_cluster.writer.append(NAME, _rows(start, 100).append_column(DAY, pa.array([day] * 100)))
    table = source.table(PATH)
    states = {state.partition: state for state in source.buckets(table)}
    monday = states["mon",]
    batches = reading(table).read_log(LogSplit("s", monday.bucket, ("mon",), 0, 300))
    next(batches)
    lake_cluster.writer.drop_partition(NAME, {"day": "mon"})
    lake_cluster.writer.partition(NAME, {"day": "wed"})

    with pytest.raises(TableError, match="its partition was dropped") as failed:
        list(batches)
    assert not failed.value.permanent
    assert not isinstance(failed.value, TableGoneError)
    assert {state.partition for state in source.buckets(table)} == {("tue",), ("wed",)}


def test_partitions_that_the_server_makes_by_itself_are_found(lake_cluster: LakeCluster, source: FlussSource) -> None:
    auto = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.time-unit": "DAY",
        "table.auto-partition.num-precreate": "2",
    }
    lake_cluster.writer.create(NAME, SCHEMA.append(DAY), partition=["day"], bucket_key=["id"], properties=auto)
    table = source.table(PATH)

    _until(lambda: len({state.partition for state in source.buckets(table)}) == 2, "both partitions")
    assert all(len(day) == 8 and day.isdigit() for state in source.buckets(table) for day in state.partition)


def test_snapshot_that_the_disk_has_no_room_for_is_an_error_that_names_the_directory(
    lake_cluster: LakeCluster, source: FlussSource, reading: Callable[..., FlussReader], tmp_path: Path
) -> None:
    spool = tmp_path / "small"
    spool.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(spool)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs may be mounted here")
    try:
        lake_cluster.writer.create(NAME, SCHEMA, key=["id"])
        lake_cluster.writer.upsert(NAME, _rows(0, 100))
        table = source.table(PATH)
        _until(lambda: source.buckets(table)[0].snapshot is not None, "a snapshot")
        snapshot = source.buckets(table)[0].snapshot
        assert snapshot is not None
        split = SnapshotSplit("s", snapshot.bucket, (), snapshot.snapshot_id, snapshot.log_offset)
        with pytest.raises(StorageError, match=r"bytes of free disk in .*small"):
            list(reading(table, spool=str(spool)).read_snapshot(split))
        assert list(spool.iterdir()) == []
    finally:
        subprocess.run(["umount", str(spool)], check=True)


def test_doctor_knows_what_this_release_can_do(lake_cluster: LakeCluster, source: FlussSource) -> None:
    tiered = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
    lake_cluster.writer.create(NAME, SCHEMA, properties=tiered)
    found = {finding.what: finding.message for finding in source.describe()}

    assert found["release"].startswith("Fluss 0.9, told by API_VERSIONS")
    assert found["not used"] == "nothing that came after 0.9"
    assert "datalake.enabled" not in found["lake"]
    assert found["leases"].startswith("yes")
    assert found["SCAN_KV"].startswith("no")
    assert found["tiering"].startswith("yes")
    assert f"uri={lake_cluster.catalog_uri}" in found["lake"]


def _rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count), "name": ["n"] * count}, schema=SCHEMA)


def _wire() -> PbTablePath:
    from lakeward_source_fluss.source.tables import wire_path  # noqa: PLC0415 - without a cluster it is not needed

    return wire_path(PATH)


def _until(happened: Callable[[], bool], what: str) -> None:
    """Wait, whatever a server that is just starting answers meanwhile; if in vain, tell its last answer."""
    answers: list[object] = []

    def has_happened() -> bool:
        try:
            answers[:] = [happened()]
        except LakewardError as error:
            answers[:] = [error]
            return False
        return bool(answers[0])

    try:
        wait_until(has_happened, what)
    except AssertionError as error:
        error.add_note(f"the last answer: {answers}")
        raise
