"""Each dependency is explained, with its oldest release: those of the core on a page, a plugin's in its README."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "dependencies.md"
ROW = re.compile(r"^\| ([a-z0-9][\w.-]*) \| ([\d.]+) \| (\S.*) \|$", re.MULTILINE)
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?(?:>=|==)([\d.]+)")


def needed(project: Path) -> set[tuple[str, str]]:
    """Return name and oldest release of each dependency of a distribution, extras included."""
    document = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    assert explained(project) == needed(project)
