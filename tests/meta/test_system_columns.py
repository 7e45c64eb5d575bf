from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lakeward.model.batches import SYSTEM_FIELDS
from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, OFFSET_COLUMN, RESERVED_COLUMNS, TIMESTAMP_COLUMN

ROOT = Path(__file__).parents[2]
NAMES = {"CHANGE_COLUMN", "OFFSET_COLUMN", "TIMESTAMP_COLUMN"}


def declares(node: ast.AST) -> bool:
    """Return whether a node makes an Arrow field of a system column."""
    is_field = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "field"
    return is_field and any(isinstance(arg, ast.Name) and arg.id in NAMES for arg in node.args)  # type: ignore[attr-defined]


def test_the_system_columns_are_named_and_declared_in_one_place_each(tracked: list[Path]) -> None:
    named, declared = set(), set()
    for path in tracked:
        if path.suffix == ".py" and "src" in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and node.value in RESERVED_COLUMNS:
                    named.add("/".join(path.parts[-2:]))
                if declares(node):
                    declared.add("/".join(path.parts[-2:]))

    assert named == {"model/tables.py"}
    assert declared == {"model/batches.py"}
    assert [field.name for field in SYSTEM_FIELDS] == [CHANGE_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN]


@pytest.mark.parametrize(
    "page", ["docs/how-to/choose-a-mode.md", "docs/tutorial/first-table.md", "docs/reference/formats.md"]
)
def test_pages_that_show_the_columns_explain_the_offset_of_a_row_from_a_kv_snapshot(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert f"`__offset` {NO_OFFSET}" in text
