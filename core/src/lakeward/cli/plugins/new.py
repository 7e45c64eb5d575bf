"""`lakeward plugins new`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.plugins.skeleton import KINDS, skeleton
from lakeward.errors import StorageError, UsageError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_USE = {
    "lease": '[lease] backend = "{name}"',
    "wrapper": '[lease] wrappers = ["metrics", "{name}"]',
    "lake": '[lake] type = "{name}"',
    "source": '[source] type = "{name}"',
}


@click.command("new")
@click.option(
    "--kind", type=click.Choice(list(KINDS)), default="lease", show_default=True, help="What the plugin is to be."
)
@click.argument("name")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@with_common_options
@pass_invocation
def new(invocation: Invocation, *, kind: str, name: str, directory: Path | None) -> None:
    """Write a new plugin NAME into DIR: a lease backend, a lease wrapper, a lake or a source.

    It is a package that works, with the conformance suite as its tests, which pass before you change anything, and a
    workflow that runs them. DIR is lakeward-KIND-NAME unless given.
    """
    if not _NAME.fullmatch(name):
        message = f"name: expected lower-case letters, digits and -, a letter first, found {name!r}"
        raise UsageError(message)
    directory = directory or Path(f"lakeward-{kind}-{name}")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        message = f"{directory}: expected a new or empty directory"
        raise UsageError(message)
    files = skeleton(kind, name)
    _write(directory, files)
    steps = f"pip install -e {directory} pytest && pytest {directory}"
    use = _USE[kind].format(name=name)
    document = {"kind": kind, "name": name, "directory": str(directory), "files": sorted(files)}
    invocation.output.show(document, f"Wrote {directory}. Try it: {steps}", f"Use it: {use} in lakeward.toml")


def _write(directory: Path, files: dict[str, str]) -> None:
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{directory}: cannot be written ({error.strerror or error})"
        raise StorageError(message) from error
