"""Schemas and records inside recorded answers of real servers (0.9.1, and main where marked)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.model.tables import Change
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import LogBatch, decode, iter_batches
from lakeward_source_fluss.formats.records import decode_values, value_batch
from lakeward_source_fluss.formats.schema import FlussSchema, parse_schema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss_kit.schemas import dump_schema, project

SMALL = FlussSchema(
    (FlussField("id", FlussType(Kind.INTEGER), None, 0), FlussField("s", FlussType(Kind.STRING), None, 1))
)
WIDER = FlussSchema((*SMALL.columns, FlussField("extra", FlussType(Kind.BIGINT), None, 2)))


def frames(api: str, note: str) -> list[dict[str, Any]]:
    path = Path(__file__).parent / "data" / "fluss-frames.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [frame for frame in map(json.loads, lines) if frame["api"] == api and frame["note"].startswith(note)]


def frame(api: str, note: str) -> dict[str, Any]:
    (found,) = frames(api, note)
    return found


def logs(answer: dict[str, Any]) -> list[memoryview]:
    return [
        memoryview(base64.b64decode(bucket["records"]))
        for table in answer["response"].get("tables_resp", ())
        for bucket in table["buckets_resp"]
        if "records" in bucket
    ]


def changelog(note: str) -> tuple[list[LogBatch], list[tuple[int, int, str | None]]]:
    (data,) = logs(frame("FETCH_LOG", note))
    batches = list(iter_batches(data))
    rows = []
    for batch in batches:
        found = decode(batch, SMALL, SMALL.to_arrow()).to_pylist()
        rows += [(change, row["id"], row["s"]) for change, row in zip(batch.changes.tolist(), found, strict=True)]
    return batches, rows


def test_a_log_table_of_a_real_server_is_read() -> None:
    (batch,), rows = changelog("log table d.small")
    assert rows == [(Change.APPEND, number, f"s{number}") for number in range(3)]
    assert (batch.base_offset, batch.next_offset, batch.schema_id) == (0, 3, 1)


def test_a_projected_answer_is_read_without_its_sum() -> None:
    (data,) = logs(frame("FETCH_LOG", "projection of column 1"))
    (batch,) = iter_batches(data, verify=False)
    rows = decode(batch, project(SMALL, (1,)), SMALL.to_arrow())
    assert rows.to_pylist() == [{"id": None, "s": f"s{number}"} for number in range(3)]


def test_a_full_changelog_has_the_old_rows_too() -> None:
    batches, rows = changelog("changelog of d.cl_full")
    assert rows == [
        (Change.INSERT, 1, "a"),
        (Change.INSERT, 2, "b"),
        (Change.UPDATE_BEFORE, 1, "a"),
        (Change.UPDATE_AFTER, 1, "a2"),
        (Change.UPDATE_BEFORE, 1, "a2"),
        (Change.UPDATE_AFTER, 1, "a2"),
        (Change.INSERT, 3, "c"),
    ]
    assert [batch.next_offset for batch in batches] == [2, 4, 6, 7]


def test_a_wal_changelog_has_no_old_rows() -> None:
    _, rows = changelog("changelog of d.cl_wal")
    assert {change for change, _, _ in rows} <= {Change.UPDATE_AFTER, Change.DELETE}
    assert (Change.UPDATE_AFTER, 1, "a2") in rows


def test_first_row_leaves_batches_without_records_that_use_offsets() -> None:
    batches, rows = changelog("changelog of d.cl_first")
    assert [row[1:] for row in rows] == [(1, "a"), (2, "b"), (3, "c")]
    assert [batch.rows for batch in batches].count(0) == 2
    ends = [batch.next_offset for batch in batches]
    assert [batch.base_offset for batch in batches] == [0, *ends[:-1]]


def test_deletes_of_missing_keys_leave_no_record() -> None:
    for note in (
        "deletes of a present and of a missing key, d.cl_wal",
        "deletes of a present and of a missing key, d.cl_full",
    ):
        batches, rows = changelog(note)
        assert [row for row in rows if row[0] == Change.DELETE] == [(Change.DELETE, 1, "a2")]
        assert batches[-1].rows == 0


def test_each_bucket_of_an_answer_is_a_log_of_its_own() -> None:
    first, second = logs(frame("FETCH_LOG", "two buckets of a PK table"))
    assert [batch.rows for batch in iter_batches(first)] == [1]
    assert [batch.rows for batch in iter_batches(second)] == [5, 1, 9]


def test_a_changelog_over_a_schema_change_is_read_by_each_batchs_schema() -> None:
    (data,) = logs(frame("FETCH_LOG", "changelog over a schema change"))
    schemas = {1: SMALL, 2: WIDER}
    batches = list(iter_batches(data))
    assert [batch.schema_id for batch in batches] == [1, 2]
    rows = [
        row
        for batch in batches
        for row in decode(batch, schemas[batch.schema_id].seen_as(WIDER), WIDER.to_arrow()).to_pylist()
    ]
    assert [tuple(row.values()) for row in rows] == [
        (1, "old", None),
        (2, "old2", None),
        (2, "old2", None),
        (2, "new2", 22),
        (3, "new3", 33),
    ]


def test_every_recorded_log_has_right_sums_unless_it_is_projected() -> None:
    seen = 0
    for answer in frames("FETCH_LOG", ""):
        for data in logs(answer) if answer["response_type"] == 0 else ():
            batches = list(iter_batches(data, verify=not answer["note"].startswith("projection")))
            seen += len(batches)
    assert seen > 30


def test_batches_with_statistics_of_main_are_read() -> None:
    (data,) = logs(frame("FETCH_LOG", "lg_stat {"))
    batches = list(iter_batches(data))
    assert [(batch.base_offset, batch.rows) for batch in batches] == [(0, 4), (4, 4), (8, 4)]


def test_the_hand_made_batch_that_a_server_took_is_read() -> None:
    request = frame("PRODUCE_LOG", "hand-made Arrow batch")["request"]
    data = memoryview(base64.b64decode(request["buckets_req"][0]["records"]))
    (batch,) = iter_batches(data)
    assert batch.rows == 3


def test_a_scan_of_main_is_read() -> None:
    schema = FlussSchema((FlussField("id", FlussType(Kind.INTEGER)), FlussField("v", FlussType(Kind.STRING))))
    data = memoryview(base64.b64decode(frame("SCAN_KV", "open, all rows in one reply")["response"]["records"]))
    rows = decode_values(value_batch(data), {1: schema}, schema.to_arrow(), Encoding.COMPACTED)
    assert rows.num_rows == 18
    assert rows.slice(0, 1).to_pylist() == [{"id": 0, "v": "v0"}]


@pytest.mark.parametrize("note", ["log1", "pk1", "ppk1", "allt", "ARRAY, MAP, ROW"])
def test_schemas_of_real_tables_are_read_and_written_back(note: str) -> None:
    table = json.loads(base64.b64decode(frame("GET_TABLE_INFO", note)["response"]["table_json"]))
    schema = parse_schema(json.dumps(table["schema"]))
    assert schema.primary_key == tuple(table["schema"].get("primary_key", ()))
    assert json.loads(dump_schema(schema)) == table["schema"]


def test_a_schemas_types_are_those_of_its_log() -> None:
    table = json.loads(base64.b64decode(frame("GET_TABLE_INFO", "allt")["response"]["table_json"]))
    schema = parse_schema(json.dumps(table["schema"]))
    found = schema.to_arrow(logged=True)
    assert schema.to_arrow().field("ts9").type == pa.timestamp("us")
    assert not found.field("id").nullable
    assert {name: found.field(name).type for name in ("fb", "d2", "t0", "t3", "ts0", "ts9", "tz6")} == {
        "fb": pa.binary(4),
        "d2": pa.decimal128(30, 5),
        "t0": pa.time32("s"),
        "t3": pa.time32("ms"),
        "ts0": pa.timestamp("s"),
        "ts9": pa.timestamp("ns"),
        "tz6": pa.timestamp("us", "UTC"),
    }


def test_a_comment_and_the_id_of_a_column_are_kept() -> None:
    answer = base64.b64decode(frame("GET_TABLE_SCHEMA", "schema id 2")["response"]["schema_json"])
    assert parse_schema(answer).to_arrow().field("extra").metadata == {b"comment": b"new", b"column_id": b"2"}
