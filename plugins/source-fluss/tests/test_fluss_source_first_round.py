"""Where the rows of a first round come from: files of KV snapshots under a lease, or a scan of the servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal

import pytest

from lakeward.config.keys import keys_of
from lakeward.config.sections import build_options
from lakeward.errors import ConfigError, LogTruncatedError, SourceError
from lakeward.machines.splits.enumeration import enumerate_splits
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.describe import describe_cluster
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.tables import TableCatalog, wire_path
from lakeward_source_fluss.wire.apis import LEASE_APIS, ApiKey
from lakeward_source_fluss.wire.messages import (
    GetLatestKvSnapshotsRequest,
    GetLatestKvSnapshotsResponse,
    GetTableInfoResponse,
    ListDatabasesResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    PbBucketMetadata,
    PbKvSnapshot,
    PbListOffsetsRespForBucket,
    PbTableMetadata,
)
from lakeward_source_fluss_kit.oneserver import OneServer, client_of, compacted
from lakeward_source_fluss_kit.releases import OF_0_9, OF_1_0, OFFERS
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, Recorded

FRAMES = Path(__file__).with_name("data") / "fluss-frames.jsonl"
MAIN = frozenset(OF_1_0)
FIRST, SECOND = TableBucket(1, None, 0), TableBucket(1, None, 1)
END = 200
Choice = Literal["files", "scan"] | None
Look = Callable[..., list[BucketState]]


class RecordedTable:
    """The table `d1.pk1` of two buckets, whose snapshots were recorded: at the offsets 76 and 149 of logs of 200."""

    def __init__(self, offers: Collection[int], start: int = 0, snapshots: Answer = None) -> None:
        self._start = start
        self._snapshots = snapshots
        self._recorded = Recorded.read(FRAMES)
        self.server = FakeServer(self._answer, metadata=self._metadata, offers=offers)
        self.table = dataclasses.replace(OneServer.spec(("id",)), path=TablePath("d1", "pk1"), table_id=1, buckets=2)

    def _answer(self, call: Call) -> Answer:
        if call.api == ApiKey.GET_LATEST_KV_SNAPSHOTS:
            return self._snapshots or self._recorded(call)
        if call.api == ApiKey.LIST_DATABASES:
            return ListDatabasesResponse()
        if call.api == ApiKey.GET_TABLE_INFO:
            return GetTableInfoResponse(table_id=1, schema_id=1, table_json=b"{}", created_time=0, modified_time=0)
        if call.api != ApiKey.LIST_OFFSETS:
            return None
        asked = call.read(ListOffsetsRequest)
        offset = self._start if asked.offset_type == 0 else END
        return ListOffsetsResponse(
            buckets_resp=tuple(PbListOffsetsRespForBucket(bucket_id=one, offset=offset) for one in asked.bucket_id)
        )

    def _metadata(self) -> MetadataResponse:
        node = self.server.node()
        table = PbTableMetadata(
            table_path=wire_path(self.table.path),
            table_id=1,
            schema_id=1,
            table_json=b"{}",
            bucket_metadata=tuple(PbBucketMetadata(bucket_id=one, leader_id=0) for one in (0, 1)),
            created_time=0,
            modified_time=0,
        )
        return MetadataResponse(coordinator_server=node, tablet_servers=(node,), table_metadata=(table,))


@pytest.fixture
def look() -> Iterator[Look]:
    """Look at the table's buckets at a server that offers these APIs."""
    servers: list[FakeServer] = []

    def at(offers: Collection[int], first_round: Choice, **changes: object) -> list[BucketState]:
        recorded = RecordedTable(offers, **changes)  # type: ignore[arg-type]  # its keywords
        servers.append(recorded.server)
        with client_of(recorded.server) as client:
            return list(BucketStates(client, TableCatalog(client), first_round).states(recorded.table))

    yield at
    for server in servers:
        server.close()


@pytest.mark.parametrize("first_round", [None, "files"])
def test_server_with_leases_gives_files_whether_or_not_it_scans(
    look: Look, first_round: Choice, release: Release
) -> None:
    states = look(OFFERS[release], first_round)

    assert [state.snapshot for state in states] == [KvSnapshot(FIRST, 0, 76), KvSnapshot(SECOND, 0, 149)]


def test_first_round_from_files_takes_a_lease_and_one_by_scan_takes_none(look: Look) -> None:
    files = enumerate_splits(look(MAIN, "files"), {}, primary_key=True, max_split_rows=0)
    scan = enumerate_splits(look(MAIN, "scan"), {}, primary_key=True, max_split_rows=0)

    assert [snapshot.bucket for snapshot in files.snapshots] == [SECOND, FIRST]
    assert all(isinstance(split, SnapshotSplit) and not split.live for split in files.splits)
    assert scan.snapshots == ()
    assert all(isinstance(split, SnapshotSplit) and split.live for split in scan.splits)


def test_scan_stands_at_the_end_of_the_log(look: Look) -> None:
    assert [state.snapshot for state in look(MAIN, "scan")] == [
        KvSnapshot(FIRST, 0, END, live=True),
        KvSnapshot(SECOND, 0, END, live=True),
    ]


