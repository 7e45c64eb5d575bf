"""`lakeward run`: the service itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, take_key, with_common_options
from lakeward.clock import SystemClock
from lakeward.observe import status_file
from lakeward.observe.progress import show_progress

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.model.status import ServiceReport


@click.command("run")
@click.option("--once", is_flag=True, help="End when each table has reached the end offsets that it had at the start.")
@click.option("--final", is_flag=True, help="Drop the lease at the end: this service will not be started again.")
@click.option("--progress/--no-progress", default=True, help="Show progress per table; default: yes.")
@click.option(
    "--status-port",
    type=int,
    metavar="PORT",
    expose_value=False,
    callback=take_key("observe.status_port"),
    help="Serve the status page at this port, as the key `observe.status_port`; 0: any free one.",
)
@with_common_options
@pass_invocation
def run(invocation: Invocation, *, once: bool, final: bool, progress: bool) -> int:
    """Tier tables until stopped.

    SIGINT or SIGTERM finishes the running rounds early and commits what they have read. Snapshots that are no longer
    needed are released; the lease is kept. A second signal stops at once. The next start continues from there.

    With `--output json` there is no progress; the service's last report is written at the end.
    """
    loaded = invocation.load()
    as_json = invocation.form == "json"
    shown = show_progress(loaded.settings, SystemClock(), on=progress and not as_json)
    # Only now, as it takes seconds to import Spark, the source and the lake: the first line is there before.
    from lakeward.serve import serve  # noqa: PLC0415 - see above

    code = serve(loaded, once=once, final=final, progress=shown)
    if as_json:
        invocation.output.show({"exit_code": code, "report": _last_report(loaded)})
    return code


def _last_report(loaded: Loaded) -> ServiceReport | None:
    return status_file.read(loaded.settings.checkpoint.address, loaded.settings.service.name)
