"""A table whose `bucket.num` was changed: each partition is read with its own count of buckets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lakeward.model.splits import LogSplit
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.bucket_log import BucketLog
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.kv_scan import KvScan
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.reader import FlussReader
from lakeward_source_fluss.source.tables import TableCatalog
from lakeward_source_fluss_kit.oneserver import client_of, compacted, log_batch
from lakeward_source_fluss_kit.rescaled import Part, RescaledServer

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.client import FlussClient


def counted(server: RescaledServer) -> dict[tuple[str, ...], int]:
    """Return how many buckets the source finds in each partition."""
    with client_of(server.server) as client:
        states = BucketStates(client, TableCatalog(client)).states(server.table)
    return Counter(state.partition for state in states)


def reader(server: RescaledServer, client: FlussClient) -> FlussReader:
    return FlussReader(client, FlussOptions(bootstrap=str(server.server.endpoint)), server.table)


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 2)])
def test_each_partition_is_enumerated_with_its_own_count(old: int, new: int) -> None:
    with RescaledServer(new, {"mon": Part(1, old), "tue": Part(2, new)}) as server:
        assert counted(server) == {("mon",): old, ("tue",): new}

        assert set(server.counts) == {old, new}


def test_server_that_does_not_say_counts_is_asked_without_one() -> None:
    with RescaledServer(3, {"mon": Part(1, 3)}, release=Release.V0_9) as server:
        assert counted(server) == {("mon",): 3}

        assert set(server.counts) == {None}


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 2)])
def test_log_of_an_older_partition_is_read_with_its_count(old: int, new: int) -> None:
    day = (compacted(number, b"mon") for number in range(3))
    parts = {"mon": Part(1, old), "tue": Part(2, new)}
    with RescaledServer(new, parts, log=log_batch(0, day), end=3) as server, client_of(server.server) as client:
        split = LogSplit("b", server.bucket("mon", old - 1), ("mon",), 0, 3)

        rows = [one for batch in reader(server, client).read_log(split) for one in batch.records["id"].to_pylist()]

    assert rows == [0, 1, 2]
    assert set(server.counts) == {old}


def test_count_that_the_server_has_found_stale_is_asked_for_again() -> None:
    with RescaledServer(4, {"mon": Part(1, 2, heard=1)}) as server:
        assert counted(server) == {("mon",): 2}

        assert server.counts[:2] == [1, 2]


def test_partitions_are_enumerated_and_read_at_either_release(release: Release) -> None:
    days = log_batch(0, (compacted(number, b"mon") for number in range(3)))
    parts = {"mon": Part(1, 2), "tue": Part(2, 2)}
    with RescaledServer(2, parts, release=release, log=days, end=3) as server, client_of(server.server) as client:
        assert counted(server) == {("mon",): 2, ("tue",): 2}
        split = LogSplit("b", server.bucket("tue", 1), ("tue",), 0, 3)

        assert sum(batch.records.num_rows for batch in reader(server, client).read_log(split)) == 3

    assert set(server.counts) == ({2} if release is Release.V1_0 else {None})


def test_fetch_with_a_stale_count_is_made_anew_with_the_right_one() -> None:
    day = [compacted(0, b"mon")]
    parts = {"mon": Part(1, 2, heard=4)}
    with RescaledServer(4, parts, log=log_batch(0, day), end=1) as server, client_of(server.server) as client:
        split = LogSplit("b", server.bucket("mon", 1), ("mon",), 0, 1)

        assert sum(batch.records.num_rows for batch in reader(server, client).read_log(split)) == 1

    assert server.counts == [4, 2]


def test_server_that_has_not_heard_of_a_partition_yet_is_asked_again() -> None:
    with RescaledServer(4, {"mon": Part(1, 4)}, not_ready=2) as server:
        assert counted(server) == {("mon",): 4}


def test_scan_of_a_bucket_is_opened_with_the_partitions_count() -> None:
    with RescaledServer(4, {"mon": Part(1, 2)}) as server, client_of(server.server) as client:
        log = BucketLog(client, Storage({}), server.table, server.bucket("mon", 1), 1)

        assert list(KvScan(log).batches({})) == []

    assert server.counts == [2]
