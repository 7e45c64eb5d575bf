"""The diagrams of the machines in the docs are those of the tables, and each machine's states are drawn."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING

import pytest

from lakeward import machines
from lakeward.cli.reference import draw_machines
from lakeward.machines.diagrams import NAMES, TABLES, render, states
from lakeward.machines.machine import MachineState

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pages(root: Path) -> list[str]:
    """Every page that explains something."""
    return [page.read_text(encoding="utf-8") for page in sorted((root / "docs" / "explanation").glob("*.md"))]


def test_each_page_shows_the_machines_as_their_tables_are(pages: list[str]) -> None:
    assert [render(page) for page in pages] == pages, "draw them anew: python -m lakeward.cli.reference docs/reference"


def test_each_table_is_drawn_once(pages: list[str]) -> None:
    drawn = [name for page in pages for name in re.findall(r"<!-- drawn: (\w+) -->", page)]
    assert sorted(drawn) == sorted(NAMES)


def test_each_state_of_a_machine_with_a_table_is_in_a_diagram() -> None:
    found = set()
    for module in walk_packages(machines.__path__, f"{machines.__name__}."):
        table = getattr(import_module(module.name), "TRANSITIONS", {})
        found |= {type(state) for state, _ in table}
    found |= {rules.states for rules in TABLES.values()}
    assert found == {states(name) for name in NAMES}
    assert all(inspect.isclass(kind) and issubclass(kind, MachineState) for kind in found)


def test_a_page_with_an_old_diagram_is_drawn_anew(tmp_path: Path) -> None:
    page = tmp_path / "machines.md"
    page.write_text("<!-- drawn: heartbeat -->\nold\n<!-- end -->\n", encoding="utf-8")
    draw_machines(tmp_path)
    assert "resting --> under_way: Tick" in page.read_text(encoding="utf-8")
