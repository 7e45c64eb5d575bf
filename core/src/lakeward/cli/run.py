"""`lakeward run`: the service itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.container import serve
from lakeward.observe import status_file
from lakeward.observe.files import is_local

if TYPE_CHECKING:
    from lakeward.config.loader import Loaded
    from lakeward.model.status import ServiceReport


@click.command("run")
@click.option("--once", is_flag=True, help="End when each table stands at the end offsets seen at the start.")
@click.option("--final", is_flag=True, help="Drop the lease at the end: this service will not be started again.")
@click.option("--progress/--no-progress", default=True, help="Show progress per table; default: yes.")
@with_common_options
@pass_invocation
def run(invocation: Invocation, *, once: bool, final: bool, progress: bool) -> int:
    """Tier tables until told to stop.

    SIGINT or SIGTERM ends the rounds early, commits what is whole, releases what is no longer needed and keeps the
    lease; a second one stops at once. The next start goes on where this one stopped.

    With `--output json` there is no progress; the service's last report is written at the end.
    """
    loaded = invocation.load()
    as_json = invocation.form == "json"
    code = serve(loaded, once=once, final=final, progress=progress and not as_json)
    if as_json:
        invocation.output.show({"exit_code": code, "report": _last_report(loaded)})
    return code


def _last_report(loaded: Loaded) -> ServiceReport | None:
    root = loaded.settings.checkpoint.root
    return status_file.read(root, loaded.settings.service.name) if is_local(root) else None
