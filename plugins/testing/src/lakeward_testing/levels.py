"""Levels of the conformance suites: how much of a contract a plugin claims to keep, and what it declares not to do.

`basic`: what the plugin is for, where nothing goes wrong and no row changes. `upsert`: the same thing again: rows that
change, leases that are renewed or move. `chaos`: refusals, lost answers, races, restarts, damage. A level contains
those before it. A test class says which level it claims, the highest unless it says otherwise; tests of a higher level
are skipped, and each skip names the level. A plugin's class publishes its level as `conformance_level`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lakeward.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS = ("basic", "upsert", "chaos")
PUBLISHED = "conformance_level"
"""Attribute of a plugin's class: the level that its tests claim; `lakeward plugins list` shows it."""
_KEY = "conformance_level_of_test"
Test = TypeVar("Test", bound="Callable[..., Any]")


def upsert(test: Test) -> Test:
    """Mark a test that asks for the level `upsert`."""
    test.__dict__[_KEY] = "upsert"
    return test


def chaos(test: Test) -> Test:
    """Mark a test that asks for the level `chaos`."""
    test.__dict__[_KEY] = "chaos"
    return test


def level_of(test: Callable[..., Any]) -> str:
    """Return the level that a test asks for."""
    return str(test.__dict__.get(_KEY, LEVELS[0]))


class Conformance:
    """What all suites have: a level, and skips that name what was declared."""

    __test__ = False

    level = LEVELS[-1]
    """The level that the plugin claims: `basic`, `upsert` or `chaos`."""
    published: object = None
    """The class that the plugin's entry point names; its `conformance_level` must be the level that is tested here."""

    @pytest.fixture(autouse=True)
    def _only_what_is_claimed(self, request: pytest.FixtureRequest) -> None:
        test = request.function
        if _rank(level_of(test)) > _rank(self.level):
            pytest.skip(f"declared: level = {self.level!r}; this test is of level {level_of(test)!r}")

    def test_the_published_level_is_the_one_that_is_tested(self) -> None:
        """What `lakeward plugins list` shows is what the suite has seen."""
        if self.published is None:
            pytest.skip("declared: published = None")
        found = getattr(self.published, PUBLISHED, None)
        assert found == self.level, f"expected {PUBLISHED} = {self.level!r} on {self.published!r}, found {found!r}"  # noqa: S101 - a suite asserts

    def needs(self, *capabilities: str) -> None:
        """Skip a test unless the plugin has these capabilities, attributes of the suite.

        The skip names those that the plugin declared not to have.
        """
        missing = [name for name in capabilities if not getattr(self, name)]
        if missing:
            pytest.skip(f"declared: {', '.join(f'{name} = False' for name in missing)}")


def _rank(level: str) -> int:
    if level not in LEVELS:
        message = f"level: expected one of {', '.join(LEVELS)}, found {level!r}"
        raise UsageError(message)
    return LEVELS.index(level)
