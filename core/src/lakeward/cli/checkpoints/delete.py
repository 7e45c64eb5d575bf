"""`lakeward checkpoints delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.checkpoints.find import find, open_store
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.service_line import see_service
from lakeward.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.checkpoints import CheckpointInfo


@click.command("delete")
@click.argument("checkpoints", metavar="CHECKPOINT...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    is_flag=True,
    help="Delete checkpoints of a running service too: until its next one, a restart starts the round over.",
)
@with_common_options
@pass_invocation
def delete(invocation: Invocation, *, checkpoints: tuple[str, ...], yes: bool, force: bool) -> int:
    """Delete each CHECKPOINT: an id as `list` shows it, the end of one, or DB.TABLE for the table's newest.

    A round without a checkpoint starts over from the lake's offsets: nothing is lost or doubled, and its lake files
    are deleted by the next start. Checkpoints of a running service are refused.
    """
    loaded = invocation.load()
    store = open_store(loaded)
    infos = store.list(loaded.settings.service.name)
    to_delete = list(dict.fromkeys(find(infos, text) for text in checkpoints))
    running = _running(loaded)
    if running and not force:
        message = f"{running} and may need its checkpoints at any moment. Stop the service first, or pass --force"
        raise UsageError(message)
    if not (yes or click.confirm(_question(to_delete, running), err=True)):
        invocation.output.show({"deleted": []}, "Nothing was deleted.")
        return EXIT_FAILED
    for info in to_delete:
        store.delete(info.ref, keep_segments=bool(running))
    ids = [str(info.ref) for info in to_delete]
    lines = [f"Deleted {each}." for each in ids]
    if running:
        name = loaded.settings.service.name
        lines.append(
            f"Service {name} runs: rows beside the deleted checkpoints stay, because its next ones may refer to them."
        )
    invocation.output.show({"deleted": ids}, *lines)
    return 0


def _running(loaded: Loaded) -> str:
    """Say that the service runs; empty if it does not."""
    seen = see_service(loaded)
    return f"service {seen.name} runs (process {seen.report.pid})" if seen.running and seen.report is not None else ""


def _question(to_delete: Sequence[CheckpointInfo], running: str) -> str:
    names = "\n".join(f"  {info.ref} ({info.path or 'unknown table'}, {info.state.value})" for info in to_delete)
    cost = f"\n{running}: until its next checkpoint, a restart starts the round over." if running else ""
    return f"{names}{cost}\nDelete?"
