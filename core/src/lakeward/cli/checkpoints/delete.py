"""`lakeward checkpoints delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.checkpoints.find import find, open_store
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.service_line import see_service
from lakeward.errors import EXIT_FAILED, UsageError
from lakeward.observe.presence import no_start_meanwhile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

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
    are deleted by the next start. Checkpoints of a service that runs, or starts, are refused.
    """
    loaded = invocation.load()
    store = open_store(loaded)
    infos = store.list(loaded.settings.service.name)
    to_delete = list(dict.fromkeys(find(infos, text) for text in checkpoints))
    with _nobody_starts(loaded) as alone:
        running = _allowed(loaded, alone=alone, force=force)
    if not (yes or click.confirm(_question(to_delete, running), err=True)):  # nobody is kept from starting meanwhile
        invocation.output.show({"deleted": []}, "Nothing was deleted.")
        return EXIT_FAILED
    with _nobody_starts(loaded) as alone:
        running = _allowed(loaded, alone=alone, force=force)
        for info in to_delete:
            store.delete(info.ref, keep_segments=bool(running))
    ids = [str(info.ref) for info in to_delete]
    lines = [f"Deleted {each}." for each in ids]
    if running:
        name = loaded.settings.service.name
        lines.append(
            f"A process of service {name} is there: rows beside the deleted checkpoints stay, as it may refer to them."
        )
    invocation.output.show({"deleted": ids}, *lines)
    return 0


def _nobody_starts(loaded: Loaded) -> AbstractContextManager[bool]:
    return no_start_meanwhile(loaded.settings.checkpoint.address, loaded.settings.service.name)


def _allowed(loaded: Loaded, *, alone: bool, force: bool) -> str:
    """Say that the service runs, or starts; empty if it does neither.

    Raises:
        UsageError: it does, and nobody forces the command.
    """
    running = _running(loaded, alone=alone)
    if running and not force:
        message = f"{running} and may need its checkpoints at any moment. Stop the service first, or pass --force"
        raise UsageError(message)
    return running


def _running(loaded: Loaded, *, alone: bool) -> str:
    seen = see_service(loaded)
    if seen.running and seen.report is not None:
        return f"service {seen.name} runs (process {seen.report.pid})"
    return "" if alone else f"service {seen.name} starts or hangs"


def _question(to_delete: Sequence[CheckpointInfo], running: str) -> str:
    names = "\n".join(f"  {info.ref} ({info.path or 'unknown table'}, {info.state.value})" for info in to_delete)
    cost = f"\n{running}: until its next checkpoint, a restart starts the round over." if running else ""
    return f"{names}{cost}\nDelete?"
