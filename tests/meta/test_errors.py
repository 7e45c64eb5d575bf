from __future__ import annotations

from collections import Counter
from pathlib import Path

from lakeward.cli.reference import render_errors
from lakeward.errors import error_classes

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


def test_every_code_belongs_to_one_error() -> None:
    counted = Counter(kind.code for kind in error_classes())
    assert [code for code, times in counted.items() if times > 1] == []


def test_every_error_has_a_docstring_of_its_own() -> None:
    assert [kind.__name__ for kind in error_classes() if not kind.__dict__.get("__doc__")] == []


def test_the_page_of_errors_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_errors(), "python -m lakeward.cli.reference docs/reference"
