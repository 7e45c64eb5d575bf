"""Small buckets of an append-only table are gathered in one file of their partition; large ones are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest

from lakeward.coordinator.rounds.context import RoundContext
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.gathering import layout_of
from lakeward.coordinator.rounds.layout import resolve_layout
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.machines.splits import Enumeration
from lakeward.model.identity import RoundId
from lakeward.model.results import LakeHead
from lakeward.model.settings import ExchangeChoice, TableSettings
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket, TablePath, TableSpec
from lakeward.model.tiering import TableAssignment
from lakeward_service_kit.service_world import World
from lakeward_service_kit.stored_values import GATHERED, START, WITH_LEASE
from lakeward_testing.folder_lake import FolderLake

PATH = TablePath("shop", "orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("paid", pa.bool_())])
TARGET = 8_000
HEAD = LakeHead(PATH, 1, "/w", 5, None, None, target_file_bytes=TARGET, row_bytes=10.0)


def context(
    *rows: int, head: LakeHead = HEAD, exchange: ExchangeChoice = "auto", keys: tuple[str, ...] = ()
) -> RoundContext:
    """Return a round of so many records of each bucket."""
    table = TableSpec(PATH, 1, 1, SCHEMA, keys, (), (), len(rows), 1.0)
    layout = resolve_layout(table, TableSettings(lake_partition=("bucket(4, id)",), exchange=exchange, mode="mirror"))
    splits = [
        LogSplit(f"b{bucket}", TableBucket(1, None, bucket), (), 100, 100 + count) for bucket, count in enumerate(rows)
    ]
    enumeration = Enumeration(tuple(splits), MappingProxyType({}), (), behind=False)
    return RoundContext(table, head, {}, (), enumeration, layout)


def gathers(one: RoundContext) -> bool:
    """Say whether a round that begins now gathers buckets."""
    return replace(one, layout=layout_of(one, None)).gathered


def test_buckets_are_gathered_below_an_eighth_of_the_target_size_on_average() -> None:
    assert gathers(context(10, 189))
    assert not gathers(context(10, 190))


def test_no_more_rows_are_gathered_than_one_file_of_the_target_size_has() -> None:
    assert gathers(context(*[79] * 10))
    assert not gathers(context(*[80] * 10))


def test_one_bucket_of_several_partitions_of_the_source_counts_once() -> None:
    one = context(99)
    more = LogSplit("p", TableBucket(1, 7, 0), ("x",), 0, 1)
    both = Enumeration((*one.enumeration.splits, more), MappingProxyType({}), (), behind=False)
    assert gathers(one)
    assert not gathers(replace(one, enumeration=both))


def test_as_long_as_no_file_says_how_wide_a_row_is_its_columns_do() -> None:
    head = replace(HEAD, row_bytes=None)
    assert gathers(context(123, head=head))
    assert not gathers(context(124, head=head))


@pytest.mark.parametrize(
    "one",
    [
        context(1, 1, exchange="hash"),
        context(1, 1, exchange="none"),
        context(1, 1, keys=("id",)),
        context(1, 1, head=replace(HEAD, target_file_bytes=None)),
    ],
    ids=["hash", "none", "primary key", "unknown target"],
)
def test_nothing_is_gathered_where_it_may_not_be_or_is_anyway(one: RoundContext) -> None:
    assert not gathers(one)
    assert layout_of(one, None) == one.layout


def test_a_round_that_goes_on_divides_its_rows_as_it_began() -> None:
    large, small = context(900, 900), context(1, 1, exchange="hash")
    assert not layout_of(small, GATHERED.coordinator).route_by_bucket
    assert layout_of(context(1, 1), WITH_LEASE.coordinator).route_by_bucket
    assert "each bucket has few rows" in layout_of(large, GATHERED.coordinator).message


@pytest.mark.parametrize("rows", [1, 900])
def test_a_checkpoint_says_whether_its_round_gathers(rows: int) -> None:
    one = context(rows, rows)
    facts = RoundFacts(TableAssignment(PATH, 1, 3, 0, 1.0), RoundId(START, 1, 3, 2), started_ms=0)
    facts.start_from(replace(one, layout=layout_of(one, None)))
    assert facts.snapshot(RoundProgress(one.enumeration)).gathered is (rows == 1)


@pytest.mark.parametrize(("exchange", "files"), [("auto", 1), ("hash", 2)])
def test_a_small_round_writes_one_file_to_each_partition_unless_every_round_is_to_be_divided_alike(
    tmp_path: Path, exchange: ExchangeChoice, files: int
) -> None:
    world = World.create(tmp_path)
    path = world.table("log", buckets=8)
    world.rules = lambda _: TableSettings(mode="mirror", lake_partition=("truncate(1000, id)",), exchange=exchange)
    world.load(path, 0, 40)
    lake = FolderLake(world.lake.root, target_bytes=1 << 20)
    assert world.once(mirrors=True, lake=lake, rounds=1).failed == ()
    assert sorted(row["id"] for row in lake.read(path)) == list(range(40))
    assert len(lake.files_on_disk(path)) == files
