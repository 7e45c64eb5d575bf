"""Prints how heavy the house is: lines, files, large constructors, large classes, Protocols with one implementation.

It measures a checkout as text and compares two of them: `python benchmarks/weight.py [BEFORE] [NOW]`; the present one
if none is named.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MOST_ARGUMENTS = 8
_MOST_ATTRIBUTES = 15
_NO_PRODUCT = ("testing", "lakeward_testing", "lakeward_source_embedded", "lakeward_demo")


@dataclass(frozen=True)
class Module:
    """One file of the product: its path below `src`, its lines, its classes."""

    path: Path
    lines: int
    classes: tuple[ast.ClassDef, ...]


def modules(root: Path) -> list[Module]:
    """Read the product: the core and the plugins without tests."""
    found = []
    for source in sorted([root / "core" / "src", *(root / "plugins").glob("*/src")]):
        for file in sorted(source.rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            classes = tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
            found.append(Module(file.relative_to(source), text.count("\n"), classes))
    return found


def within(places: Iterable[Module], *names: str) -> list[Module]:
    """Return the modules that lie in one of these packages of the core."""
    return [one for one in places if one.path.parts[0] == "lakeward" and one.path.parts[1] in names]


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the methods of a class."""
    return (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def arguments(node: ast.ClassDef) -> int:
    """Return how many arguments the constructor takes; 0 without one of its own."""
    for one in methods(node):
        if one.name == "__init__":
            return len([*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]) - 1
    return 0


def attributes(node: ast.ClassDef) -> int:
    """Return how many attributes methods give to their object."""
    stored = (
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    )
    return len(set(stored))


def is_protocol(node: ast.ClassDef) -> bool:
    """Return whether a class is a Protocol."""
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def lonely_protocols(places: list[Module]) -> list[str]:
    """Return the Protocols of the coordinator whose methods not two classes of the product have."""
    classes = [node for one in places for node in one.classes if not is_protocol(node)]
    have = [{one.name for one in methods(node)} for node in classes]
    lonely = []
    for one in within(places, "coordinator"):
        for node in filter(is_protocol, one.classes):
            wanted = {method.name for method in methods(node)}
            lonely += [node.name] if sum(wanted <= names for names in have) < 2 else []
    return lonely


def measure(root: Path) -> dict[str, str]:
    """Return what is measured of a checkout, in words."""
    places = modules(root)
    core = [one for one in places if one.path.parts[0] == "lakeward" and "testing" not in one.path.parts]
    product = [one for one in places if not set(_NO_PRODUCT) & set(one.path.parts)]
    machines = within(places, "machines")
    large = sorted((arguments(node) for one in product for node in one.classes), reverse=True)
    crowded = [
        f"{node.name} {attributes(node)}"
        for one in within(places, "coordinator", "subtask")
        for node in one.classes
        if attributes(node) > _MOST_ATTRIBUTES
    ]
    lonely = lonely_protocols(places)
    return {
        "lines of the core without testing": f"{lines(core):,}",
        "lines of core and plugins without testing, embedded, demo": f"{lines(product):,}",
        "machines: files, lines": f"{len(machines)}, {lines(machines):,}",
        f"constructors with more than {_MOST_ARGUMENTS} arguments": listed(
            [str(n) for n in large if n > _MOST_ARGUMENTS]
        ),
        f"classes with more than {_MOST_ATTRIBUTES} attributes in coordinator and subtask": listed(crowded),
        "Protocols in the coordinator with one implementation": listed(lonely),
    }


def lines(places: list[Module]) -> int:
    """Return the lines of modules together."""
    return sum(one.lines for one in places)


def listed(found: list[str]) -> str:
    """Return a count with what was counted."""
    return f"{len(found)} ({', '.join(found)})" if found else "0"


def main(named: list[str], say: Callable[[str], None] = print) -> None:
    """Print the measures of one checkout or two."""
    roots = [Path(name) for name in named] or [Path(__file__).parents[1]]
    found = [measure(root) for root in roots]
    for name in found[0]:
        say(f"{name}:")
        for root, one in zip(roots, found, strict=True):
            say(f"  {root.name}: {one[name]}")


if __name__ == "__main__":
    main(sys.argv[1:])
