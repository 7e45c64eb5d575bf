"""Render the reference pages from the code."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakeward import errors
from lakeward.cli.main import lakeward
from lakeward.config.reference import render_config, render_plugin_keys
from lakeward.hooks.reference import render as render_hooks
from lakeward.machines import diagrams
from lakeward.observe.metrics_reference import render_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLI_HEAD = """\
# Commands

Every command also takes the options of `lakeward` itself, before or after its name. Results go to standard output,
as text or, with `--output json`, as one JSON document; errors go to standard error (with `--output json` also to
standard output, as `{"error": {"code", "message", "exit_code"}}`). Exit codes: 0 done, 1 failed, 2 wrong usage or
configuration, 3 outcome unknown (it may have happened: look before trying again), 130 interrupted.

This page is generated from the code; `tests/meta/test_cli_reference.py` keeps it so.
"""
_ERRORS_HEAD = """\
# Errors

An error is one line: `error[CODE]: message`. The message names the key, file or table, what was expected and what
was found. `--debug` adds the traceback.

This page is generated from the code; `tests/meta/test_errors.py` keeps it so.

| code | exit code | name | meaning |
|---|---|---|---|
"""


def render_cli() -> str:
    """Render `docs/reference/cli.md` from the commands: Markdown, a section for each command."""
    root = click.Context(lakeward, info_name="lakeward", **lakeward.context_settings)
    return "\n".join([_CLI_HEAD, *_command(lakeward, root)])


def render_errors() -> str:
    """Render `docs/reference/errors.md` from `lakeward.errors`: Markdown, a table of codes, ordered by code."""
    rows = [
        f"| {kind.code} | {kind.exit_code} | `{kind.__name__}` | {errors.meaning(kind)} |"
        for kind in errors.error_classes()
    ]
    return _ERRORS_HEAD + "\n".join(rows) + "\n"


def write_pages(directory: Path) -> None:
    """Write all generated pages: `python -m lakeward.cli.reference docs/reference`."""
    pages = {
        "cli.md": render_cli,
        "errors.md": render_errors,
        "config.md": render_config,
        "plugin-keys.md": render_plugin_keys,
        "hooks.md": render_hooks,
        "metrics.md": render_metrics,
    }
    for name, render in pages.items():
        (directory / name).write_text(render(), encoding="utf-8")
    draw_machines(directory.parent / "explanation")


def draw_machines(directory: Path) -> None:
    """Draw the machines anew in each page that shows one."""
    for page in directory.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        if (drawn := diagrams.render(text)) != text:
            page.write_text(drawn, encoding="utf-8")


def commands(command: click.Command = lakeward, name: str = "lakeward") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their full names, groups before their members."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for each in command.list_commands(context):
            subcommand = command.get_command(context, each)
            if subcommand is not None:
                yield from commands(subcommand, f"{name} {each}")


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## `{context.command_path}`\n"
    yield "```text\n" + _usage(command, context) + "\n```\n"
    yield _help(command) + "\n"
    yield from _parameters(command, context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            subcommand = command.get_command(context, each)
            if subcommand is not None:
                yield from _command(subcommand, click.Context(subcommand, info_name=each, parent=context))


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _parameters(command: click.Command, context: click.Context) -> Iterator[str]:
    is_root = context.parent is None
    shared = {parameter.name for parameter in lakeward.params}
    records = [
        record
        for parameter in command.params
        if is_root or parameter.name not in shared
        if (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        yield "\n".join(["| option | meaning |", "|---|---|", *(f"| `{_cell(a)}` | {_cell(b)} |" for a, b in records)])
        yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
