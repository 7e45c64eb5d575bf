from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT = re.compile("fluss|iceberg", re.IGNORECASE)
PLUGIN_NAMES = ("fluss", "iceberg")
NAMING = (
    "model/settings.py",  # the defaults of `lake.type` and `lease.backend`
    "config/",  # the same, and the configuration to start from
)
"""Where the core may write the name of a plugin as text, as an operator writes it."""


def core_modules(root: Path) -> list[Path]:
    return sorted((root / "core" / "src" / "lakeward").rglob("*.py"))


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of all strings that stand alone: they say something and do nothing."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def words(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield line and text of each name and of each string that is no docstring, and whether it is a string."""
    said = docstrings(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in said:
            yield line, node.value if isinstance(node.value, str) else node.value.decode("latin-1"), True
        for field in ("id", "attr", "name", "arg", "module", "asname"):
            if isinstance(text := getattr(node, field, None), str):
                yield line, text, False


def may_name_plugins(module: str, text: str) -> bool:
    is_starter = module.startswith("config/") and "[lease]" in text
    return module.startswith(NAMING) and (text in PLUGIN_NAMES or is_starter)


def test_the_core_knows_no_fluss_and_no_iceberg_but_as_names_of_plugins(root: Path) -> None:
    top = root / "core" / "src" / "lakeward"
    found = [
        f"{module}:{line}: {text!r:.60}"
        for path in core_modules(root)
        for module in [path.relative_to(top).as_posix()]
        for line, text, is_string in words(ast.parse(path.read_text(encoding="utf-8")))
        if PRODUCT.search(text) and not (is_string and may_name_plugins(module, text))
    ]

    assert found == []


def test_a_property_name_and_a_class_of_a_product_are_noticed() -> None:
    code = ast.parse('"""Fluss."""\nclass FlussThing:\n    key = "fluss-offsets"\n    """Of Fluss."""\n')

    assert [text for _, text, _ in words(code) if PRODUCT.search(text)] == ["FlussThing", "fluss-offsets"]
