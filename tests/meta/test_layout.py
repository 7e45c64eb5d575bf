from __future__ import annotations

import ast
from fnmatch import fnmatch
from inspect import getsource
from pathlib import Path
from textwrap import dedent

from lakeward.coordinator.rounds.round import Round

TOP = {
    "pyproject.toml",
    "core",
    "plugins",
    "tests",
    "tox.ini",
    "docs",
    "CHANGELOG.md",
    "README.md",
    "LICENSE",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "benchmarks",
}


def test_the_top_level_is_exactly_the_agreed_one(root: Path, tracked: list[Path]) -> None:
    found = {path.relative_to(root).parts[0] for path in tracked}
    assert {name for name in found if not name.startswith(".")} == TOP
    assert ".ci" in found


def test_every_distribution_is_a_whole_project(root: Path) -> None:
    projects = [root / "core", *(path for path in (root / "plugins").iterdir() if path.is_dir())]
    for project in projects:
        missing = [name for name in ("pyproject.toml", "README.md", "src") if not (project / name).exists()]
        assert not missing, f"{project.name}: {missing}"
        assert list(project.glob("src/*/py.typed")), f"{project.name}: no py.typed"


def test_every_plugin_has_tests_of_its_own(root: Path) -> None:
    plugins = [path for path in (root / "plugins").iterdir() if path.is_dir()]
    assert [path.name for path in plugins if not list(path.glob("tests/test_*.py"))] == []


def test_the_page_on_architecture_names_each_package_and_plugin_in_a_row(root: Path) -> None:
    """A row says what a package is for and what it never does; of a kind of plugin, one row is for all of them."""
    text = (root / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    packages_only, _, _ = text.partition("## A round")
    rows = [line.strip("| ").split(" | ") for line in packages_only.splitlines() if line.startswith("| `")]
    named = {name.strip("` ") for row in rows if len(row) == 3 for name in row[0].split(",")}
    packages = {path.parent.name for path in (root / "core" / "src" / "lakeward").glob("*/__init__.py")}
    plugins = {path.name for path in (root / "plugins").iterdir() if path.is_dir()}
    known = packages | plugins | {"errors", "container", "serve"}
    assert [name for name in sorted(known) if not any(fnmatch(name, pattern) for pattern in named)] == []
    assert [pattern for pattern in sorted(named) if not any(fnmatch(name, pattern) for name in known)] == []


def test_the_index_of_benchmarks_has_each_with_its_first_line(root: Path) -> None:
    index = (root / "benchmarks" / "README.md").read_text(encoding="utf-8")
    expected = []
    for path in (root / "benchmarks").glob("*.py"):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        expected.append(f"| `{path.name}` | {doc.splitlines()[0]} |")
    assert sorted(line for line in index.splitlines() if line.startswith("| `")) == sorted(expected)


def test_names_of_test_files_are_unique(tracked: list[Path]) -> None:
    names = [path.name for path in tracked if path.name.startswith("test_") and path.suffix == ".py"]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_the_page_on_architecture_shows_how_a_round_takes_an_event_as_the_code_has_it(root: Path) -> None:
    page = (root / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    assert dedent(getsource(Round.process)) in page
