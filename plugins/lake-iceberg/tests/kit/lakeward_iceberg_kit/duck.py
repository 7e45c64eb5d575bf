"""DuckDB as a reader: its extensions, and a process of its own for tables that may end the process that reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

_READ = """
import json, sys, duckdb
metadata, columns, *extensions = sys.argv[1:]
connection = duckdb.connect()
for one in extensions:
    connection.execute(f"LOAD '{one}'")
print(json.dumps(connection.execute(f"SELECT {columns} FROM iceberg_scan('{metadata}')").fetchall()))
"""


def extension(name: str, version: str) -> Path:
    """Return an extension's file in its wheel: loaded by path, it needs neither a network nor an installation."""
    package = import_module(f"duckdb_extension_{name}")
    return Path(package.__path__[0]) / "extensions" / f"v{version}" / f"{name}.duckdb_extension"


def read_apart(metadata: str, columns: str) -> list[list[object]]:
    """Return a table's live rows, read by a process of its own: DuckDB ends its process on some manifests.

    Args:
        metadata: the metadata file.
        columns: in SQL, each of a value that JSON has.
    """
    version: str = import_module("duckdb").__version__
    extensions = [str(extension(name, version)) for name in ("avro", "iceberg")]
    command = [sys.executable, "-c", _READ, metadata, columns, *extensions]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[object]] = json.loads(done.stdout)
    return found
