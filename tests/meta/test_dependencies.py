"""Each dependency is explained, with its oldest release: those of the core on a page, a plugin's in its README.

What the core installs of this repository by its extras is explained in the plugin's own project.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "dependencies.md"
ROW = re.compile(r"^\| ([a-z0-9][\w.-]*) \| ([\d.]+) \| (\S.*) \|$", re.MULTILINE)
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?(?:>=|==)([\d.]+)")


def document_of(project: Path) -> dict[str, Any]:
    """Return what a distribution says of itself."""
    document: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return document


def plugins_of_core() -> set[tuple[str, str]]:
    """Return name and oldest release of each plugin of this repository that an extra of the core installs."""
    return {(name, oldest) for name, oldest in needed(ROOT / "core") if name.startswith("lakeward-")}


def needed(project: Path) -> set[tuple[str, str]]:
    """Return name and oldest release of each dependency of a distribution, extras included."""
    document = document_of(project)
    listed = [
        *document["dependencies"],
        *(one for many in document.get("optional-dependencies", {}).values() for one in many),
    ]
    found = {REQUIREMENT.match(one) for one in listed}
    assert None not in found, f"{project.name}: a dependency without an oldest release"
    return {(match[1], match[2]) for match in found if match}


def explained(project: Path) -> set[tuple[str, str]]:
    """Return name and oldest release of each row in a distribution's chapter."""
    page, title = (PAGE, "lakeward") if project.name == "core" else (project / "README.md", "Dependencies")
    chapters = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chapter = next((text for text in chapters if text.partition("\n")[0] == title), "")
    return {(match[1], match[2]) for match in ROW.finditer(chapter)}


@pytest.mark.parametrize(
    "project",
    [ROOT / "core", *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))],
    ids=lambda path: path.name,
)
def test_each_dependency_is_explained_and_none_that_is_not_there(project: Path) -> None:
    elsewhere = plugins_of_core() if project.name == "core" else set()
    assert explained(project) == needed(project) - elsewhere


def test_each_plugin_that_an_extra_installs_says_what_it_is_for_and_has_that_release() -> None:
    documents = {name: document_of(ROOT / "plugins" / name.removeprefix("lakeward-")) for name, _ in plugins_of_core()}
    assert documents
    assert [name for name, document in documents.items() if not document["description"].strip()] == []
    assert {(name, document["version"].rpartition(".")[0]) for name, document in documents.items()} == plugins_of_core()
