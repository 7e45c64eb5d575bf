"""Whether a plugin's distribution was built for this core: its dependency on `lakeward`, read before it is imported."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from lakeward.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

CORE_DISTRIBUTION = "lakeward"


def incompatibility(distribution: Distribution, core: str | None = None) -> str:
    """Return why a distribution does not fit this core, such as `is built for lakeward>=2, found lakeward 1.4`.

    It is part of a sentence, empty where the distribution fits; one that names no version of `lakeward` fits any. Only
    dependencies on `lakeward` count, and only those whose marker holds here (`python_version`, no extra). `core` is the
    core's version; None: the installed one.

    Raises:
        PluginError: its metadata has a dependency that cannot be read.
    """
    found = core or version(CORE_DISTRIBUTION)
    for needed in _on_the_core(distribution):
        # A pre-release of the core is what its own plugins are tried with.
        if not needed.specifier.contains(found, prereleases=True):
            return f"is built for {CORE_DISTRIBUTION}{needed.specifier}, found {CORE_DISTRIBUTION} {found}"
    return ""


def _on_the_core(distribution: Distribution) -> list[Requirement]:
    needed = [_parsed(distribution, text) for text in distribution.requires or ()]
    return [
        one
        for one in needed
        if canonicalize_name(one.name) == CORE_DISTRIBUTION
        and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]


def _parsed(distribution: Distribution, text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        message = f"{distribution.name} {distribution.version}: its metadata names a dependency {text!r}: {error}"
        raise PluginError(message) from error
