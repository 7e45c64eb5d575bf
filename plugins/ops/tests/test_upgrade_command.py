"""`lakeward tables upgrade` in this process: what it asks of a lake, and what it says."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from lakeward.ports import FormatUpgrade

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath
    from lakeward_service_kit.command_line import Lakeward


@pytest.fixture
def upgraded(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that a lake with versions 2 and 3 of its format was asked to upgrade."""
    assert flights("tables").code == 0  # the lake's module is imported
    asked: list[str] = []

    def upgrade(_: object, path: TablePath) -> FormatUpgrade:
        asked.append(str(path))
        return FormatUpgrade(2 if asked.count(str(path)) == 1 else 3, 3)

    # A class of its own: Python remembers of a class which protocols it has.
    puddle = importlib.import_module("puddle_lake")
    monkeypatch.setattr(puddle, "Puddle", type("UpgradablePuddle", (puddle.Puddle,), {"upgrade": upgrade}))
    return asked


def test_a_table_is_upgraded_once_and_then_said_to_have_the_version(flights: Lakeward, upgraded: list[str]) -> None:
    said = flights("tables", "upgrade", "nyc.flights")
    assert (said.code, said.out.strip()) == (0, "nyc.flights: format version 3, before 2.")
    again = flights("tables", "upgrade", "nyc.flights")
    assert (again.code, again.out.strip()) == (0, "nyc.flights has format version 3 already; nothing was changed.")
    assert upgraded == ["nyc.flights", "nyc.flights"]


def test_json_has_both_versions(flights: Lakeward, upgraded: list[str]) -> None:
    said = flights("tables", "upgrade", "nyc.*", "-o", "json")
    assert said.document == {"tables": [{"table": "nyc.flights", "upgraded": True, "before": 2, "after": 3}]}
    assert upgraded == ["nyc.flights"]


def test_a_lake_without_versions_is_refused_in_words(flights: Lakeward) -> None:
    said = flights("tables", "upgrade", "nyc.flights")
    assert said.code == 2
    assert "lake 'puddle': it has no newer version of its format to move tables to" in said.err
