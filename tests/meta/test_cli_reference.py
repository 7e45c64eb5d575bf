from __future__ import annotations

from pathlib import Path

from lakeward.cli.reference import render_cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_of_commands_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_cli(), "python -m lakeward.cli.reference docs/reference"
