"""`lakeward upkeep run`."""

from __future__ import annotations

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_source
from lakeward.cli.serving import find_services
from lakeward.errors import UsageError
from lakeward.model.tables import TablePath
from lakeward.observe.control import ask_upkeep


@click.command("run")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def run(invocation: Invocation, *, table: str) -> int:
    """Ask the running service to do what upkeep of DB.TABLE is due, as soon as it has free slots.

    A pattern such as `db.*` means all tables that it matches. `lakeward upkeep plan` shows what is due, and
    `lakeward tables DB.TABLE` what has been done.
    """
    loaded = invocation.load()
    services = find_services(loaded)
    address = loaded.settings.checkpoint.address

    def do(path: TablePath) -> TableAnswer:
        service = services.of(path).seen
        if not service.running:
            message = (
                f"{path}: no service reports that it runs, and only a service does upkeep: start one, or call "
                "`lakeward run --once`, which tiers, does what upkeep is due, and ends"
            )
            raise UsageError(message)
        ask_upkeep(address, service.name, path)
        found = f"service {service.name!r} does what upkeep of {path} is due once it has free slots."
        return TableAnswer({"table": str(path), "asked": True, "service": service.name}, found)

    with opened_source(loaded) as source:
        paths = chosen_tables(loaded, source, table)
    return do_for_each(invocation, table, paths, do)
