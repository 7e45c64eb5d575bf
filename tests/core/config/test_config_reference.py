from __future__ import annotations

from pathlib import Path

from lakeward.config.reference import render_config

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "config.md"


def test_the_page_of_the_configuration_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_config(), "python -m lakeward.cli.reference docs/reference"
