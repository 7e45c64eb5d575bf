"""`lakeward tables pause` and `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_source
from lakeward.cli.serving import find_services
from lakeward.model.patterns import has_wildcards
from lakeward.model.tables import TablePath
from lakeward.observe import control

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.loaded import Loaded
    from lakeward.observe.services import Services


@click.command("pause")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def pause(invocation: Invocation, *, table: str) -> int:
    """Start no round on DB.TABLE until `lakeward tables resume`; a running round is finished.

    A pattern such as `db.*` means all tables that it matches. The pause outlives restarts of the service. Where several
    services share the source, it is for all that may tier DB.TABLE; a service that is added later does not know of it.
    """
    loaded = invocation.load()
    services = find_services(loaded)
    address = loaded.settings.checkpoint.address

    def do(path: TablePath) -> TableAnswer:
        changed = [name for name in services.may_serve(path) if control.pause(address, name, path)]
        running = services.of(path).seen.running
        when = "" if running else " No service reports that it runs; one that starts keeps the pause."
        message = f"{path} is paused.{when}" if changed else f"{path} was paused already."
        return TableAnswer({"table": str(path), "paused": True, "changed": bool(changed)}, message)

    with opened_source(loaded) as source:
        paths = chosen_tables(loaded, source, table)
        if not has_wildcards(table):
            source.table(paths[0])
    return do_for_each(invocation, table, paths, do)


@click.command("resume")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def resume(invocation: Invocation, *, table: str) -> int:
    """End the pause of DB.TABLE, or let the service try again if it has suspended DB.TABLE.

    A pattern such as `db.*` means all tables that it matches.
    """
    loaded = invocation.load()
    services = find_services(loaded)
    address = loaded.settings.checkpoint.address

    def do(path: TablePath) -> TableAnswer:
        service = services.of(path).seen
        reports = service.report.tables if service.running and service.report is not None else ()
        suspended = any(report.path == str(path) and report.status == "suspended" for report in reports)
        paused = [name for name in services.may_serve(path) if control.resume(address, name, path)]
        if paused:
            message = f"{path} is resumed."
        else:
            message = f"{path} was suspended; it is tried again." if suspended else f"{path} was not paused."
        return TableAnswer({"table": str(path), "paused": False, "changed": bool(paused or suspended)}, message)

    return do_for_each(invocation, table, _resumable(loaded, services, table), do)


def _resumable(loaded: Loaded, services: Services, text: str) -> tuple[TablePath, ...]:
    """Return the tables that an argument means. One may be paused though the source no longer has it."""
    if not has_wildcards(text):
        return (TablePath.parse(text),)
    with opened_source(loaded) as source:
        return chosen_tables(loaded, source, text, _paused(loaded, services))


def _paused(loaded: Loaded, services: Services) -> Iterator[TablePath]:
    for service in (services.ours, *services.others):
        requests = control.read_control(loaded.settings.checkpoint.address, service.name)
        yield from map(TablePath.parse, requests.paused)
