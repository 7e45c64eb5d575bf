"""`lakeward checkpoints show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.checkpoints.find import find, open_store
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.output import Columns
from lakeward.clock import SystemClock
from lakeward.observe.checkpoint_status import CheckpointContent, ExchangeLine, checkpoint_content
from lakeward.observe.format import count, date_time, seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@click.command("show")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--files", is_flag=True, help="Show each closed lake file too (JSON always has them).")
@with_common_options
@pass_invocation
def show(invocation: Invocation, *, checkpoint: str, files: bool) -> None:
    """Show what CHECKPOINT contains: positions of each subtask, closed files, blocked events, lease, exchanged rows.

    CHECKPOINT is an id as `list` shows it, the end of one (`7-3/chk-12`), or DB.TABLE for the table's newest. All
    files are checked; if one is damaged, the error names it and says why.
    """
    loaded = invocation.load()
    store = open_store(loaded)
    info = find(store.list(loaded.settings.service.name), checkpoint)
    found = store.load(info.ref)
    store.check_segments(found)
    content = checkpoint_content(found, SystemClock().wall_ms())
    invocation.output.show(content, *_text(content, files=files))


def _text(content: CheckpointContent, *, files: bool) -> Iterator[str | Columns]:
    line = content.checkpoint
    yield f"checkpoint {line.id}"
    yield f"table {line.table} (id {line.table_id}), epoch {line.epoch}, round {content.round}, commit {content.step}"
    parts = f"{count(line.parts, 'subtask')}, {size(line.size_bytes)}"
    yield f"completed at {date_time(line.completed_ms or 0)}, {seconds(line.age_s)} ago; {parts}"
    yield f"lake snapshot {_id(content.base_snapshot)}, offsets of {_id(content.base_commit)}"
    yield _lease(content)
    done = f"{count(content.finished)} finished, {count(len(content.progress))} in progress"
    yield f"{count(content.splits, 'split')}: {done}; {count(len(content.blocked), 'blocked event')}"
    if content.progress:
        yield ""
        yield _progress(content)
    if content.blocked:
        yield ""
        yield _blocked(content)
    if content.exchange:
        yield ""
        yield f"lake partitioning {', '.join(content.layout)}; {_besides(content.exchange)}"
        yield _exchange(content)
    if files and content.files:
        yield ""
        rows = [(file.holder, file.kind, count(file.rows), size(file.size_bytes), file.path) for file in content.files]
        yield Columns(("held by", "kind", "rows#", "size#", "file"), rows)


def _id(snapshot: int | None) -> str:
    return "none" if snapshot is None else str(snapshot)


def _lease(content: CheckpointContent) -> str:
    lease = content.lease
    if lease is None:
        return "no lease"
    kept = "0 B" if lease.state_bytes is None else size(lease.state_bytes)
    return f"lease {lease.lease_id} of backend {lease.backend}, with state of {kept}"


def _progress(content: CheckpointContent) -> Columns:
    rows = [
        (
            one.holder,
            one.split,
            one.kind,
            one.bucket,
            one.position,
            one.end,
            count(one.rows),
            count(one.files),
            size(one.size_bytes),
        )
        for one in content.progress
    ]
    names = ("held by", "split", "kind", "bucket", "position#", "end#", "rows#", "closed files#", "size#")
    return Columns(names, rows)


def _exchange(content: CheckpointContent) -> Columns:
    rows = [
        (
            one.holder,
            one.kind,
            count(one.rows),
            count(one.files),
            count(one.open_partitions),
            count(one.open_rows),
            size(one.open_bytes),
            count(one.in_rows),
            count(one.out_rows),
            size(one.channel_bytes),
        )
        for one in content.exchange
    ]
    names = ("held by", "cut", "rows taken#", "closed files#", "open files#", "open rows#", "of size#")
    return Columns((*names, "rows received#", "rows unsent#", "in channels#"), rows)


def _besides(lines: Sequence[ExchangeLine]) -> str:
    """Sum up what lies beside the checkpoint: its own size is without it."""
    channels, opened = sum(one.channel_bytes for one in lines), sum(one.open_bytes for one in lines)
    return f"beside the checkpoint are rows of channels ({size(channels)}) and of open files ({size(opened)})"


def _blocked(content: CheckpointContent) -> Columns:
    rows = [
        (one.holder, one.origin, one.split, one.end_offset, count(one.rows), count(one.files))
        for one in content.blocked
    ]
    return Columns(("held by", "event", "finished split", "end#", "rows#", "files#"), rows)
