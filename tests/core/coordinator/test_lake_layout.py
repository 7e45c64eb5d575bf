"""Which layouts a table can have, and how its rows get to their writers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from lakeward.coordinator.rounds.layout import (
    LakeLayout,
    check_late_rows,
    check_splits,
    resolve_layout,
    with_bucket_counts,
)
from lakeward.errors import ConfigError, SchemaMismatchError
from lakeward.model.partitioning import ExchangeMode, PartitionField
from lakeward.model.settings import ExchangeChoice, TableMode, TableSettings
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import BucketState, TableBucket, TablePath, TableSpec
from lakeward.model.wire import pack_table, unpack_table
from lakeward_testing.folder_lake import FolderLake

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("at", pa.timestamp("us")),
        pa.field("utc", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time64("us")),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("rank", pa.decimal128(2, 0)),
        pa.field("level", pa.decimal256(2, 0)),
        pa.field("weight", pa.float64()),
        pa.field("paid", pa.bool_()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("__offset", pa.int64()),
    ]
)
BUCKET = TableBucket(1, None, 0)


def table(*primary_key: str, before_images: bool = True) -> TableSpec:
    path = TablePath("shop", "orders")
    return TableSpec(path, 1, 1, SCHEMA, primary_key, (), (), 4, 1.0, before_images=before_images)


def resolve(spec: TableSpec, *fields: str, exchange: ExchangeChoice = "auto", mode: TableMode = "mirror") -> LakeLayout:
    rules = TableSettings(lake_partition=fields, exchange=exchange, mode=mode)
    return resolve_layout(spec, rules)


def refused(spec: TableSpec, *fields: str, exchange: ExchangeChoice = "auto") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(spec, *fields, exchange=exchange)
    return caught.value


def test_a_table_without_a_partitioning_has_the_sources_layout_and_no_exchange() -> None:
    layout = resolve(table(), mode="tier")
    assert (layout.fields, layout.exchange, layout.names) == ((), ExchangeMode.NONE, ())


def test_a_misspelt_column_is_answered_with_the_nearest() -> None:
    assert "Did you mean 'region'? Columns of shop.orders: id, region, " in str(refused(table(), "regoin"))


def test_an_append_only_table_is_divided_by_partition_and_bucket() -> None:
    layout = resolve(table(), "day(at)", "bucket(16, id)")
    assert (layout.exchange, layout.route_by_bucket) == (ExchangeMode.HASH, True)
    assert layout.fields == (PartitionField("day", "at"), PartitionField("bucket", "id", 16))


def test_a_key_that_holds_the_partition_columns_is_divided_by_partition_alone() -> None:
    layout = resolve(table("id", "region"), "region", "bucket(4, id)")
    assert (layout.exchange, layout.route_by_bucket) == (ExchangeMode.HASH, False)


def test_a_partition_column_outside_the_key_keeps_a_key_in_one_writer() -> None:
    layout = resolve(table("id"), "bucket(4, id)", "day(at)")
    assert layout.exchange is ExchangeMode.NONE
    assert "'at' is outside the primary key" in layout.reason


@pytest.mark.parametrize("spec", [table(), table("id")])
def test_an_exchange_of_none_is_always_possible(spec: TableSpec) -> None:
    assert resolve(spec, "bucket(4, id)", exchange="none").exchange is ExchangeMode.NONE


@pytest.mark.parametrize("fields", [(), ("day(at)",)])
def test_a_table_whose_rows_are_not_exchanged_needs_no_subtasks_that_start_together(fields: tuple[str, ...]) -> None:
    rules = TableSettings(lake_partition=fields, mode="mirror")
    assert resolve_layout(table("id"), rules, gangs=False).exchange is ExchangeMode.NONE


@pytest.mark.parametrize("spec", [table(), table("id", "region")])
def test_an_exchange_without_subtasks_that_start_together_is_refused(spec: TableSpec) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_layout(spec, TableSettings(lake_partition=("region",), mode="mirror"), gangs=False)
    assert str(caught.value) == (
        'tables."shop.orders".exchange: expected `none`, because `spark.dynamicAllocation.enabled` is true: then Spark '
        'starts no subtasks together, found \'auto\'. Or set "spark.dynamicAllocation.enabled" = "false" in '
        "[spark.conf]."
    )


def test_an_exchange_without_a_partitioning_is_refused() -> None:
    error = refused(table(), exchange="hash")
    assert str(error).startswith('tables."shop.orders".exchange: expected `auto` or `none`')


def test_a_partitioned_table_in_mode_tier_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'tables\."shop\.orders"\.mode: expected `mirror`'):
        resolve(table(), "id", mode="tier")


def test_an_exchange_of_hash_for_a_column_outside_the_key_is_refused() -> None:
    error = refused(table("id"), "day(at)", exchange="hash")
    assert (error.key, error.found) == ('tables."shop.orders".exchange', "hash")
    assert "'at' is outside the primary key" in error.expected


def test_a_column_outside_the_key_needs_the_rows_from_before_updates() -> None:
    error = refused(table("id", before_images=False), "day(at)")
    assert (error.key, error.found) == ('tables."shop.orders".lake_partition', "at")
    assert "no rows from before an update" in error.hint


def test_a_column_of_the_key_does_not_need_them() -> None:
    assert resolve(table("id", before_images=False), "bucket(4, id)").exchange is ExchangeMode.HASH


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("day(missing)", "missing"),
        ("__offset", "__offset"),
        ("__bucket", "__bucket"),
        ("tags", "tags (list<item: string>)"),
        ("weight", "weight (double)"),
        ("year(region)", "region (string)"),
        ("day(clock)", "clock (time64[us])"),
        ("hour(day)", "day (date32[day])"),
        ("bucket(4, weight)", "weight (double)"),
        ("bucket(4, paid)", "paid (bool)"),
        ("bucket(4, tags)", "tags (list<item: string>)"),
        ("truncate(4, at)", "at (timestamp[us])"),
        ("truncate(4, weight)", "weight (double)"),
        ("truncate(100, rank)", "rank (decimal128(2, 0))"),
        ("truncate(1000, level)", "level (decimal256(2, 0))"),
    ],
)
def test_a_field_that_the_columns_do_not_allow_is_refused(field: str, found: str) -> None:
    error = refused(table(), "id", field)
    assert (error.key, error.found) == ('tables."shop.orders".lake_partition', found)


def test_a_width_that_no_negative_number_fits_is_refused_with_the_largest_one() -> None:
    """Rounded down to a multiple of 100, each negative number has three digits or more."""
    assert str(refused(table(), "truncate(100, rank)")) == (
        'tables."shop.orders".lake_partition: expected for truncate of decimals of 2 digits a width from 1 to 99, '
        "found 'rank (decimal128(2, 0))'. In 'truncate(100, rank)'."
    )
    assert resolve(table(), "truncate(99, rank)").names == ("truncate(99, rank)",)
    assert resolve(table(), "truncate(2147483647, raw)").names == ("truncate(2147483647, raw)",)


@pytest.mark.parametrize(
    "field",
    [
        *("id", "region", "at", "day", "clock", "price", "paid", "raw"),
        *("year(at)", "month(utc)", "day(day)", "hour(utc)"),
        *(f"bucket(4, {name})" for name in ("id", "region", "at", "utc", "day", "clock", "price", "raw")),
        *(f"truncate(4, {name})" for name in ("id", "region", "price", "raw")),
    ],
)
def test_a_field_that_the_columns_allow_is_taken(field: str) -> None:
    assert resolve(table(), field).names == (field,)


@pytest.mark.parametrize("fields", [("id", "id"), ("day(at)", "hour(at)"), ("bucket(4, id)", "bucket(8, id)")])
def test_two_fields_of_one_kind_are_refused(fields: tuple[str, str]) -> None:
    error = refused(table(), *fields)
    assert error.found == fields[1]
    assert error.hint == f"{fields[0]!r} is such a field already: a column may be in one field of each kind."


def test_a_field_within_a_struct_is_refused_as_such() -> None:
    assert refused(table(), "tags.element").hint == "A field within a struct cannot be partitioned by."


@pytest.mark.parametrize("fields", [("day(at)", "day(utc)"), ("id", "bucket(4, id)"), ("at", "day(at)")])
def test_fields_that_say_different_things_are_taken(fields: tuple[str, str]) -> None:
    assert resolve(table(), *fields).names == fields


LIVE = SnapshotSplit("live", BUCKET, (), 0, 5, live=True)
READ_AGAIN = (SnapshotSplit("files", BUCKET, (), 1, 5), LogSplit("log", BUCKET, (), 0, 5))


def test_a_live_snapshot_is_refused_with_an_exchange_and_the_key_is_named() -> None:
    spec = table("id")
    with pytest.raises(
        ConfigError, match=r'tables\."shop\.orders"\.exchange: expected `none`, because the snapshot'
    ) as no:
        check_splits(spec, resolve(spec, "bucket(4, id)"), (*READ_AGAIN, LIVE))
    assert "without the key there is one, because the partition columns are in the primary key" in str(no.value)


@pytest.mark.parametrize("exchange", ["auto", "none"])
def test_other_splits_are_read_with_and_without_an_exchange(exchange: ExchangeChoice) -> None:
    spec = table("id")
    check_splits(spec, resolve(spec, "bucket(4, id)", exchange=exchange), READ_AGAIN)


def test_a_live_snapshot_is_read_without_an_exchange() -> None:
    spec = table("id")
    check_splits(spec, resolve(spec, "bucket(4, id)", exchange="none"), (LIVE,))


def by_region(*counts: int, bucket_key: tuple[str, ...] = ("id",)) -> tuple[TableSpec, list[BucketState]]:
    """Return a table of four buckets that is partitioned by region, and partitions with these counts of buckets."""
    states = [
        BucketState(TableBucket(1, number, bucket), (f"r{number}",), 0, 0, None)
        for number, count in enumerate(counts)
        for bucket in range(count)
    ]
    return replace(table(), partition_keys=("region",), bucket_key=bucket_key), states


def test_a_partition_with_another_count_of_buckets_than_the_lake_is_refused_with_what_to_do(tmp_path: Path) -> None:
    spec, states = by_region(4, 2, 8)

    expected = (
        r"shop\.orders: partition r1 and 1 more: expected 4 buckets, .* column 'id', found 2: .*"
        r'Drop the partitions with another count, or mirror .*`mode = "mirror"`.*lakeward tables accept'
    )
    with pytest.raises(SchemaMismatchError, match=expected):
        with_bucket_counts(spec, states, FolderLake(tmp_path))


def test_counts_of_buckets_may_differ_where_the_lake_does_not_divide_by_the_bucket_key(tmp_path: Path) -> None:
    spec, states = by_region(4, 2, 8, bucket_key=())
    assert with_bucket_counts(spec, states, FolderLake(tmp_path)) == spec


def test_a_lake_that_keeps_a_count_of_each_partition_is_told_those_that_differ(tmp_path: Path) -> None:
    spec, states = by_region(4, 2, 8)
    told = unpack_table(pack_table(with_bucket_counts(spec, states, TakingLake(tmp_path))))
    assert told.bucket_counts == ((("r1",), 2), (("r2",), 8))


def test_partitions_with_the_tables_count_of_buckets_fit(tmp_path: Path) -> None:
    spec, states = by_region(4, 4)
    assert with_bucket_counts(spec, states, FolderLake(tmp_path)) == spec


@pytest.mark.parametrize("found", [3, 5])
def test_a_table_without_partitions_whose_count_of_buckets_was_changed_since_it_was_described_is_refused(
    tmp_path: Path, found: int
) -> None:
    spec = replace(table(), bucket_key=("id",))
    states = [BucketState(TableBucket(1, None, bucket), (), 0, 0, None) for bucket in range(found)]
    with pytest.raises(
        SchemaMismatchError,
        match=rf"shop\.orders: expected 4 buckets, .* column 'id', found {found}: .* Set the count back in the source",
    ):
        with_bucket_counts(spec, states, TakingLake(tmp_path))


def test_a_table_without_partitions_may_get_buckets_where_the_lake_does_not_divide_by_a_bucket_key(
    tmp_path: Path,
) -> None:
    states = [BucketState(TableBucket(1, None, bucket), (), 0, 0, None) for bucket in range(7)]
    assert with_bucket_counts(table(), states, FolderLake(tmp_path)) == table()


def test_late_rows_are_refused_by_a_lake_that_takes_none_with_what_to_do(tmp_path: Path) -> None:
    spec = replace(table(), partition_keys=("region",), late_rows=True)

    expected = (
        r"shop\.orders: .* late rows .* the lake 'folder' .*"
        r'`lake_partition = \["region"\]` in \[tables\."shop\.orders"\], or leave the table out'
    )
    with pytest.raises(SchemaMismatchError, match=expected):
        check_late_rows(spec, FolderLake(tmp_path))


def test_late_rows_fit_a_partitioning_of_the_lakes_own_and_a_lake_that_takes_them(tmp_path: Path) -> None:
    spec = replace(table(), partition_keys=("region",), late_rows=True)
    check_late_rows(replace(spec, lake_partition=(PartitionField.parse("region"),)), FolderLake(tmp_path))
    check_late_rows(replace(spec, late_rows=False), FolderLake(tmp_path))
    check_late_rows(spec, TakingLake(tmp_path))


class TakingLake(FolderLake):
    takes_late_rows: Literal[True] = True
    keeps_bucket_counts: Literal[True] = True
