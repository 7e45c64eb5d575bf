"""`lakeward query`."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_lake
from lakeward.cli.output import Columns
from lakeward.config.tables import lake_path
from lakeward.errors import LakeError
from lakeward.model.tables import TablePath
from lakeward.ports import DescribedLake, ReadableLake
from lakeward_ops.query.duck import LakeRows, queried, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.ports import Lake


@click.command("query")
@click.argument("table", metavar="DB.TABLE")
@click.argument("sql", metavar="[SQL]", required=False)
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rows that are shown, at most.")
@click.option("--snapshot", type=int, metavar="ID", help="Query this snapshot of the lake.  [default: the newest]")
@click.option("--print", "told", is_flag=True, help="Say how other programs read the table, and query nothing.")
@with_common_options
@pass_invocation
def query(invocation: Invocation, *, table: str, sql: str | None, most: int, snapshot: int | None, told: bool) -> None:
    """Query DB.TABLE in the lake by DuckDB, without a catalog; without SQL, show its first rows.

    A table with a `lake_name` is found by its name in the source, and by that one. In the SQL the table is called
    DB.TABLE, or TABLE. Any query of DuckDB will do, such as "select day, count(*) from TABLE group by day". One
    snapshot of the table is queried, whatever is committed meanwhile; each scan reads all of it, so of a large table
    other programs (`--print`) read less.
    """
    loaded = invocation.load()
    path = TablePath.parse(table)
    with opened_lake(loaded) as lake:
        if told:
            _tell(invocation, loaded, lake, path)
        else:
            in_lake = lake_path(loaded, path)
            chosen = snapshot if snapshot is not None else _newest(lake, in_lake)
            rows_of = LakeRows(partial(_readable(loaded, lake).read_rows, in_lake, chosen))
            names, rows = _run(path, rows_of, sql or f"from {quoted(path.database)}.{quoted(path.table)}", most + 1)
            _show(invocation, names, rows[:most], more=len(rows) > most)


def _readable(loaded: Loaded, lake: Lake) -> ReadableLake:
    if isinstance(lake, ReadableLake):
        return lake
    message = f"lake {loaded.settings.lake.type!r}: cannot be queried: it offers no `read_rows`"
    raise LakeError(message)


def _newest(lake: Lake, path: TablePath) -> int:
    head = lake.head(path)
    if head is None or head.snapshot_id is None:
        message = f"{path}: the lake has no rows of it: nothing has been tiered yet"
        raise LakeError(message)
    return head.snapshot_id


def _run(path: TablePath, rows: LakeRows, sql: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    with tempfile.TemporaryDirectory(prefix="lakeward-query-") as folder, queried(path, rows, folder) as opened:
        return opened.run(sql, most)


def _show(invocation: Invocation, names: Sequence[str], rows: Sequence[Sequence[object]], *, more: bool) -> None:
    document = {"rows": [dict(zip(names, row, strict=True)) for row in rows], "more": more}
    figures = [_is_figures([row[at] for row in rows]) for at in range(len(names))]
    titles = [f"{name}#" if figure else name for name, figure in zip(names, figures, strict=True)]
    parts: list[str | Columns] = [Columns(titles, [[_cell(value) for value in row] for row in rows])] if names else []
    if more:
        parts.append(f"The first {len(rows)} rows; `--most` shows more.")
    invocation.output.show(document, *parts)


def _is_figures(values: Sequence[object]) -> bool:
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _cell(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return "NULL" if value is None else value


def _tell(invocation: Invocation, loaded: Loaded, lake: Lake, path: TablePath) -> None:
    if not isinstance(lake, DescribedLake):
        message = f"lake {loaded.settings.lake.type!r}: cannot say how other programs read its tables"
        raise LakeError(message)
    lines = lake.reading_lines(lake_path(loaded, path))
    shown = [text for program, line in lines.items() for text in (f"{program}:", f"  {line}")]
    invocation.output.show({"table": str(path), "lines": dict(lines)}, *shown)
