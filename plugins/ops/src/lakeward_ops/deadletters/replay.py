"""`lakeward deadletters replay`."""

from __future__ import annotations

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_source
from lakeward.cli.serving import find_services
from lakeward.errors import UsageError
from lakeward.model.dead_letters import LetterFilter
from lakeward.model.tables import TablePath
from lakeward.observe.control import ask_replay


@click.command("replay")
@click.argument("table", metavar="DB.TABLE")
@click.option("--column", help="Those whose value of this column does not fit alone.")
@click.option("--code", help="Those of this error alone, such as LW-406.")
@with_common_options
@pass_invocation
def replay(invocation: Invocation, *, table: str, column: str | None, code: str | None) -> int:
    """Ask the running service to put the rows of dead letters into DB.TABLE: of all, or of those that all options mean.

    It does so before the table's next round. A letter stays if its row still does not fit, or, in a keyed table, if the
    source's log does not show that its key has no newer version; `lakeward deadletters show` says why. A pattern such
    as `db.*` means all tables that it matches.
    """
    loaded = invocation.load()
    services = find_services(loaded)
    address = loaded.settings.checkpoint.address

    def do(path: TablePath) -> TableAnswer:
        service = services.of(path).seen
        if not service.running:
            message = f"{path}: no service reports that it runs, and only a service replays dead letters: start one"
            raise UsageError(message)
        ask_replay(address, service.name, path, LetterFilter(column, code))
        found = f"service {service.name!r} replays the dead letters of {path} before its next round."
        return TableAnswer({"table": str(path), "asked": True, "service": service.name}, found)

    with opened_source(loaded) as source:
        paths = chosen_tables(loaded, source, table)
    return do_for_each(invocation, table, paths, do)
