"""Tables that others made or changed, other services' commits, expiry by others, and the layout that Fluss expects."""

from __future__ import annotations

import json
import logging
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from lakeward.errors import CorruptFileError, RolledBackError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change, TableBucket
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def tier(plugin: IcebergLakePlugin, lake: Lake) -> Callable[..., TieringRound]:
    """Commits one round with one row whose id is the round's number."""

    def run(number: int, table: TableSpec | None = None, source_path: str | None = None) -> TieringRound:
        tiering = TieringRound(plugin, lake, table or log_table(), incarnation(), number)
        batch = source_batch(tiering.table.schema, [{"id": number, "name": "n"}], start=number)
        tiering.write(log_split(tiering.table), [batch])
        assert lake.commit(tiering.request(source_path=source_path)) is CommitOutcome.LANDED
        return tiering

    return run


def _append_nothing(catalog: SqlCatalog, properties: dict[str, str] | None = None) -> None:
    """Commit an empty snapshot, as another service might."""
    with catalog.load_table("shop.orders").transaction() as change:
        change.update_snapshot(snapshot_properties=properties or {}).fast_append().commit()


def test_the_layout_is_the_one_of_fluss(lake: Lake, catalog: SqlCatalog) -> None:
    schema = COLUMNS.append(pa.field("day", pa.string(), nullable=False))
    properties = {"iceberg.write.x": "1", "table.datalake.freshness": "3min"}
    lake.open_table(
        key_table(schema, primary_key=("id", "day"), partition_keys=("day",), buckets=3, properties=properties),
        incarnation(),
    )
    table = catalog.load_table("shop.orders")
    fields = [(field.name, str(field.field_type), field.required) for field in table.schema().fields]
    assert fields[-3:] == [("__bucket", "int", True), ("__offset", "long", True), ("__timestamp", "timestamptz", True)]
    assert [str(field.transform) for field in table.spec().fields] == ["identity", "bucket[3]"]
    assert table.schema().identifier_field_names() == {"id", "day"}
    assert [str(field.direction) for field in table.sort_order().fields] == ["ASC"]
    expected = {
        "write.delete.mode": "merge-on-read",
        "write.x": "1",
        "fluss.table.datalake.freshness": "3min",
        "lakeward.table-id": "7",
        "write.metadata.previous-versions-max": "10",
    }
    assert expected.items() <= table.properties.items()


