"""The simulator implements the ports of the product: it replaces nothing in the product and reads nothing private."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATCHING = {"patch", "monkeypatch", "setattr", "MonkeyPatch"}
OWN = {"self", "cls", "asyncio"}
"""`asyncio._set_running_loop` is what an event loop calls, the simulator's as any other."""


def private_reads(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Find attributes with a leading underscore of anything but the object itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in OWN):
                yield node


def names(tree: ast.AST) -> Iterator[str]:
    """Return every name that is used or imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


@pytest.fixture
def simulator(root: Path) -> dict[str, ast.AST]:
    """The modules of the simulator, parsed."""
    files = sorted((root / "tests" / "simulator" / "lakeward_simulator").glob("*.py"))
    assert len(files) > 10
    return {file.name: ast.parse(file.read_text(encoding="utf-8")) for file in files}


def test_the_simulator_patches_nothing(simulator: dict[str, ast.AST]) -> None:
    assert {name: found for name, tree in simulator.items() if (found := PATCHING & set(names(tree)))} == {}


def test_the_simulator_reads_nothing_private(simulator: dict[str, ast.AST]) -> None:
    found = [f"{name}:{node.lineno}: {node.attr}" for name, tree in simulator.items() for node in private_reads(tree)]
    assert found == []


@pytest.mark.parametrize("text", ["service._hand", "self.service._hand", "run.job._attempts.values()"])
def test_a_private_read_is_found(text: str) -> None:
    assert list(private_reads(ast.parse(text)))
