"""Reads a partitioned table of the folder lake, now and as of each of its snapshots."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward_testing.folder_lake import FolderLake

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath

NAMES = ("id", "region", "at", "__bucket")


def read_partitioned(root: Path, path: TablePath) -> pa.Table:
    """Return the live rows of a table, folded to the last change of each key."""
    rows = FolderLake(root).read(path, "id")
    return pa.Table.from_pydict({name: [row[name] for row in rows] for name in NAMES})


def read_each_snapshot(root: Path, path: TablePath) -> list[pa.Table]:
    """Return the rows as of each entry of the table's log, the oldest first."""
    state = json.loads((root / f"{path}.json").read_text(encoding="utf-8"))
    tables = []
    for end in range(1, len(state["log"]) + 1):
        with tempfile.TemporaryDirectory() as folder:
            earlier = state | {"log": state["log"][:end]}
            (Path(folder) / f"{path}.json").write_text(json.dumps(earlier), encoding="utf-8")
            tables.append(read_partitioned(Path(folder), path))
    return tables
