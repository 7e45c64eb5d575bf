"""`lakeward embedded snapshot`, `maintain` and `set-option`."""

from __future__ import annotations

from pathlib import Path

import click

from lakeward.cli.extend import Invocation, count, pass_invocation, with_common_options
from lakeward.model.tables import TablePath
from lakeward_source_embedded.commands.store_option import open_store, with_store_option


@click.command("snapshot")
@click.argument("table", metavar="DB.TABLE")
@with_store_option
@with_common_options
@pass_invocation
def snapshot(invocation: Invocation, *, table: str, store: Path | None) -> None:
    """Take KV snapshots of all changed buckets of DB.TABLE now, then clean old ones up."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        taken = opened.snapshot(path)
    invocation.output.show({"table": str(path), "taken": taken}, f"{path}: {count(taken, 'snapshot')} taken.")


@click.command("maintain")
@with_store_option
@with_common_options
@pass_invocation
def maintain(invocation: Invocation, *, store: Path | None) -> None:
    """Take due snapshots, delete old ones, trim the log, and delete expired leases and leftovers of crashes."""
    with open_store(invocation, store) as opened:
        opened.maintain()
        root = str(opened.root)
    invocation.output.show({"store": root, "maintained": True}, f"{root}: all upkeep is done.")


@click.command("set-option")
@click.argument("key")
@click.argument("value")
@with_store_option
@with_common_options
@pass_invocation
def set_option(invocation: Invocation, *, key: str, value: str, store: Path | None) -> None:
    """Change a setting of the whole store: lease-api (true, false) or tiering-timeout-s."""
    with open_store(invocation, store) as opened:
        opened.set_option(key, value)
        options = opened.options()
    invocation.output.show({"options": options}, *(f"{name} = {text}" for name, text in options.items()))
