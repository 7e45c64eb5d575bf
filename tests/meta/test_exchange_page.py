"""The page of the exchange: each case has a test or a reason, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "core").rglob("testing/*.py")]
CITED = re.compile(r"`(test_\w+)`")


def section(page: str, title: str) -> str:
    """What is under a heading."""
    return page.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]


@pytest.fixture
def page() -> str:
    return (ROOT / "docs" / "explanation" / "exchange.md").read_text(encoding="utf-8")


def numbers(text: str) -> list[int]:
    """Read `7`, `40, 41` and `43 to 46, 50`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


def test_each_case_has_a_test_or_a_reason(page: str) -> None:
    """A row may be of several cases."""
    cases = re.findall(r"^\| (\d[\d, to]*) \|[^|]*\| ([^|]+) \|$", section(page, "Cases by number"), re.MULTILINE)
    assert sorted(number for name, _ in cases for number in numbers(name)) == [*range(1, 91)]
    without = [name for name, where in cases if not (CITED.search(where) or where.startswith("cannot occur: "))]
    assert without == []


def test_each_invariant_is_in_the_table_of_proofs(page: str) -> None:
    rows = re.findall(
        r"^\| ((?:B-I\d+(?:, )?)+): ", section(page, "What must hold, and where that is checked"), re.MULTILINE
    )
    assert sorted(int(number) for row in rows for number in re.findall(r"B-I(\d+)", row)) == [*range(1, 25)]


def test_each_bug_has_a_mutant_or_a_reason_and_each_mutant_is_there(page: str) -> None:
    bugs = re.findall(r"^\| (\d+) \|[^|]*\| ([^|]+) \|$", section(page, "Bugs by number"), re.MULTILINE)
    assert [int(number) for number, _ in bugs] == [*range(1, 25)]
    named = {name for _, where in bugs for name in re.findall(r"`(\w+)`", where)}
    without = [number for number, where in bugs if "`" not in where and not where.startswith("cannot be written: ")]
    assert without == []
    mutants = ROOT / "tests" / "core" / "machines" / "kit" / "lakeward_mutants"
    files = [mutants / "recovery.py", mutants / "recovery_shells.py", ROOT / "tests/rescale/test_rescale_scenarios.py"]
    there = {
        name
        for file in files
        for name in re.findall(r"^(?:class|def) ((?:Bug|bug_)\d+\w*)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named == there


def test_each_test_that_the_page_names_is_there(page: str) -> None:
    """A name may be short: that of a file, or the number of a case."""
    defined = {name for path in TESTS for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))}
    defined |= {path.stem for path in TESTS}
    short = {f"test_{number}" for name in defined for number in re.findall(r"^test_(\d+)_", name)}
    assert sorted(set(CITED.findall(page)) - defined - short) == []


def test_each_numbered_case_of_the_machines_is_on_the_page(page: str) -> None:
    """A case may have several tests, and the page names one of them at least."""
    scenarios = ROOT / "tests" / "core" / "machines" / "test_exchange_scenarios.py"
    tested = set(re.findall(r"^def test_(\d+)_", scenarios.read_text(encoding="utf-8"), re.MULTILINE))
    assert tested - set(re.findall(r"`test_(\d+)_", page)) == set()
