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
    "--force", is_flag=True, help="Delete checkpoints of a running service too: it can then not restore from them."
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
    if not force:
        _check(loaded)
    if not (yes or click.confirm(_question(to_delete), err=True)):
        invocation.output.show({"deleted": []}, "Nothing was deleted.")
        return EXIT_FAILED
    for info in to_delete:
        store.delete(info.ref)
    ids = [str(info.ref) for info in to_delete]
    invocation.output.show({"deleted": ids}, *(f"Deleted {each}." for each in ids))
    return 0


def _check(loaded: Loaded) -> None:
    seen = see_service(loaded)
    if seen.running and seen.report is not None:
        message = (
            f"service {seen.name} runs (process {seen.report.pid}) and may need its checkpoints at any moment. "
            "Stop the service first, or pass --force"
        )
        raise UsageError(message)


def _question(to_delete: Sequence[CheckpointInfo]) -> str:
    names = "\n".join(f"  {info.ref} ({info.path or 'unknown table'}, {info.state.value})" for info in to_delete)
    return f"{names}\nDelete?"
