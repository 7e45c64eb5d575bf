"""`lakeward plugins new`."""

from __future__ import annotations

import re
import shlex
from itertools import chain, count
from pathlib import Path

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.errors import StorageError, UsageError
from lakeward.hooks.discovery import owner
from lakeward_ops.new_plugin.skeleton import KINDS, distribution_of, skeleton

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MOST = 40
"""Characters of a name: those of classes, modules and files are made of it, and lines of code have to hold them."""
_USE = {
    "lease": '[lease] backend = "{name}"',
    "wrapper": '[lease] wrappers = ["metrics", "{name}"]',
    "lake": '[lake] type = "{name}"',
    "source": '[source] type = "{name}"',
    "log-source": '[source] type = "{name}"',
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
    """Write a new plugin NAME into DIR: a lease backend, a lease wrapper, a lake, a source, or a source of logs alone.

    It is a package that works, with the conformance suite as its tests, which pass before you change anything, and a
    workflow that runs them. DIR is lakeward-KIND-NAME unless given (lakeward-source-NAME for a log-source).
    """
    _check_name(kind, name)
    directory = directory or Path(distribution_of(kind, name))
    _check_directory(directory)
    files = skeleton(kind, name)
    _write(directory, files)
    place = shlex.quote(str(directory))
    steps = f"pip install -e {place} lakeward-testing && pytest {place}"
    use = _USE[kind].format(name=name)
    document = {"kind": kind, "name": name, "directory": str(directory), "files": sorted(files)}
    invocation.output.show(document, f"Wrote {directory}. Try it: {steps}", f"Use it: {use} in lakeward.toml")


def _check_name(kind: str, name: str) -> None:
    """Refuse a name that cannot be one of a plugin, and one that somebody has: an installation of both would break."""
    if not _NAME.fullmatch(name) or len(name) > _MOST:
        allowed = f"at most {_MOST} lower-case letters, digits and -, a letter first"
        shown = repr(name) if len(name) <= _MOST else f"{name[:_MOST]!r}... ({len(name)} characters)"
        message = f"name: expected {allowed}, found {shown}"
        raise UsageError(message)
    holder = _owner(kind, name)
    if holder:
        message = f"name: {name!r} is taken by the {holder}; take another one, such as {_free(kind, name)!r}"
        raise UsageError(message)


def _owner(kind: str, name: str) -> str:
    return owner(KINDS[kind].group, name, distribution_of(kind, name))


def _free(kind: str, name: str) -> str:
    """Return a name like this one that nobody has."""
    beginnings = chain(["my"], (f"my{number}" for number in count(2)))
    names = (f"{beginning}-{name}"[:_MOST].rstrip("-") for beginning in beginnings)
    return next(one for one in names if not _owner(kind, one))


def _check_directory(directory: Path) -> None:
    try:
        usable = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    except OSError as error:
        message = f"{directory}: cannot be read ({error.strerror or error})"
        raise StorageError(message) from error
    if not usable:
        message = f"{directory}: expected a new or empty directory"
        raise UsageError(message)


def _write(directory: Path, files: dict[str, str]) -> None:
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{directory}: cannot be written ({error.strerror or error})"
        raise StorageError(message) from error
