"""No line of these machines sets a state but from its transition table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lakeward.machines import exchange, splits

EXCHANGE, SPLITS = (Path(package.__path__[0]) for package in (exchange, splits))
FILES = [
    SPLITS / "machine.py",
    *(EXCHANGE / f"{name}.py" for name in ("alignment", "output_queue")),
]
STATES = {"_phase", "_phases", "_attempts"}
"""The attributes that hold states."""


def state_assignments(function: ast.FunctionDef) -> list[ast.expr | None]:
    """What is assigned to a state, directly or by key."""
    found: list[ast.expr | None] = []
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            held = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(held, ast.Attribute) and held.attr in STATES:
                found.append(getattr(node, "value", None))
    return found


def is_lookup(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "next_state"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_state_is_set_from_the_table_only(path: Path) -> None:
    functions = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    ]
    values = {function.name: state_assignments(function) for function in functions if function.name != "__init__"}
    assert [value for found in values.values() for value in found], "no state is set here: look in another file"
    assert {name: found for name, found in values.items() if not all(map(is_lookup, found))} == {}
