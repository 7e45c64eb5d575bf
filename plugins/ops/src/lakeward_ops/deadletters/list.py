"""`lakeward deadletters list`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from lakeward.cli.chosen_tables import chosen_tables, included_tables
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.observe.format import count
from lakeward_ops.deadletters.letters import letters_in, letters_path

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake


@dataclass(frozen=True, slots=True)
class Letters:
    """How many dead letters a table has of one code and column."""

    table: str
    code: str
    column: str
    dead_letters: int
    lake_table: str


@click.command("list")
@click.argument("table", metavar="[DB.TABLE]", required=False)
@with_common_options
@pass_invocation
def list_letters(invocation: Invocation, *, table: str | None) -> None:
    """Count the dead letters of DB.TABLE, or of all tables, by the code of their error and the column.

    A pattern such as `db.*` means all tables that it matches. All dead letters are read, but for their rows.
    """
    loaded = invocation.load()
    with opened_source(loaded) as source:
        paths = (
            [one.path for one in included_tables(loaded, source)]
            if table is None
            else list(chosen_tables(loaded, source, table))
        )
    with opened_lake(loaded) as lake:
        found = [one for path in sorted(paths, key=str) for one in _counted(loaded, lake, path)]
    if not found:
        invocation.output.show({"dead_letters": []}, "No dead letters.")
        return
    rows = [(one.table, one.code, one.column, count(one.dead_letters), one.lake_table) for one in found]
    invocation.output.show(
        {"dead_letters": found}, Columns(("table", "code", "column", "dead letters#", "in the lake"), rows)
    )


def _counted(loaded: Loaded, lake: Lake, path: TablePath) -> list[Letters]:
    batches = letters_in(loaded, lake, path, ("code", "column_name"))
    counts: Counter[tuple[str, str]] = Counter()
    for batch in batches or ():
        counts.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    where = str(letters_path(loaded, path))
    return [Letters(str(path), code, column, number, where) for (code, column), number in counts.most_common()]
