"""`lakeward tables tier-now`."""

from __future__ import annotations

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.opening import opened_source
from lakeward.cli.service_line import see_service
from lakeward.config.tables import table_rules
from lakeward.coordinator.scheduling import MIRROR
from lakeward.errors import SourceError, UsageError
from lakeward.model.tables import TablePath


@click.command("tier-now")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def tier_now(invocation: Invocation, *, table: str) -> None:
    """Ask the source to hand DB.TABLE out at once, whatever freshness it was promised."""
    loaded = invocation.load()
    path = TablePath.parse(table)
    if table_rules(loaded, path).settings.mode == MIRROR:
        message = f"{path} is mirrored: the service schedules it by its freshness, and no other process can change that"
        raise UsageError(message)
    with opened_source(loaded) as source:
        source.table(path)
        asked = source.make_due([path])
    if not asked:
        message = (
            f"source {loaded.settings.source.type!r}: cannot be asked to hand out {path} at once; its freshness decides"
        )
        raise SourceError(message)
    running = see_service(loaded).running
    sentence = f"{path} is handed out next." if running else f"{path} is due, but no service is running to take it."
    invocation.output.show({"table": str(path), "due": True, "running": running}, sentence)
