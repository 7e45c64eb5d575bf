"""No file of the core imports itself through others: imports for type checkers alone count as well."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


def module_name(source: Path, file: Path) -> str:
    """Return what a file is imported as."""
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    """Return the modules that a file names in its imports, wherever these stand in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if names <= modules else names | {node.module}
    return found & modules


def find_cycle(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of one cycle, the first one again at the end; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def imports_of(source: Path) -> dict[str, set[str]]:
    """Return which modules below a folder import which."""
    files = {module_name(source, file): file for file in source.rglob("*.py")}
    trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in files.items()}
    return {name: imported(tree, set(files)) - {name} for name, tree in trees.items()}


def test_no_two_files_of_the_core_import_each_other(root: Path) -> None:
    imports = imports_of(root / "core" / "src")
    assert len(imports) > 100
    assert find_cycle(imports) == []


def test_an_import_for_type_checkers_alone_closes_a_cycle(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import two\n", encoding="utf-8")
    checked = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from one import name\n"
    (tmp_path / "two.py").write_text(checked, encoding="utf-8")
    assert set(find_cycle(imports_of(tmp_path))) == {"one", "two"}
