"""The packages of this project that the core's own metadata names as extras: `pip install 'lakeward[...]'`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakeward.hooks.compatibility import CORE_DISTRIBUTION


@cache  # metadata does not change while a process runs
def extra_distributions() -> frozenset[str]:
    """Return the names of the distributions of this project that an extra of the core installs."""
    try:
        needs = requires(CORE_DISTRIBUTION) or ()
    except PackageNotFoundError:  # run from its sources, without having been installed
        needs = ()
    names = {canonicalize_name(Requirement(text).name) for text in needs}
    return frozenset(name for name in names if name.startswith(f"{CORE_DISTRIBUTION}-"))
