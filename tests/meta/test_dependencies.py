"""The page of dependencies names each one of each distribution, with its oldest release and a reason."""

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


def explained(distribution: str) -> set[tuple[str, str]]:
    """Return name and oldest release of each row in a distribution's chapter."""
    chapters = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chapter = next((text for text in chapters if text.partition("\n")[0] == distribution), "")
    return {(match[1], match[2]) for match in ROW.finditer(chapter)}


@pytest.mark.parametrize(
    "project",
    [ROOT / "core", *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))],
    ids=lambda path: path.name,
)
def test_each_dependency_is_explained_and_none_that_is_not_there(project: Path) -> None:
    distribution = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    assert explained(distribution) == needed(project)
