"""`lakeward tables tier-now`."""

from __future__ import annotations

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_source
from lakeward.cli.serving import find_services
from lakeward.config.tables import table_rules
from lakeward.coordinator.rounds.mirroring import MIRROR
from lakeward.errors import SourceError, UsageError
from lakeward.model.tables import TablePath


@click.command("tier-now")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def tier_now(invocation: Invocation, *, table: str) -> int:
    """Ask the source to schedule DB.TABLE next, before its freshness makes it due.

    A pattern such as `db.*` means all tables that it matches.
    """
    loaded = invocation.load()
    services = find_services(loaded)
    with opened_source(loaded) as source:

        def do(path: TablePath) -> TableAnswer:
            if table_rules(loaded, path).settings.mode == MIRROR:
                message = (
                    f"{path} is mirrored: the service schedules it by its freshness, and no other process can change "
                    "that"
                )
                raise UsageError(message)
            source.table(path)
            if not source.make_due([path]):
                message = (
                    f"source {loaded.settings.source.type!r}: cannot schedule {path} at once; its freshness decides "
                    "when"
                )
                raise SourceError(message)
            running = services.of(path).seen.running
            found = "is tiered next" if running else "is due; no service reports that it runs, one that starts tiers it"
            return TableAnswer({"table": str(path), "due": True, "running": running}, f"{path} {found}.")

        return do_for_each(invocation, table, chosen_tables(loaded, source, table), do)
