"""`lakeward tables upgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_lake, opened_source
from lakeward.config.tables import lake_path
from lakeward.errors import UsageError
from lakeward.ports import UpgradableLake

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath


@click.command("upgrade")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def upgrade(invocation: Invocation, *, table: str) -> int:
    """Move the lake table of DB.TABLE to the newest version of its format that Lakeward writes.

    An Iceberg table gets format version 3, with deletion vectors and row ids. Nothing moves it back: all programs that
    read or write the table have to know that version. No data file is written, and a running service goes on.
    A pattern such as `db.*` means all tables that it matches.
    """
    loaded = invocation.load()
    with opened_source(loaded) as source:
        paths = chosen_tables(loaded, source, table)
    with opened_lake(loaded) as lake:
        if not isinstance(lake, UpgradableLake):
            message = f"lake {loaded.settings.lake.type!r}: it has no newer version of its format to move tables to"
            raise UsageError(message)

        def do(path: TablePath) -> TableAnswer:
            found = lake.upgrade(lake_path(loaded, path))
            done = found.before != found.after
            document = {"table": str(path), "upgraded": done, "before": found.before, "after": found.after}
            if done:
                return TableAnswer(document, f"{path}: format version {found.after}, before {found.before}.")
            return TableAnswer(document, f"{path} has format version {found.after} already; nothing was changed.")

        return do_for_each(invocation, table, paths, do)
