"""The proof: what an independent reader finds in the lake is exactly what was fed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import LakeError
from lakeward.model.dead_letters import path_of
from lakeward.observe.format import count
from lakeward_demo.tables import expected, row_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakeward.model.tables import TablePath
    from lakeward_demo.lakes import DemoLake
    from lakeward_demo.store import DemoTable


@dataclass(frozen=True, slots=True)
class Proof:
    """Rows that were compared, column by column, and who read them."""

    rows: Mapping[TablePath, int]
    reader: str


def prove(lake: DemoLake, tables: Sequence[DemoTable], fed: pa.Table) -> Proof:
    """Compare lake and feed (all flights, history included), all rows and all columns; return how much was compared.

    Raises:
        LakeError: they differ; says in what.
    """
    rows, reader = {}, ""
    for table in tables:
        found, reader = lake.read_table(table.path)
        check_same(table.path, expected(table, fed), found, row_key(table))
        rows[table.path] = len(found)
    return Proof(rows, reader)


def prove_dead_letters(lake: DemoLake, table: TablePath, fed: int) -> None:
    """Count the dead letters of a table, of which so many rows were fed that do not fit.

    Raises:
        LakeError: there are more of them, or fewer.
    """
    found = len(lake.read_table(path_of(table))[0]) if fed else 0
    if found != fed:
        message = f"{path_of(table)}: expected {count(fed, 'row')} in the lake, found {found:,}"
        raise LakeError(message)


def check_same(table: TablePath, expected: pa.Table, found: pa.Table, key: tuple[str, ...]) -> None:
    """Compare two tables, whatever the order of their rows: what was fed, and what the lake has.

    Further columns of `found` are left out. No two expected rows have all columns of `key` in common.

    Raises:
        LakeError: another number of rows, or a row that differs.
    """
    if len(found) != len(expected):
        message = f"{table}: expected {count(len(expected), 'row')} in the lake, found {len(found):,}"
        raise LakeError(message)
    order = [(name, "ascending") for name in key]
    left = expected.sort_by(order)
    right = found.select(expected.schema.names).cast(expected.schema).sort_by(order)
    if left.equals(right):
        return
    number = _first_difference(left, right)
    message = f"{table}: expected a row {_row(left, number)} in the lake, found {_row(right, number)}"
    raise LakeError(message)


def _first_difference(left: pa.Table, right: pa.Table) -> int:
    """Find the first row that differs by halving: everything before it is equal."""
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        same = left.slice(low, middle - low).equals(right.slice(low, middle - low))
        low, high = (middle, high) if same else (low, middle)
    return low


def _row(rows: pa.Table, number: int) -> dict[str, object]:
    row: dict[str, object] = rows.slice(number, 1).to_pylist()[0]
    return row
