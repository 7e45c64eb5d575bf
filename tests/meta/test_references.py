"""What comments and pages point at is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path for path in (ROOT / "docs").rglob("*.md")}
CODE = [path for folder in ("core", "plugins", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
_REFERENCE = re.compile(r"\b([a-z][\w-]*\.md)(?:, \"([^\"]+)\")?")
_OUTSIDE = re.compile(r"\bfacts? ?:? (?:Fluss|Spark|Flink|lake|[0-9]\.)|\bdesign section")


def headings(page: Path) -> set[str]:
    """Return the titles of a page's sections."""
    return set(re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def references(path: Path) -> list[tuple[str, str]]:
    """Return the pages, and sections of pages, that a file names; a line break may be anywhere in a title."""
    text = re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text(encoding="utf-8"))
    return [(match[1], match[2] or "") for match in _REFERENCE.finditer(text)]


def test_each_section_that_a_comment_names_exists() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {page} {section}"
        for path in CODE
        for page, section in references(path)
        if section and (page not in PAGES or section not in headings(PAGES[page]))
    ]
    assert missing == []


def test_no_comment_cites_a_document_that_is_not_here() -> None:
    cited = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in CODE
        if path != Path(__file__)
        for match in _OUTSIDE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert cited == []


def test_links_between_pages_lead_to_files_and_sections() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*PAGES.values(), ROOT / "README.md", *ROOT.glob("plugins/*/README.md")]
        for target in re.findall(r"\]\(([^)#\s:]+\.\w+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