def test_a_commit_carries_the_properties_of_fluss_and_a_stamp_carries_no_commit_user(
    tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(1, source_path="/a/b.offsets")
    stamp, commit = catalog.load_table("shop.orders").snapshots()
    assert stamp.summary is not None
    assert commit.summary is not None
    assert {key for key in stamp.summary.additional_properties if not key.startswith("total-")} == {
        "lakeward.incarnation",
        "lakeward.table-id",
    }
    assert commit.summary["commit-user"] == "__fluss_lake_tiering"
    assert commit.summary["fluss-offsets"] == "/a/b.offsets"
    assert commit.summary["lakeward.round"] == "7-1-1"


def test_the_head_counts_the_files_of_the_table(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(3)
    head = lake.head(PATH)
    assert head is not None
    files = catalog.load_table("shop.orders").inspect.files()
    assert head.files == len(files) > 0
    assert head.row_bytes == sum(files["file_size_in_bytes"].to_pylist()) / sum(files["record_count"].to_pylist())


def test_the_head_has_the_target_size_of_the_table_or_else_that_of_the_configuration(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(3)
    head = lake.head(PATH)
    assert head is not None
    assert head.target_file_bytes == 128 << 20
    with catalog.load_table("shop.orders").transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "4096"})
    head = lake.head(PATH)
    assert head is not None
    assert head.target_file_bytes == 4096


def test_a_commit_of_flusss_own_service_is_the_newest_commit(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(1)
    properties = {"commit-user": "__fluss_lake_tiering", "fluss-offsets": "/fluss/x.offsets"}
    _append_nothing(catalog, properties)
    head = lake.head(PATH)
    assert head is not None
    assert head.commit is not None
    assert (head.commit.offsets, head.commit.source_path) == (None, "/fluss/x.offsets")
    assert (head.commit.incarnation, head.commit.step) == (None, None)
    assert head.commit.snapshot_id == head.snapshot_id


def test_a_commit_that_carries_no_offsets_is_passed_over(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    mine = tier(1)
    _append_nothing(catalog)
    head = lake.head(PATH)
    assert head is not None
    assert head.commit is not None
    assert (head.commit.round_name, head.stamp) == (mine.round_id.name, mine.who)


def _somebody_elses(catalog: SqlCatalog, schema: Schema) -> None:
    catalog.create_namespace("shop")
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
    catalog.create_table("shop.orders", schema, partition_spec=spec)


FLUSS_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "__bucket", IntegerType(), required=True),
    NestedField(4, "__offset", LongType(), required=True),
    NestedField(5, "__timestamp", TimestamptzType(), required=True),
)


def test_a_table_that_fluss_made_is_adopted(
    lake: Lake, catalog: SqlCatalog, tier: Callable[..., TieringRound], read_table: Callable[..., pa.Table]
) -> None:
    _somebody_elses(catalog, FLUSS_SCHEMA)
    assert lake.open_table(log_table(bucket_key=("id",)), incarnation()).table_id == 7
    tier(1, log_table(bucket_key=("id",)))
    assert read_table(PATH).num_rows == 1


def test_a_table_with_another_partitioning_is_refused(lake: Lake, catalog: SqlCatalog) -> None:
    _somebody_elses(catalog, FLUSS_SCHEMA)
    with pytest.raises(SchemaMismatchError, match="partitioning"):
        lake.open_table(log_table(bucket_key=("id",), buckets=3), incarnation())


def test_a_nullable_column_that_somebody_added_is_written_as_null(
    tier: Callable[..., TieringRound], catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    tier(1)
    with catalog.load_table("shop.orders").update_schema() as update:
        update.add_column("extra", StringType())
    tier(2)
    assert read_table(PATH).column("extra").to_pylist() == [None, None]


def test_a_new_column_stands_before_the_system_columns(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(1)
    lake.open_table(log_table(COLUMNS.append(pa.field("new", pa.list_(pa.int32())))), incarnation())
    names = catalog.load_table("shop.orders").schema().column_names
    assert [name for name in names if "." not in name] == ["id", "name", "new", "__bucket", "__offset", "__timestamp"]


def test_a_new_column_that_is_not_nullable_is_refused(lake: Lake, tier: Callable[..., TieringRound]) -> None:
    tier(1)
    with pytest.raises(SchemaMismatchError, match="'new'"):
        lake.open_table(log_table(COLUMNS.append(pa.field("new", pa.int32(), nullable=False))), incarnation())


@pytest.mark.parametrize("kind", [pa.uint64(), pa.duration("s"), pa.decimal256(50, 2)])
def test_a_type_without_a_form_in_iceberg_is_refused(lake: Lake, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="no form"):
        lake.open_table(log_table(pa.schema([pa.field("odd", kind)])), incarnation())


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.list_(pa.int32()), "list"),
        (pa.struct([pa.field("a", pa.int32())]), "struct"),
        (pa.map_(pa.string(), pa.int32()), "map"),
    ],
)
def test_a_key_that_iceberg_forbids_is_refused_with_words(lake: Lake, kind: pa.DataType, word: str) -> None:
    schema = pa.schema([pa.field("id", kind, nullable=False), COLUMNS.field("name")])
    with pytest.raises(SchemaMismatchError, match=rf"shop\.orders: key column 'id'.*found {word}") as refused:
        lake.open_table(key_table(schema, bucket_key=()), incarnation())
    assert refused.value.permanent
    assert lake.head(PATH) is None


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.bool_(), [True, False]),
        (pa.int8(), [1, -1]),
        (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-2.25")]),
        (pa.string(), ["a", "\u00e9"]),
        (pa.binary(), [b"\x00", b"\xff"]),
        (pa.date32(), [date(2026, 1, 1), date(1900, 1, 1)]),
        (pa.time64("us"), [time(1, 2, 3), time(0)]),
        (pa.timestamp("us"), [datetime(2026, 1, 1), datetime(1900, 1, 1)]),  # noqa: DTZ001 - a type without a zone
        (pa.timestamp("us", tz="UTC"), [datetime(2026, 1, 1, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]),
    ],
    ids=str,
)
def test_a_key_of_every_other_type_is_updated_once(
    lake: Lake,
    plugin: IcebergLakePlugin,
    read_table: Callable[..., pa.Table],
    kind: pa.DataType,
    keys: list[object],
) -> None:
    schema = pa.schema([pa.field("id", kind, nullable=False), COLUMNS.field("name")])
    for number, change in enumerate((Change.INSERT, Change.UPDATE_AFTER), start=1):
        tiering = TieringRound(plugin, lake, key_table(schema, bucket_key=()), incarnation(), number)
        rows = [{"id": key, "name": f"r{number}"} for key in keys]
        tiering.write(log_split(tiering.table), [source_batch(schema, rows, changes=[change] * len(rows))])
        lake.commit(tiering.request())
    assert read_table(PATH).column("name").to_pylist() == ["r2", "r2"]


