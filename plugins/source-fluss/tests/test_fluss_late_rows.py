"""Rows of partitions that have expired: the source finds the partition that holds them, and reads it as a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from lakeward.machines.splits import enumerate_splits
from lakeward.model.splits import LogSplit
from lakeward.model.tables import BucketState, Change
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.partitions import HISTORICAL
from lakeward_source_fluss.source.tables import TableCatalog
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.errors import PartitionMissingError
from lakeward_source_fluss.wire.messages import ListOffsetsRequest
from lakeward_source_fluss_kit.late import LATE, MON, LateServer
from lakeward_source_fluss_kit.oneserver import client_of
from lakeward_source_fluss_kit.rescaled import PATH, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward_source_fluss_kit.server import Answer, Call


def states(server: LateServer, first_round: Literal["files", "scan"] | None = None) -> Sequence[BucketState]:
    with client_of(server.server) as client:
        return BucketStates(client, TableCatalog(client), first_round).states(server.table)


def test_table_says_that_late_rows_may_come() -> None:
    with LateServer.made() as server, client_of(server.server) as client:
        assert TableCatalog(client).table(PATH).spec.late_rows


def test_buckets_of_late_rows_have_no_partition_values() -> None:
    with LateServer.made(buckets=1) as server:
        server.add(LATE, 0, (Change.APPEND, 1, "sun", "a"))

        late, mon = states(server)

    assert late == BucketState(late.bucket, (), 0, 1, None)
    assert (late.bucket.partition_id, mon.bucket.partition_id, mon.partition) == (LATE, MON, ("mon",))


def test_late_rows_are_looked_at_before_the_partitions_are_listed() -> None:
    """A partition that expires in between is not listed any more: no key is in two partitions of one round."""
    calls: list[object] = []
    with LateServer.made() as server:
        told = server.server.answer

        def noted(call: Call) -> Answer:
            if call.api == ApiKey.LIST_OFFSETS:
                calls.append(call.read(ListOffsetsRequest).partition_id)
            elif call.api == ApiKey.LIST_PARTITION_INFOS:
                calls.append("list")
                server.parts.pop("mon", None)
            return told(call)

        server.server.answer = noted
        found = states(server)

    assert calls == [LATE, LATE, "list"]
    assert {state.partition for state in found} == {()}


@pytest.mark.parametrize("first_round", [None, "files", "scan"])
def test_late_rows_of_a_keyed_table_have_neither_snapshots_nor_scans(
    first_round: Literal["files", "scan"] | None,
) -> None:
    with LateServer.made(key=True, buckets=1) as server:
        server.parts.pop("mon")
        server.start = 3
        server.add(LATE, 0, *[(Change.INSERT, number, "sun", "a") for number in range(5)])

        found = states(server, first_round)

        assert not server.server.asked(ApiKey.GET_LATEST_KV_SNAPSHOTS)
    (late,) = found
    assert late.snapshot is None
    round_ = enumerate_splits(found, {}, primary_key=True, max_split_rows=0, late_rows=True)
    assert round_.splits == (LogSplit("p7-b0-3", late.bucket, (), 3, 5),)


def test_a_server_without_the_partition_is_an_error_and_no_table_without_late_rows() -> None:
    with LateServer.made() as server:
        server.parts.pop(HISTORICAL)

        with pytest.raises(PartitionMissingError):
            states(server)


def test_partition_for_late_rows_that_goes_away_is_no_empty_one() -> None:
    with LateServer.made() as server:
        told = server.server.answer

        def drops(call: Call) -> Answer:
            if call.api == ApiKey.LIST_OFFSETS:
                server.parts = {"mon": Part(MON, 2)}
            return told(call)

        server.server.answer = drops
        with pytest.raises(PartitionMissingError):
            states(server)
