"""Golden files of the stored formats, see `tests/core/storage/golden/README.md`."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from lakeward.model.checkpoints import CheckpointRef, LeaseCopy, RoundSnapshot, SubtaskSnapshot
from lakeward.model.status import ServiceReport
from lakeward.observe import control
from lakeward.storage import binding_files, commit_records, round_history, round_journal, service_state
from lakeward.storage.checkpoint_format import Head
from lakeward_service_kit.stored_values import STORED

GOLDEN = Path(__file__).parents[2] / "storage" / "golden"
CURRENT, OLD = GOLDEN / "current", GOLDEN / "7e3f9db"
FIELDS = CURRENT / "fields.json"
FORMATS: dict[str, type] = {
    "service.state": service_state._Body,
    "journal": round_journal.RoundJournal,
    "committed": commit_records.CommitRecord,
    "_metadata: files": Head,
    "_metadata: round": RoundSnapshot,
    "_metadata: lease": LeaseCopy,
    "part: checkpoint": CheckpointRef,
    "part: subtask": SubtaskSnapshot,
    "rounds.jsonl": round_history._Line,
    "bindings.json": binding_files._Document,
    "control.json": control._Document,
    "control/DB.TABLE.json": control._TableDocument,
    "status.json": ServiceReport,
}
"""By the part of a file that it describes: the type whose fields are stored."""


def unpack_world(name: str, folder: Path) -> None:
    """Put what a service of commit 7e3f9db left into a folder: `state`, `lake` and `store`.

    Args:
        name: what happened to the service, a folder of `OLD`.
        folder: an empty one.
    """
    shutil.copytree(OLD / name / "state", folder / "state")
    with zipfile.ZipFile(OLD / name / "world.zip") as packed:
        packed.extractall(folder)


def fields_of(kind: type) -> dict[str, str]:
    """Return the type of each stored field, at any depth, and whether it may be left out.

    Args:
        kind: of the whole value.
    """
    (schema,), named = msgspec.json.schema_components([kind])
    found: dict[str, str] = {}
    _describe(schema, named, "", found)
    return found


def _describe(schema: dict[str, Any], named: dict[str, Any], at: str, found: dict[str, str]) -> str:
    """Add the fields inside a type to what was found, and return the type in words."""
    if "$ref" in schema:
        schema = named[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return " or ".join(_describe(one, named, at, found) for one in schema["anyOf"])
    if "properties" in schema:
        return _describe_object(schema, named, at, found)
    if "prefixItems" in schema or "items" in schema:
        return _describe_list(schema, named, at, found)
    if "additionalProperties" in schema:
        return f"map to {_describe(schema['additionalProperties'], named, f'{at}[]', found)}"
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    return "bytes" if "contentEncoding" in schema else str(schema["type"])


def _describe_object(schema: dict[str, Any], named: dict[str, Any], at: str, found: dict[str, str]) -> str:
    only = [one["enum"][0] for one in schema["properties"].values() if len(one.get("enum", ())) == 1]
    tags = [value for value in only if isinstance(value, str)]  # a number is a version
    inside = f"{at}({tags[0]})" if tags else at
    for name, field in schema["properties"].items():
        left_out = "" if name in schema["required"] else ", may be left out"
        found[f"{inside}.{name}"] = _describe(field, named, f"{inside}.{name}", found) + left_out
    return " ".join(["object", *tags])


def _describe_list(schema: dict[str, Any], named: dict[str, Any], at: str, found: dict[str, str]) -> str:
    if "prefixItems" in schema:
        return "(" + ", ".join(_describe(one, named, at, found) for one in schema["prefixItems"]) + ")"
    return f"list of {_describe(schema['items'], named, f'{at}[]', found)}"


def write_current() -> None:
    """Write the golden files of what this release stores."""
    CURRENT.mkdir(parents=True, exist_ok=True)
    for name, stored in STORED.items():
        (CURRENT / name).write_bytes(stored.encode(stored.value))
    described = {name: fields_of(kind) for name, kind in FORMATS.items()}
    FIELDS.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_current()
