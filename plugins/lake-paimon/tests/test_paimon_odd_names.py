"""Odd places, names and codecs: rows come back, and what another reader does with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.ports import ReadableLake
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

    ReadTable = Callable[[TablePath], pa.Table]


def tier(
    plugin: PaimonLakePlugin, lake: Lake, table: TableSpec, rows: list[dict[str, Any]], number: int = 1
) -> tuple[LakeFile, ...]:
    """Write rows of bucket 0, and commit them; return the files."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    files = tiering.write(log_split(table), [source_batch(table.schema, rows, changes=[Change.INSERT] * len(rows))])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    return files


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    """Return the rows of the head by the lake's own reader, ordered by id."""
    snapshot = head_of(lake).snapshot_id
    assert snapshot is not None
    assert isinstance(lake, ReadableLake)
    batches = lake.read_rows(PATH, snapshot)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


@pytest.mark.parametrize(
    "folder", ["a b", "100%", "%20", "[x]", "a+b", "é", "l" * 200, "a:b", "a&b=c;d", "'q\"", "tail ", "#1", "a?b", "**"]
)
def test_a_warehouse_may_lie_at_any_path(plugin: PaimonLakePlugin, tmp_path: Path, folder: str) -> None:
    lake = plugin.open(PaimonOptions(warehouse=str(tmp_path / folder / "w")), FakeClock())
    table = key_table(buckets=1, system_columns=False)
    files = tier(plugin, lake, table, [{"id": 0, "name": "1"}, {"id": 1}])
    for number in range(2, 7):
        files = tier(plugin, lake, table, [{"id": 0, "name": f"{number}"}, {"id": number}], number)
    assert lake.referenced(PATH, [file.path for file in files]) == {file.path for file in files}
    compact(plugin, lake)
    lake.expire(PATH, frozenset())
    assert rows_of(lake) == [{"id": 0, "name": "6"}, *({"id": number, "name": None} for number in range(1, 7))]
    lake.close()
    assert {path.name for path in tmp_path.iterdir()} == {folder}


@pytest.mark.parametrize("value", ["a b", "100%", "a/b", "a=b", "é", "..", "#?", "__x__", "{a}"])
def test_a_partition_may_have_any_value_and_is_found_by_it(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, python_reader: PythonReader, value: str
) -> None:
    schema = COLUMNS.append(pa.field("p", pa.string()))
    table = log_table(schema, partition_keys=("p",), buckets=1, system_columns=False)
    tiering = TieringRound(plugin, lake, table, incarnation())
    for number, part in enumerate((value, "other")):
        split = log_split(table, 0, (f"p{number}",), number + 1)
        tiering.write(split, [source_batch(schema, [{"id": number, "name": part, "p": part}])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    rows, files = python_reader.scan(options.warehouse, str(PATH), ("equal", "p", value))
    assert (rows.to_pylist(), files) == ([{"id": 0, "name": value, "p": value}], 1)
    assert [row["p"] for row in rows_of(lake)] == [value, "other"]


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_names_with_dots_and_those_that_differ_in_case_alone_are_columns_of_their_own(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, python_reader: PythonReader, *, keyed: bool
) -> None:
    inner = pa.struct([("c", pa.int64()), ("C", pa.int64())])
    fields = [("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())])), ("x", inner), ("X", pa.int64())]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(*one) for one in fields)])
    table = (key_table if keyed else log_table)(schema, buckets=1, bucket_key=("id",), system_columns=False)
    rows = [
        {"id": number, "a.b": number, "a": {"b": -number}, "x": {"c": 7, "C": 8}, "X": 100 + number}
        for number in (1, 2)
    ]
    for number, row in enumerate(rows):
        tier(plugin, lake, table, [row], number + 1)
    assert rows_of(lake) == rows
    for where in (("equal", "a.b", 1), ("less_than", "X", 102)):
        found, files = python_reader.scan(options.warehouse, str(PATH), where)
        assert (found.to_pylist(), files) == ([rows[0]], 2 if keyed else 1)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "lz4", "gzip", "brotli", "none"])
def test_files_have_the_lakes_codec_or_the_tables(
    plugin: PaimonLakePlugin, options: PaimonOptions, read_table: ReadTable, codec: str
) -> None:
    lake = plugin.open(msgspec.structs.replace(options, compression=codec), FakeClock())
    own = log_table(buckets=1, properties={"paimon.file.compression": "gzip"})
    told = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    (file,) = tier(plugin, lake, log_table(buckets=1), [{"id": 1, "name": "a"}])
    assert {pq.read_metadata(file.path).row_group(0).column(0).compression} == {told}
    assert read_table(PATH)["id"].to_pylist() == [1]
    elsewhere = plugin.open(
        msgspec.structs.replace(options, compression=codec, warehouse=f"{options.warehouse}2"), FakeClock()
    )
    (file,) = tier(plugin, elsewhere, own, [{"id": 1, "name": "a"}])
    assert {pq.read_metadata(file.path).row_group(0).column(0).compression} == {"GZIP"}
