"""What MkDocs does before it builds the site: it takes the pages at the top in, and lists the four parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
TOP = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages outside docs/, and where they are in the site."""
PARTS = {"Tutorial": "tutorial", "How-to": "how-to", "Reference": "reference", "Explanation": "explanation"}
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[\w./-]+)(?P<anchor>#[\w-]+)?\)")


def on_config(config: Any) -> Any:  # noqa: ANN401 - MkDocs' own
    """List the pages of the four parts by their titles."""
    docs = ROOT / "docs"
    nav: list[Any] = [{"Lakeward": "index.md"}]
    for title, folder in PARTS.items():
        pages = sorted((docs / folder).glob("*.md"))
        nav.append({title: [{_title(page): f"{folder}/{page.name}"} for page in pages]})
    nav.append(
        {"Project": [{"Changes": "changelog.md"}, {"Contributing": "contributing.md"}, {"Security": "security.md"}]}
    )
    config["nav"] = nav
    return config


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401 - MkDocs' own
    """Add the pages at the top, with links that fit their new places."""
    for name, place in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=_LINK.sub(lambda link: _moved(link, ROOT), text)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 - MkDocs' own
    """Let links of docs/ to pages at the top find them in the site."""
    source = page.file.src_uri
    if source in TOP.values():
        return markdown
    for name, place in TOP.items():
        markdown = markdown.replace(f"](../../{name}", f"](../{place}")
    return markdown


def _moved(link: re.Match[str], base: Path) -> str:
    path, anchor = link["path"], link["anchor"] or ""
    target = TOP.get(path) or path.removeprefix("docs/")
    if path not in TOP and not path.startswith("docs/"):
        return link[0] if not (base / path).exists() else f"]({path})"
    return f"]({target}{anchor})"


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
