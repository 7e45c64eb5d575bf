"""`lakeward config show`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.output import Columns
from lakeward.config.shown import shown


@click.command("show")
@with_common_options
@pass_invocation
def show(invocation: Invocation) -> None:
    """Show each key, its value and where the value came from; secrets are masked."""
    loaded = invocation.load()
    lines = shown(loaded)
    document = {"file": str(loaded.file), "keys": lines}
    rows = [(line.key, _text(line.value), line.origin) for line in lines]
    invocation.output.show(document, Columns(("key", "value", "from"), rows))


def _text(value: object) -> str:
    if value is None:
        return "(unset)"
    if value == "" or (isinstance(value, Mapping | list | tuple) and not value):
        return "(empty)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
