from __future__ import annotations

import ast
import re
from pathlib import Path

LINES_MOST = 700
VAGUE = {"utils", "util", "common", "helpers", "misc", "manager"}
# Written in pieces, so that this file does not hold what it looks for.
_PIECES = (("/wo", "rk/"), ("/tm", "p/dev"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/"), ("C:\\\\", "Users"))
MACHINE_PATHS = [re.compile("(?<![A-Za-z0-9_.-])" + first + last) for first, last in _PIECES]
BINARY = {".parquet", ".arrow", ".png", ".gif", ".ico", ".jar"}


def modules(tracked: list[Path]) -> list[Path]:
    """Return all Python files of the product."""
    return [path for path in tracked if path.suffix == ".py" and "src" in path.parts]


def test_no_module_is_longer_than_agreed(tracked: list[Path]) -> None:
    lengths = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules(tracked)}
    assert {name: length for name, length in lengths.items() if length > LINES_MOST} == {}


def test_no_module_has_a_name_that_says_nothing(tracked: list[Path]) -> None:
    assert [str(path) for path in modules(tracked) if {path.stem, path.parent.name} & VAGUE] == []


def test_every_module_says_what_it_is(tracked: list[Path]) -> None:
    bare = [path for path in modules(tracked) if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert [str(path) for path in bare] == []


def test_no_tracked_file_names_a_place_on_somebodys_machine(tracked: list[Path]) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in tracked
        if path.suffix not in BINARY
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if any(pattern.search(line) for pattern in MACHINE_PATHS)
    ]
    assert found == []


def test_types_are_learned_while_a_module_is_imported(tracked: list[Path]) -> None:
    """What msgspec learns of a type at its first use must not be learned by several threads: that is a crash."""
    late = [
        f"{path}:{call.lineno}"
        for path in modules(tracked)
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "decode"
        and "type" in {given.arg for given in call.keywords}
    ]
    assert late == []
