"""`lakeward run`: the service itself."""

from __future__ import annotations

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.container import serve


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
    """
    return serve(invocation.load(), once=once, final=final, progress=progress)