def test_server_that_scans_but_has_no_leases_scans_unless_files_are_wanted(look: Look) -> None:
    assert all(state.snapshot is not None and state.snapshot.live for state in look(MAIN - LEASE_APIS, None))
    assert not any(state.snapshot is None or state.snapshot.live for state in look(MAIN - LEASE_APIS, "files"))


def test_scan_at_a_server_that_cannot_is_an_error_with_the_key(look: Look) -> None:
    with pytest.raises(SourceError, match=r'source\.first_round: expected "files", found "scan".*SCAN_KV'):
        look(OF_0_9, "scan")


NONE_YET = GetLatestKvSnapshotsResponse(
    table_id=1, latest_snapshots=(PbKvSnapshot(bucket_id=0), PbKvSnapshot(bucket_id=1))
)


def test_bucket_without_a_snapshot_is_read_from_its_logs_beginning(look: Look) -> None:
    found = enumerate_splits(look(MAIN, "files", snapshots=NONE_YET), {}, primary_key=True, max_split_rows=0)

    assert [(split.bucket, split.start, split.stop) for split in found.splits if isinstance(split, LogSplit)] == [
        (FIRST, 0, END),
        (SECOND, 0, END),
    ]


def test_bucket_whose_log_has_lost_what_no_snapshot_holds_is_scanned(look: Look) -> None:
    without = look(MAIN, "files", snapshots=NONE_YET, start=10)
    with_gap = look(MAIN, "files", start=100)

    assert all(state.snapshot is not None and state.snapshot.live for state in without)
    assert [state.snapshot for state in with_gap] == [
        KvSnapshot(FIRST, 0, END, live=True),
        KvSnapshot(SECOND, 0, 149),
    ]


def test_such_a_bucket_is_an_error_where_no_server_scans(look: Look) -> None:
    states = look(OF_0_9, "files", start=100)

    with pytest.raises(LogTruncatedError, match="expected offset 76, the log starts at 100"):
        enumerate_splits(states, {}, primary_key=True, max_split_rows=0)


def test_snapshots_are_asked_for_by_files_alone() -> None:
    for choice, asked in (("files", 1), ("scan", 0)):
        recorded = RecordedTable(MAIN)
        with client_of(recorded.server) as client:
            BucketStates(client, TableCatalog(client), "scan" if choice == "scan" else "files").states(recorded.table)
        calls = recorded.server.asked(ApiKey.GET_LATEST_KV_SNAPSHOTS)
        recorded.server.close()
        assert [call.read(GetLatestKvSnapshotsRequest).table_path.table_name for call in calls] == ["pk1"] * asked


def test_both_give_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    rows = [b"\1\0" + compacted(number, b"x") for number in range(100)]
    found = {}
    with OneServer(primary_key=("id",)) as server, server.client() as client:
        server.put_snapshot(
            tmp_path / "db", ((bytes([number]), row) for number, row in enumerate(rows)), log_offset=120
        )
        server.put_scan(rows, log_offset=130)
        server.end = 130
        for choice in ("files", "scan"):
            options = FlussOptions(bootstrap="", first_round="scan" if choice == "scan" else "files")
            look = BucketStates(client, TableCatalog(client), options.first_round)
            (split,) = enumerate_splits(look.states(server.table), {}, primary_key=True, max_split_rows=0).splits
            assert isinstance(split, SnapshotSplit)
            batches = list(server.reader(client, tmp_path / "spool").read_snapshot(split))
            found[choice] = [one for batch in batches for one in batch.records.column("id").to_pylist()]
            assert batches[-1].next_offset == {"files": 120, "scan": 130}[choice]
    assert found["files"] == found["scan"] == list(range(100))


@pytest.mark.parametrize(
    ("offers", "choice", "ok", "words"),
    [
        (MAIN, None, True, 'yes: rows of a first round come from the files of KV snapshots (first_round = "files")'),
        (MAIN, "scan", True, "yes: rows of a first round come from the tablet servers, without files and leases"),
        (OF_0_9, None, True, "no: rows of a first round come from the files of KV snapshots"),
        (OF_0_9, "scan", False, 'no: set source.first_round to "files"'),
    ],
)
def test_doctor_says_where_first_rounds_read(
    offers: Collection[int],
    choice: Choice,
    ok: bool,
    words: str,
) -> None:
    recorded = RecordedTable(offers)
    with client_of(recorded.server) as client:
        found = {one.what: one for one in describe_cluster(client, TableCatalog(client), choice)}["SCAN_KV"]
    recorded.server.close()
    assert (found.ok, found.message[: len(words)]) == (ok, words)


def test_other_words_for_the_first_round_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"source\.first_round: expected one of 'files', 'scan', found 'file'"):
        build_options(FlussOptions, {"bootstrap": "a:1", "first_round": "file"}, "source")


def test_every_key_of_the_source_is_in_the_packages_page() -> None:
    page = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")

    for key in keys_of(FlussOptions).values():
        assert f"| `{key.name}` | {key.expected} |" in page
        assert key.description.replace("|", "\\|") in page
