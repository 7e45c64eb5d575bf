from __future__ import annotations

from pathlib import Path

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


def test_names_of_test_files_are_unique(tracked: list[Path]) -> None:
    names = [path.name for path in tracked if path.name.startswith("test_") and path.suffix == ".py"]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
