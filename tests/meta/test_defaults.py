"""The keys of the configuration and their defaults stand in its sections, and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lakeward
from lakeward.model.settings import LakeSettings, Settings
from lakeward_lake_iceberg.options import IcebergOptions

CORE = Path(lakeward.__path__[0])
RESOLVED = {"duration_s"}
"""Where it is not given, the lease backend says it: what is passed on is no copy."""
FILES = sorted(
    path
    for package in ("coordinator", "machines/rounds", "machines/checkpoints", "machines/leases")
    for path in (CORE / package).rglob("*.py")
)


def keys() -> set[str]:
    """The keys of the sections whose name says a time or a number of something."""
    sections = (getattr(Settings(), name) for name in Settings.__struct_fields__ if name != "tables")
    named = {key for section in sections for key in section.__struct_fields__}
    return {key for key in named if "_" in key or key in {"tolerated", "retained"}} - RESOLVED


def declared(tree: ast.AST) -> set[str]:
    """The fields of classes, and what is passed to their constructors."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {
        one.target.id
        for node in classes
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    makers = [
        one for node in classes for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    ]
    return fields | {arg.arg for one in makers for arg in (*one.args.args, *one.args.kwonlyargs)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_no_class_that_a_section_is_passed_to_repeats_a_key_of_it(path: Path) -> None:
    assert declared(ast.parse(path.read_text(encoding="utf-8"))) & keys() == set()


def test_a_lake_that_declares_a_key_of_the_core_has_its_default() -> None:
    assert IcebergOptions(warehouse="w").commit_timeout_s == LakeSettings().commit_timeout_s
