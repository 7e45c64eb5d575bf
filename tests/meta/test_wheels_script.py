"""`tox run -e lowest` takes the oldest release of everything that we ask for, of extras too."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def wheels(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tox_wheels", root / "tests" / "tox" / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tox_wheels", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_dependencies_of_extras_are_direct_requirements(root: Path, wheels: ModuleType) -> None:
    project = tomllib.loads((root / "core" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own, extras = project["dependencies"], project["optional-dependencies"]
    assert wheels.Wanted.parse("core").dependencies() == own
    assert wheels.Wanted.parse("core[java]").dependencies() == [*own, *extras["java"]]
    page = tomllib.loads((root / "plugins" / "page" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_page = [need for need in page["dependencies"] if not need.startswith("lakeward")]
    core, served = wheels.with_siblings([wheels.Wanted.parse("core[java,page]")])
    assert core.dependencies() == [*own, *extras["java"]]
    assert served.dependencies() == of_page


def test_what_a_distribution_needs_of_this_workspace_comes_with_it_once(wheels: ModuleType) -> None:
    wanted = wheels.with_siblings([wheels.Wanted.parse("core[page,embedded,fluss]"), wheels.Wanted.parse("page")])
    names = ["core", "lease-fluss", "ops", "page", "source-embedded", "source-fluss"]
    assert sorted(one.folder.name for one in wanted) == names


def test_the_tests_of_a_plugin_get_what_its_extra_asks_for(wheels: ModuleType) -> None:
    wanted = wheels.wanted_by(["plugin-ops"])
    assert {one.folder.name for one in wanted} == {"core", "ops", "source-embedded", "testing"}


def test_distributions_of_this_project_are_no_dependencies_from_elsewhere(wheels: ModuleType) -> None:
    assert not [one for one in wheels.Wanted.parse("core[fluss]").dependencies() if one.startswith("lakeward")]


def test_each_dependency_of_an_extra_has_a_lower_bound_or_is_pinned(root: Path) -> None:
    project = tomllib.loads((root / "core" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [need for extra in project["optional-dependencies"].values() for need in extra]
    assert [need for need in needs if ">=" not in need and "==" not in need] == []


def test_the_environment_with_the_lowest_versions_has_the_page_and_runs_its_tests(root: Path) -> None:
    text = (root / "tox.ini").read_text(encoding="utf-8")
    lowest = text.split("[testenv:lowest]")[1].split("\n[testenv")[0]
    assert re.search(r"--lowest all\[[\w,]*\bpage\b", lowest)
    assert "tests/core plugins" in lowest
    assert "--ignore plugins" not in lowest
