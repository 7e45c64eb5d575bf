"""`lakeward tables pause` and `resume`."""

from __future__ import annotations

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_source
from lakeward.cli.serving import find_services
from lakeward.model.tables import TablePath
from lakeward.observe import control


@click.command("pause")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def pause(invocation: Invocation, *, table: str) -> None:
    """Start no round on DB.TABLE until `lakeward tables resume`; a running round is finished.

    The pause outlives restarts of the service. Where several services share the source, it is for all that may tier
    DB.TABLE; a service that is added later does not know of it.
    """
    loaded = invocation.load()
    path = TablePath.parse(table)
    with opened_source(loaded) as source:
        source.table(path)
    services = find_services(loaded)
    address = loaded.settings.checkpoint.address
    changed = [name for name in services.may_serve(path) if control.pause(address, name, path)]
    running = services.of(path).seen.running
    when = "" if running else " No service reports that it runs; one that starts keeps the pause."
    message = f"{path} is paused.{when}" if changed else f"{path} was paused already."
    invocation.output.show({"table": str(path), "paused": True, "changed": bool(changed)}, message)


@click.command("resume")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def resume(invocation: Invocation, *, table: str) -> None:
    """End the pause of DB.TABLE, or let the service try again if it has suspended DB.TABLE."""
    loaded = invocation.load()
    path = TablePath.parse(table)
    services = find_services(loaded)
    service = services.of(path).seen
    reports = service.report.tables if service.running and service.report is not None else ()
    suspended = any(report.path == str(path) and report.status == "suspended" for report in reports)
    address = loaded.settings.checkpoint.address
    paused = [name for name in services.may_serve(path) if control.resume(address, name, path)]
    if paused:
        message = f"{path} is resumed."
    else:
        message = f"{path} was suspended; it is tried again." if suspended else f"{path} was not paused."
    invocation.output.show({"table": str(path), "paused": False, "changed": bool(paused or suspended)}, message)