def test_offsets_outlive_an_expiry_that_somebody_else_runs(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    mine = tier(3, source_path="/x")
    table = catalog.load_table("shop.orders")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    before = lake.head(PATH)
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    head = lake.head(PATH)
    assert before is not None
    assert head is not None
    assert head.commit == before.commit
    assert lake.find(PATH, mine.round_id, 0) == (head.commit.snapshot_id if head.commit else None)
    assert head.stamp is None


def test_our_own_newest_offsets_are_found_below_a_commit_of_another_service_and_outlive_an_expiry(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    mine = tier(3)
    _append_nothing(catalog, {"commit-user": "__fluss_lake_tiering", "fluss-offsets": "/fluss/late.offsets"})
    table = catalog.load_table("shop.orders")
    newest = table.metadata.current_snapshot_id
    for expired in (False, True):
        if expired:
            old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest]
            table.maintenance.expire_snapshots().by_ids(old).commit()
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.own is not None
        assert (head.commit.snapshot_id, head.commit.source_path) == (newest, "/fluss/late.offsets")
        assert (head.own.incarnation, head.own.round_name) == (mine.who, mine.round_id.name)
        assert head.own.offsets == {TableBucket(7, None, 0): 300}


def test_a_rollback_is_seen_even_after_others_have_appended(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog, roll_back: Callable[..., None]
) -> None:
    tier(1)
    first = lake.head(PATH)
    tier(2)
    assert first is not None
    roll_back(PATH, first.snapshot_id)
    _append_nothing(catalog)
    with pytest.raises(RolledBackError):
        lake.head(PATH)


def test_a_table_set_aside_keeps_its_rows_and_its_directory(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(1)
    for table_id in (8, 9):
        tier(table_id, log_table(table_id=table_id))
    tables = [catalog.load_table(f"shop.{name}") for name in ("orders__dropped_7", "orders__dropped_8", "orders")]
    assert [table.scan().to_arrow().column("id").to_pylist() for table in tables] == [[1], [8], [9]]
    assert len({table.location() for table in tables}) == 3
    assert lake.head(PATH) is not None


def test_offsets_that_are_damaged_name_their_place(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(1)
    _append_nothing(catalog, {"lakeward.offsets": json.dumps({"version": 2, "table_id": 7, "offsets": []})})
    with pytest.raises(CorruptFileError, match="version 1"):
        lake.head(PATH)


def test_expiry_deletes_manifests_that_nobody_names_and_keeps_the_rest(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog, tmp_path: Path
) -> None:
    for number in range(1, 60):
        tier(number)
    lake.expire(PATH, frozenset())
    table = catalog.load_table("shop.orders")
    named = {one.manifest_list for one in table.snapshots()}
    named |= {manifest.manifest_path for one in table.snapshots() for manifest in one.manifests(table.io)}
    assert {f"file://{path}" for path in tmp_path.rglob("*.avro")} == named
    assert len(list(tmp_path.rglob("*.metadata.json"))) <= 12
    assert len(table.snapshots()[-1].manifests(table.io)) < 20
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(1, 60))


def test_merged_manifests_keep_the_sequence_of_each_file(
    tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    for number in range(1, 40):
        tier(number)
    table = catalog.load_table("shop.orders")
    by_snapshot = {one.snapshot_id: one.sequence_number for one in table.snapshots()}
    entries = table.inspect.entries().to_pylist()
    assert len(entries) == 39
    for entry in entries:
        assert by_snapshot[entry["snapshot_id"]] == entry["sequence_number"] == entry["file_sequence_number"]


def test_a_tag_keeps_its_snapshot_from_expiry(
    lake: Lake, tier: Callable[..., TieringRound], catalog: SqlCatalog
) -> None:
    tier(1)
    table = catalog.load_table("shop.orders")
    tagged = table.metadata.current_snapshot_id
    assert tagged is not None
    with table.manage_snapshots() as manage:
        manage.create_tag(tagged, "kept")
    for number in range(2, 40):
        tier(number)
    lake.expire(PATH, frozenset())
    assert catalog.load_table("shop.orders").scan(snapshot_id=tagged).to_arrow().num_rows == 1


def test_offsets_of_partitions_and_buckets_are_kept_apart(lake: Lake, plugin: IcebergLakePlugin) -> None:
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    offsets = {TableBucket(7, None, 1): 1, TableBucket(7, 0, 1): 2, TableBucket(7, 1, 1): 3}
    lake.commit(tiering.request(offsets))
    head = lake.head(PATH)
    assert head is not None
    assert head.commit is not None
    assert head.commit.offsets == offsets


def test_pyiceberg_is_quiet_below_a_warning_once_a_lake_is_open(lake: Lake) -> None:
    assert lake.name == "iceberg"
    assert not logging.getLogger("pyiceberg.table").isEnabledFor(logging.INFO)
