"""The page of the checkpoint protocol: its diagrams are those of the code, its proofs exist and leave nothing out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lakeward.machines.diagrams import diagram, render

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "G": "tests/core/machines/test_gateway_scenarios.py",
    "S": "tests/core/machines/test_checkpoints_scenarios.py",
    "M": "tests/core/machines/test_checkpoints_model.py",
    "P": "tests/core/machines/test_splits_scenarios.py",
    "B": "tests/core/storage/test_checkpoint_bytes.py",
    "E": "tests/core/subtask/test_exchange_window.py",
}
CITED = re.compile(r"\b([A-Z]): `(test_\w+)`")


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "explanation" / "checkpoints.md").read_text(encoding="utf-8")


def rows(page: str, first: str) -> dict[str, str]:
    """The rows of a table whose first cell looks like this: that cell, and the last one."""
    found = re.findall(rf"^\| ({first}) \|.*?\| ([^|]+) \|$", page, re.MULTILINE)
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


def test_the_diagrams_are_those_of_the_tables(page: str) -> None:
    assert all(diagram(name) in page for name in ("gateway", "checkpoints", "attempts", "link"))
    assert page == render(page), "draw them anew: python -m lakeward.cli.reference docs/reference"


def test_each_invariant_is_checked_somewhere(page: str) -> None:
    checked = rows(page, r"A-I\d+")
    assert list(checked) == [f"A-I{number}" for number in range(1, 29)]
    without = [name for name, where in checked.items() if not CITED.search(where)]
    assert without == ["A-I12", "A-I24"]  # facts of the whole house, not of a moment


def test_each_scenario_has_a_test_or_a_reason(page: str) -> None:
    scenarios = rows(page, r"\d+")
    assert list(scenarios) == [str(number) for number in range(1, 75)]
    for name, where in scenarios.items():
        assert CITED.search(where) or where.startswith("cannot occur: "), f"scenario {name}"


def test_each_test_that_the_page_names_is_there(root: Path, page: str) -> None:
    cited = set(CITED.findall(page))
    texts = {name: (root / path).read_text(encoding="utf-8") for name, path in FILES.items()}
    assert [f"{name}: {test}" for name, test in sorted(cited) if f"def {test}(" not in texts[name]] == []


def test_each_scenario_that_a_test_names_is_one_that_the_page_proves_by_it(root: Path, page: str) -> None:
    named = re.findall(r"^def (test_scenarios?_[\w]+)\(", (root / FILES["S"]).read_text(encoding="utf-8"), re.MULTILINE)
    assert [test for test in named if test not in page] == []
