"""What came of a run: the lake's rows against those that were loaded, and files that nobody needs any more.

One process looks at all runs: to load DuckDB takes a tenth of a run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lakeward_e2e.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lakeward_rescale.run import Result
    from lakeward_rescale.tables import SourceTable, Tables


def look(result: Result, tables: Tables, directory: Path) -> None:
    """Add to a result what the lake shows.

    Args:
        result: of the run.
        tables: with the rows that the lake must hold.
        directory: of the run.
    """
    try:
        _look(result, tables, directory)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        result.problems.append(f"the lake cannot be read: {type(error).__name__}: {error}")


def _look(result: Result, tables: Tables, directory: Path) -> None:
    warehouse = Warehouse(directory / "warehouse")
    for table in tables:
        _compare(result, table, warehouse)
    if not result.problems:
        # Those of jobs of upkeep that were ended early stay until no task of theirs can write, for a later start.
        journals = {file.parent.name for file in (directory / "state").rglob("journal")}
        upkeep = {name for name in journals if "-upkeep-" in name}
        files = {file for table in tables for file in warehouse.orphans(table.path)}
        strays = {file for file in files if not any(name in file for name in upkeep)}
        _left_over(result, "files of no commit", strays)
        _left_over(result, "rows and parts of checkpoints", _checkpoint_files(directory / "state"))
        _left_over(result, "journals", journals - upkeep)


def _compare(result: Result, table: SourceTable, warehouse: Warehouse) -> None:
    found = Counter(warehouse.select(table.path, ", ".join(table.columns)))
    wanted = Counter(table.rows())
    lost, more = wanted - found, found - wanted
    result.lost += lost.total()
    result.doubled += more.total()
    if lost or more:
        examples = f"{list(lost)[:3]} lost, {list(more)[:3]} too many"
        result.problems.append(f"{table.path}: {lost.total()} lost, {more.total()} too many: {examples}")


def _checkpoint_files(state: Path) -> list[Path]:
    every = (file for file in state.rglob("*") if file.is_file())
    return [file for file in every if file.parent.name == "segments" or file.parent.name.startswith("chk-")]


def _left_over(result: Result, what: str, files: Iterable[object]) -> None:
    names = sorted(map(str, files))
    if names:
        result.problems.append(f"left over, {what}: {len(names)}, such as {names[:3]}")
