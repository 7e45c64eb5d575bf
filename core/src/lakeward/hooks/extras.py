"""What the core's own metadata says of the packages of its extras: `pip install 'lakeward[...]'`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakeward.hooks.compatibility import CORE_DISTRIBUTION

_COMMANDS = "lakeward.command_of_extra"
"""A table of names and not of code: each command that an extra brings, as an entry point whose value is the extra."""


@cache  # metadata does not change while a process runs
def extra_distributions() -> frozenset[str]:
    """Return the names of the distributions of this project that an extra of the core installs."""
    try:
        needs = requires(CORE_DISTRIBUTION) or ()
    except PackageNotFoundError:  # run from its sources, without having been installed
        needs = ()
    names = {canonicalize_name(Requirement(text).name) for text in needs}
    return frozenset(name for name in names if name.startswith(f"{CORE_DISTRIBUTION}-"))


def extra_of_command(name: str) -> str:
    """Return the extra that brings a command, named as its entry point in `lakeward.command`; empty where none does."""
    return next((entry.value for entry in entry_points(group=_COMMANDS, name=name)), "")
