"""`lakeward checkpoints list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.checkpoints.find import open_store
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.output import Columns
from lakeward.clock import SystemClock
from lakeward.observe.checkpoint_status import CheckpointLine, checkpoint_line
from lakeward.observe.format import count, seconds, size

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("list")
@with_common_options
@pass_invocation
def list_checkpoints(invocation: Invocation) -> None:
    """Show the checkpoints of the service by table, the newest of a table last.

    Reads `_metadata` and the names and sizes of the parts; `show` reads everything. One that is not complete is still
    running, or is deleted at the next start. Its size is that of metadata and parts; rows of channels and of open
    files lie beside them, several checkpoints may refer to the same, and `show` counts them.
    """
    loaded = invocation.load()
    service = loaded.settings.service.name
    now_ms = SystemClock().wall_ms()
    lines = [checkpoint_line(info, now_ms) for info in open_store(loaded).list(service)]
    parts: list[str | Columns] = [_table(lines) if lines else f"Service {service} has no checkpoint."]
    parts += [f"{line.id}: {line.message}" for line in lines if line.message]
    invocation.output.show({"service": service, "checkpoints": lines}, *parts)


def _table(lines: Sequence[CheckpointLine]) -> Columns:
    rows = [
        (
            line.table or "?",
            line.epoch,
            line.id,
            line.state,
            seconds(line.age_s),
            size(line.size_bytes),
            count(line.parts),
        )
        for line in lines
    ]
    return Columns(("table", "epoch#", "id", "state", "age#", "size#", "subtasks#"), rows)
