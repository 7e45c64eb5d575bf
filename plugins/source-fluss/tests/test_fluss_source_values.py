"""What the source makes of texts, tables and answers, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeward.errors import ConfigError, CorruptFileError, ProtocolError, SourceError, UsageError
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.tables import BucketState, TableBucket, TablePath
from lakeward.storage.late_commits import went_back
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.source.connect import connect_options
from lakeward_source_fluss.source.durations import seconds
from lakeward_source_fluss.source.leases import check_clean, check_id
from lakeward_source_fluss.source.offsets import parse_offsets, read_offsets
from lakeward_source_fluss.source.options import FlussOptions, pack_task, unpack_task
from lakeward_source_fluss.source.tables import FlussTable, describe
from lakeward_source_fluss.wire.messages import GetTableInfoResponse

PATH = TablePath("shop", "orders")
COLUMNS = [
    {"name": "id", "data_type": {"type": "BIGINT", "nullable": False}, "id": 0},
    {"name": "day", "data_type": {"type": "STRING", "nullable": False}, "id": 1},
]


def _described(**properties: str) -> FlussTable:
    document = {
        "version": 1,
        "schema": {"version": 1, "columns": COLUMNS, "primary_key": ["id", "day"], "highest_field_id": 1},
        "partition_key": ["day"],
        "bucket_key": ["id"],
        "bucket_count": 4,
        "properties": properties,
        "custom_properties": {"team": "ours"},
    }
    answer = GetTableInfoResponse(
        table_id=7, schema_id=1, table_json=json.dumps(document).encode(), created_time=0, modified_time=0
    )
    return describe(PATH, answer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 min", 180.0),
        ("500ms", 0.5),
        ("1s", 1.0),
        ("2 hours", 7200.0),
        ("1d", 86400.0),
        ("90", 0.09),
        ("5 m", 300.0),
        ("PT30S", 30.0),
        ("PT1H30M", 5400.0),
        ("P1DT1S", 86401.0),
        ("7 SECONDS", 7.0),
    ],
)
def test_duration_is_read_as_fluss_writes_it(text: str, expected: float) -> None:
    assert seconds("table.datalake.freshness", text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "soon", "3 parsecs", "P", "-1s", "1.5s", "s"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(SourceError, match=r"table\.datalake\.freshness"):
        seconds("table.datalake.freshness", text)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, 604_800.0),
        ({"table.log.ttl": "1 d"}, 86_400.0),
        ({"table.log.ttl": "-1"}, None),
        ({"table.datalake.enabled": "true", "table.log.ttl": "1 d"}, None),
    ],
)
def test_only_a_table_that_no_lake_is_to_have_loses_unread_records_with_time(
    properties: dict[str, str], expected: float | None
) -> None:
    """The server deletes records of a lake-enabled table only once they are in the lake."""
    assert _described(**properties).spec.unread_kept_s == expected


def test_table_is_what_its_description_says() -> None:
    table = _described(**{"table.datalake.enabled": "true", "table.datalake.freshness": "5 min"})

    assert (table.spec.table_id, table.spec.schema_id, table.spec.buckets) == (7, 1, 4)
    assert (table.spec.primary_key, table.spec.partition_keys, table.spec.bucket_key) == (
        ("id", "day"),
        ("day",),
        ("id",),
    )
    assert table.spec.freshness_s == 300.0
    assert table.spec.schema.names == ["id", "day"]
    assert table.spec.properties["team"] == "ours"
    assert table.lake_enabled


def test_table_without_freshness_has_the_servers_default_of_three_minutes() -> None:
    table = _described()

    assert table.spec.freshness_s == 180.0
    assert not table.lake_enabled


def test_secrets_of_the_lakes_catalog_are_in_no_text_and_no_property() -> None:
    table = _described(
        **{"table.datalake.format": "iceberg", "table.datalake.iceberg.credential": "s3cret", "table.log.ttl": "7d"}
    )

    assert table.lake_settings == {"credential": "s3cret"}
    assert "s3cret" not in repr(table)
    assert "s3cret" not in str(dict(table.spec.properties))
    assert table.spec.properties["table.log.ttl"] == "7d"


def test_a_changelog_image_of_wal_has_no_rows_from_before_updates() -> None:
    assert _described().spec.before_images
    assert _described(**{"table.changelog.image": "FULL"}).spec.before_images
    assert not _described(**{"table.changelog.image": "WAL"}).spec.before_images


def test_description_that_is_none_is_refused_without_being_quoted() -> None:
    answer = GetTableInfoResponse(table_id=7, schema_id=1, table_json=b"[s3cret", created_time=0, modified_time=0)

    with pytest.raises(ProtocolError) as refused:
        describe(PATH, answer)
    assert "s3cret" not in str(refused.value)


def test_password_travels_to_the_subtask_and_into_no_text() -> None:
    secrets = {"password": "s3cret", "storage": {"secret_key": "hidden"}}
    options = FlussOptions(bootstrap="a:1", username="u", **secrets)  # type: ignore[arg-type]  # of two types

    assert unpack_task(pack_task(options)) == options
    for text in (repr(options), repr(connect_options(options))):
        assert "s3cret" not in text
        assert "hidden" not in text


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (FlussOptions(bootstrap="nowhere"), "source.bootstrap"),
        (FlussOptions(bootstrap="a:1", password="p"), "source.username"),  # noqa: S106 - no secret of anybody
        (FlussOptions(bootstrap="a:1", call_timeout_s=0), "source.call_timeout_s"),
        (FlussOptions(bootstrap="a:1", fetch_bytes=0), "source.fetch_bytes"),
    ],
)
def test_option_that_does_not_fit_is_named(options: FlussOptions, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connect_options(options)
    assert refused.value.key == key


def test_offsets_file_holds_the_buckets_that_were_ever_tiered(tmp_path: Path) -> None:
    file = tmp_path / "x.offsets"
    file.write_text('{"version":1,"table_id":7,"bucket_offsets":[10,-1,0]}', encoding="utf-8")

    offsets = read_offsets(Storage(), _described().spec, f"file:{file}")

    assert offsets == {TableBucket(7, None, 0): 10, TableBucket(7, None, 2): 0}


def test_a_late_commit_of_flink_that_takes_offsets_back_is_seen(tmp_path: Path) -> None:
    """Its lake commit only names an offsets file; a bucket that it never tiered is -1 there."""
    file = tmp_path / "late.offsets"
    file.write_text('{"version":1,"table_id":7,"bucket_offsets":[90,-1,200]}', encoding="utf-8")
    buckets = [TableBucket(7, None, number) for number in range(3)]
    own = OffsetCommit(5, dict(zip(buckets, (180, 60, 100), strict=True)), None, None, None, None, 0)
    late = OffsetCommit(6, None, f"file:{file}", None, None, None, 0)
    states = [BucketState(bucket, (), 0, 300, None) for bucket in buckets]

    tiered = read_offsets(Storage(), _described().spec, late.source_path or "")
    wrong = went_back(PATH, None, LakeHead(PATH, 7, "/w", 6, None, late, own), tiered, states)

    assert f"bucket {buckets[0]} went back from offset 180, which our commit 5 says, to offset 90" in wrong
    assert "service says, and likewise 1 more. No round" in wrong


def test_offsets_of_partitions_are_read() -> None:
    text = b'{"version":1,"table_id":7,"partition_offsets":[{"partition_id":0,"bucket_offsets":[3]}]}'

    assert parse_offsets(text, 7, "f") == {TableBucket(7, 0, 0): 3}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"version":"1","table_id":7}',
        b'{"version":1,"table_id":8,"bucket_offsets":[]}',
        b'{"version":1,"table_id":7,"bucket_offsets":["1"]}',
        b'{"version":1,"table_id":7,"bucket_offsets":3}',
        b'{"version":1,"table_id":7,"partition_offsets":[{"bucket_offsets":[1]}]}',
        b'{"version":1,"table_id":7,"partition_offsets":[4]}',
        b'{"version":1,"table_id":7,"partition_offsets":4}',
        b'{"version":1,"table_id":7,"bucket_offsets":[-2]}',
    ],
)
def test_what_is_no_offsets_file_of_the_table_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptFileError):
        parse_offsets(text, 7, "f")


def test_offsets_file_that_is_not_there_and_json_of_older_services_are_refused(tmp_path: Path) -> None:
    table = _described().spec

    for path in (str(tmp_path / "none"), '{"version":1}'):
        with pytest.raises(SourceError):
            read_offsets(Storage(), table, path)


@pytest.mark.parametrize("lease_id", ["", ".", "..", "a/b", "a b", "a" * 200, "\u00e4"])
def test_lease_id_that_the_server_would_misread_is_refused(lease_id: str) -> None:
    with pytest.raises(UsageError):
        check_id(lease_id)


def test_lease_never_mixes_entries_with_and_without_partition() -> None:
    check_clean({TableBucket(1, None, 0): 1, TableBucket(2, 3, 0): 1})
    with pytest.raises(UsageError):
        check_clean({TableBucket(1, None, 0): 1, TableBucket(1, 3, 0): 1})
