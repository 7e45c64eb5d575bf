"""The files of a new plugin: templates beside this module, filled with its name."""

from __future__ import annotations

import re
from importlib.resources import files
from string import Template
from typing import NamedTuple

from lakeward.hooks.plugins import LAKE_GROUP, LEASE_GROUP, SOURCE_GROUP, WRAPPER_GROUP


class _Kind(NamedTuple):
    """A kind of plugin: its title, what its class names end in, its dependencies and entry points."""

    title: str
    ending: str
    dependencies: tuple[str, ...]
    group: str


KINDS = {
    "lease": _Kind("lease backend", "Leases", (), LEASE_GROUP),
    "wrapper": _Kind("lease wrapper", "Wrapper", ("prometheus-client>=0.20",), WRAPPER_GROUP),
    "lake": _Kind("lake", "LakePlugin", ("pyarrow>=20",), LAKE_GROUP),
    "source": _Kind("source", "SourcePlugin", ("pyarrow>=20",), SOURCE_GROUP),
    "log-source": _Kind("source of logs", "SourcePlugin", ("pyarrow>=20",), SOURCE_GROUP),
}
_WIDTH = 120
"""Characters of a line, as `pyproject.toml` of the new package has it."""
_LONG_LINE = re.compile(r"( *)((?:def |return |\w+ = )\w+\()(.+)(\)(?: -> [^()]+:)?)")
_UNTYPED = """
[[tool.mypy.overrides]]
module = ["pyarrow.*"]  # it comes without types
ignore_missing_imports = true
"""


def distribution_of(kind: str, name: str) -> str:
    """Return the name of the distribution of a plugin of a kind, a key of `KINDS`."""
    return f"lakeward-{_role(kind)}-{name}"


def _role(kind: str) -> str:
    """Return what a plugin of a kind is to the service: a source of logs is a source, and named as one."""
    return kind.rpartition("-")[2]


def skeleton(kind: str, name: str) -> dict[str, str]:
    """Write the files of a plugin: return each path below the package's directory with its text.

    `kind` is a key of `KINDS`; `name` is what the configuration will name: lower-case letters, digits and `-`.
    """
    made, role = KINDS[kind], _role(kind)
    module = f"{role}_{name.replace('-', '_')}"
    package = f"lakeward_{module}"
    class_name = "".join(part.capitalize() for part in name.split("-"))
    names = {
        "kind": role,
        "group": made.group,
        "metric": name.replace("-", "_"),
        "title": made.title,
        "distribution": distribution_of(kind, name),
        "width": str(_WIDTH),
        "untyped": _UNTYPED if any(one.startswith("pyarrow") for one in made.dependencies) else "",
        "name": name,
        "package": package,
        "dependencies": ", ".join(f'"{one}"' for one in ("lakeward>=0.1,<0.2", *made.dependencies)),
        "class_name": class_name + made.ending,
        "options_name": f"{class_name}{role.capitalize()}Options",
        "lake_class": f"{class_name}Lake",
        "writer_class": f"{class_name}LakeWriter",
        "source_class": f"{class_name}Source",
        "reader_class": f"{class_name}SourceReader",
    }
    tested = [names["class_name"], *([] if kind == "wrapper" else [names["options_name"]])]
    names["import_tested"] = _import(f"{package}.plugin", [*tested, *(["Store"] if kind == "source" else [])])
    templates = {
        "pyproject.toml": "pyproject.toml",
        "README.md": f"{kind}/README.md",
        ".gitignore": "gitignore",
        "tox.ini": "tox.ini",
        ".github/workflows/ci.yml": "ci.yml",
        f"src/{package}/__init__.py": "init.py",
        f"src/{package}/plugin.py": f"{kind}/plugin.py",
        f"tests/test_{module}.py": f"{kind}/test.py",
    }
    names["index"] = _template("index.md").substitute(names).rstrip("\n")
    written = {path: _folded(_template(place).substitute(names)) for path, place in templates.items()}
    return written | {f"src/{package}/py.typed": ""}


def _import(module: str, names: list[str]) -> str:
    """Import names in the order that ruff wants, on one line where it holds them."""
    ordered = sorted(names, key=str.lower)
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in ordered), ")"])


def _folded(text: str) -> str:
    """Fold each line of code that a long name makes too long, as ruff would."""
    return "\n".join(_folded_line(line) for line in text.split("\n"))


def _folded_line(line: str) -> str:
    match = _LONG_LINE.fullmatch(line) if len(line) > _WIDTH else None
    if match is None:
        return line
    indent, head, inside, tail = match.groups()
    return f"{indent}{head}\n{indent}    {inside}\n{indent}{tail}"


def _template(place: str) -> Template:
    return Template((files("lakeward_ops.new_plugin") / "templates" / f"{place}.txt").read_text(encoding="utf-8"))
