"""The workspace is whole: what a new distribution must be named in, and what the README promises."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


LIBRARIES = {"testing"}
"""What tests import by name."""


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def projects() -> list[Path]:
    """Return the folder of every distribution."""
    return [ROOT / "core", *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def plugins() -> list[Path]:
    """Return the folders of plugins that are finished enough to have tests."""
    return [path for path in projects()[1:] if list(path.glob("tests/test_*.py"))]


def package(project: Path) -> str:
    """Return the name of a distribution's package."""
    return next(path.parent.name for path in project.glob("src/*/__init__.py"))


def environments() -> configparser.ConfigParser:
    """Return tox.ini."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser


def words_of(name: str) -> set[str]:
    """Return the names that a factor expression such as `a-{b,c}` stands for."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return {f"{match[1]}{one}{match[3]}" for one in match[2].split(",")} if match else {name}


@pytest.mark.parametrize("project", projects(), ids=lambda path: path.name)
def test_distributions_have_one_version_and_publish_something(project: Path) -> None:
    found = read(project / "pyproject.toml")["project"]
    assert found["version"] == read(ROOT / "core" / "pyproject.toml")["project"]["version"]
    assert found["license"] == "Apache-2.0"
    assert found["requires-python"] == ">=3.11"
    published = any(group.startswith("lakeward.") for group in found.get("entry-points", ()))
    assert published != (project.name in LIBRARIES)


@pytest.mark.parametrize("plugin", projects()[1:], ids=lambda path: path.name)
def test_plugins_are_named_after_their_folder_and_need_the_core(plugin: Path) -> None:
    found = read(plugin / "pyproject.toml")["project"]
    assert found["name"] == f"lakeward-{plugin.name}"
    assert package(plugin) == found["name"].replace("-", "_")
    assert any(re.match(r"lakeward(\[\w+\])?>=", need) for need in found["dependencies"])


@pytest.mark.parametrize("plugin", plugins(), ids=lambda path: path.name)
def test_plugins_are_known_to_every_gate(plugin: Path) -> None:
    assert f"plugin-{plugin.name}" in environments()["tox"]["env_list"].split()


def test_each_plugin_is_an_extra_of_the_core() -> None:
    """By its extras the core knows what to say where a plugin is missing."""
    extras = read(ROOT / "core" / "pyproject.toml")["project"]["optional-dependencies"].values()
    named = {re.split("[>=<]", need)[0] for needs in extras for need in needs}
    assert {f"lakeward-{path.name}" for path in projects()[1:]} - named == set()


def test_each_command_of_a_plugin_is_known_with_the_extra_that_brings_it() -> None:
    core = read(ROOT / "core" / "pyproject.toml")["project"]
    told = core["entry-points"]["lakeward.command_of_extra"]
    for project in projects()[1:]:
        for name in read(project / "pyproject.toml")["project"].get("entry-points", {}).get("lakeward.command", {}):
            brought = core["optional-dependencies"][told[name]]
            assert any(re.match(rf"lakeward-{project.name}(\[\w+\])?>=", need) for need in brought)


def test_every_environment_of_tox_says_what_it_is_for() -> None:
    parser = environments()
    sections = [name for name in parser.sections() if name.startswith("testenv:")]
    assert [name for name in sections if not parser[name].get("description")] == []


def test_environments_that_run_by_default_are_defined() -> None:
    parser = environments()
    known = {one for name in parser.sections() for one in words_of(name.removeprefix("testenv:"))}
    assert set(parser["tox"]["env_list"].split()) <= known


def test_the_readme_has_one_line_for_the_demo_and_one_for_the_tests() -> None:
    lines = re.findall(r"^python3 -m venv .*tox.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    start = "python3 -m venv .venv && .venv/bin/pip install -q tox tox-uv && .venv/bin/tox run"
    assert lines == [f"{start} -q -e demo", start]


def test_the_gate_takes_its_lines_from_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    finder = next(line for line in script.splitlines() if line.startswith("readme_line()"))
    shown = f"{finder}; readme_line 1; readme_line 2"
    done = subprocess.run(["bash", "-c", shown], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    first, second = done.stdout.splitlines()
    assert first.endswith("-e demo")
    assert second.endswith("tox run")


def test_the_gate_can_be_started() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
