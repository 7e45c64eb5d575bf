"""The files of a new plugin: templates beside this module, filled with its name."""

from __future__ import annotations

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
}


def skeleton(kind: str, name: str) -> dict[str, str]:
    """Write the files of a plugin.

    Args:
        kind: a key of `KINDS`.
        name: what the configuration will name; lower-case letters, digits and `-`.

    Returns:
        Path below the package's directory to text.
    """
    made = KINDS[kind]
    module = f"{kind}_{name.replace('-', '_')}"
    package = f"lakeward_{module}"
    class_name = "".join(part.capitalize() for part in name.split("-"))
    names = {
        "kind": kind,
        "group": made.group,
        "metric": name.replace("-", "_"),
        "title": made.title,
        "name": name,
        "package": package,
        "dependencies": ", ".join(f'"{one}"' for one in ("lakeward>=0.1,<0.2", *made.dependencies)),
        "class_name": class_name + made.ending,
        "options_name": f"{class_name}{kind.capitalize()}Options",
        "lake_class": f"{class_name}Lake",
        "writer_class": f"{class_name}LakeWriter",
        "source_class": f"{class_name}Source",
        "reader_class": f"{class_name}SourceReader",
    }
    templates = {
        "pyproject.toml": "pyproject.toml",
        "README.md": f"{kind}/README.md",
        "tox.ini": "tox.ini",
        ".github/workflows/ci.yml": "ci.yml",
        f"src/{package}/__init__.py": "init.py",
        f"src/{package}/plugin.py": f"{kind}/plugin.py",
        f"tests/test_{module}.py": f"{kind}/test.py",
    }
    written = {path: _template(place).substitute(names) for path, place in templates.items()}
    return written | {f"src/{package}/py.typed": ""}


def _template(place: str) -> Template:
    return Template((files("lakeward.cli.plugins") / "templates" / f"{place}.txt").read_text(encoding="utf-8"))
