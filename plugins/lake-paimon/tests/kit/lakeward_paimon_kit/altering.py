"""What another engine does to the columns of a lake table: it writes the next schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Alter = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def alter(folder: Path, change: Alter) -> Path:
    """Write the next schema of the table in a folder; return its file."""
    newest = max(int(one.name.partition("-")[2]) for one in (folder / "schema").iterdir())
    said = json.loads((folder / "schema" / f"schema-{newest}").read_bytes())
    said |= {"id": newest + 1, "fields": change(said["fields"])}
    said["highestFieldId"] = max(said["highestFieldId"], *(one["id"] for one in said["fields"]))
    file = folder / "schema" / f"schema-{newest + 1}"
    file.write_text(json.dumps(said), encoding="utf-8")
    return file


def renamed(old: str, new: str) -> Alter:
    """Return what renames a column."""
    return lambda fields: [one | {"name": new} if one["name"] == old else one for one in fields]


def dropped(name: str) -> Alter:
    """Return what drops a column."""
    return lambda fields: [one for one in fields if one["name"] != name]


def added(name: str, kind: str = "STRING") -> Alter:
    """Return what adds a column."""
    return lambda fields: [*fields, {"id": 50 + len(fields), "name": name, "type": kind}]
