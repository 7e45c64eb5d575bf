"""Tables of 1,500 columns: written, evolved, compacted, read, and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.results import CommitOutcome
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.lake_tables import (
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
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

COLUMNS = 1500
KINDS = (pa.int64(), pa.string(), pa.float64(), pa.timestamp("us"), pa.list_(pa.int32()))


def value(number: int, row: int) -> Any:  # noqa: ANN401 - of the column's type
    """Return the value of a column; each seventh is null."""
    if (number + row) % 7 == 0:
        return None
    made = (number + row, f"n{number}", number / 2, number * row, [number, row])
    return made[number % len(KINDS)]


def row_of(row: int, count: int) -> dict[str, Any]:
    """Return a row of so many columns besides its id."""
    return {"id": row} | {f"c{number}": value(number, row) for number in range(count)}


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_a_table_of_1500_columns_is_written_widened_compacted_and_read(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, python_reader: PythonReader, *, keyed: bool
) -> None:
    fields = [pa.field(f"c{number}", KINDS[number % len(KINDS)]) for number in range(COLUMNS)]
    schema = pa.schema(fields)
    for number in range(1, 6 if keyed else 3):
        count = COLUMNS if number > 1 else COLUMNS // 2  # half of them are new in the second round
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *fields[:count]])
        table = (key_table if keyed else log_table)(schema, buckets=1, system_columns=False)
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [row_of(row, count) for row in (number, number + 10)]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[1, 1])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert bool(compact(plugin, lake)) == keyed
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(PATH, snapshot, None)) == []
    found = pa.Table.from_batches(lake.read_rows(PATH, snapshot)).sort_by("id")
    assert found.equals(python_reader.rows(options.warehouse, str(PATH)).sort_by("id").cast(found.schema))
    assert len(found.schema) == COLUMNS + 1
    last = found.slice(len(found) - 1)
    wanted = pa.Table.from_pylist([row_of(len(found) // 2 + 10, COLUMNS)], schema)
    assert last.cast(wanted.schema).equals(wanted)
    assert found["c1400"].to_pylist()[0] is None
