"""Random nested tables: what is written and compacted is what `lakeward verify` reads, and it raises no false alarm.

`LAKEWARD_FUZZ_TABLES` says how many tables are tried.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_ops.verify.values import cast_plain, plain_type, same_values
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.lake_tables import PATH, TieringRound, head_of, incarnation, key_table, log_split, source_batch
from lakeward_testing.shapes import Shapes

if TYPE_CHECKING:
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

TABLES = int(os.environ.get("LAKEWARD_FUZZ_TABLES", "12"))


@pytest.mark.parametrize("seed", range(TABLES))
def test_a_random_nested_table_is_read_as_it_was_written_before_and_after_its_compaction(
    plugin: PaimonLakePlugin, lake: PaimonLake, seed: int
) -> None:
    shapes = Shapes(seed)
    schema, make = shapes.columns()
    table = key_table(
        schema, buckets=1, system_columns=bool(seed % 2), properties={"paimon.changelog-producer": "none"}
    )
    expected: dict[int, dict[str, Any]] = {}
    for number in range(1, 6):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        keys = shapes.random.sample(range(30), 9)
        rows = [make(key) for key in keys]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * len(rows))])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        expected |= {row["id"]: row for row in rows}
    check(lake, schema, expected)
    assert compact(plugin, lake)
    check(lake, schema, expected)


def check(lake: PaimonLake, schema: pa.Schema, expected: dict[int, dict[str, Any]]) -> None:
    """Compare the head with what was written."""
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(PATH, snapshot, None)) == []
    batches = list(lake.read_rows(PATH, snapshot))
    ids = [key for batch in batches for key in batch["id"].to_pylist()]
    assert sorted(ids) == sorted(expected)
    for name, kind in zip(schema.names[1:], schema.types[1:], strict=True):
        plain = plain_type(batches[0].schema.field(name).type)
        found = pa.concat_arrays([cast_plain(batch[name], plain) for batch in batches])
        source = cast_plain(pa.array([expected[key][name] for key in ids], kind), plain)
        assert same_values(source, found).all(), (name, kind)
