"""What the packages of `plugins/` import of the core and of each other; import-linter looks at the core itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGINS = sorted(path.parent for path in Path(__file__).parents[2].glob("plugins/*/pyproject.toml"))
SEEN = ("ports", "hooks", "model", "errors", "clock", "local_files", "cli.extend", "observe.extend")
"""What of the core a plugin may import. `cli.extend` is for commands, `observe.extend` for what observes a service."""
TOOLS = {"ops"}
"""They look into the core, with which they are released."""
APPLICATIONS = {"demo"}
"""What is made of plugins, and of the command line, instead of serving them."""


def package(plugin: Path) -> str:
    """Return the name of a plugin's package."""
    return f"lakeward_{plugin.name.replace('-', '_')}"


def imports(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each module that the files of a folder import, wherever the import stands, with its file."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield path, node.module
                yield from ((path, f"{node.module}.{alias.name}") for alias in node.names if node.module == "lakeward")


def is_within(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def may_see(module: str) -> bool:
    return module == "lakeward" or any(is_within(module, f"lakeward.{name}") for name in SEEN)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_imports_no_other_plugin(plugin: Path) -> None:
    others = {package(one) for one in PLUGINS} - {package(plugin)}
    found = [
        f"{path.relative_to(plugin)}: {module}"
        for path, module in imports(plugin / "src")
        if module.partition(".")[0] in others
    ]
    assert plugin.name in APPLICATIONS or found == []


@pytest.mark.parametrize("plugin", [one for one in PLUGINS if one.name not in TOOLS], ids=lambda path: path.name)
def test_a_plugin_sees_nothing_of_the_core_but_what_is_meant_for_it(plugin: Path) -> None:
    found = [
        f"{path.relative_to(plugin)}: {module}"
        for path, module in imports(plugin / "src")
        if is_within(module, "lakeward") and not may_see(module)
    ]
    assert plugin.name in APPLICATIONS or found == []


def test_the_core_imports_no_plugin(root: Path) -> None:
    packages = {package(one) for one in PLUGINS}
    found = [str(path) for path, module in imports(root / "core" / "src") if module.partition(".")[0] in packages]
    assert found == []


def test_an_import_inside_a_function_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def f():\n    from lakeward import config\n", encoding="utf-8")
    assert [module for _, module in imports(tmp_path) if not may_see(module)] == ["lakeward.config"]
