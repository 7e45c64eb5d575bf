"""`lakeward plugins new`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.plugins.skeleton import skeleton
from lakeward.errors import StorageError, UsageError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@click.command("new")
@click.argument("name")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_common_options
@pass_invocation
def new(invocation: Invocation, *, name: str, directory: Path) -> None:
    """Write a lease backend NAME to start from into DIR: a package that works, with the tests that it must pass."""
    if not _NAME.fullmatch(name):
        message = f"name: expected lower-case letters, digits and -, a letter first, found {name!r}"
        raise UsageError(message)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        message = f"{directory}: expected a new or empty directory"
        raise UsageError(message)
    files = skeleton(name)
    _write(directory, files)
    steps = f"pip install -e {directory} pytest && pytest {directory}"
    use = f'[lease] backend = "{name}"'
    document = {"name": name, "directory": str(directory), "files": sorted(files)}
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
