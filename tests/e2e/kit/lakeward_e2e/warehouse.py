"""The lake as others see it: DuckDB reads the rows, pyiceberg's metadata says which files are named."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

    from lakeward.model.tables import TablePath
    from lakeward_e2e.tables import AnyTable, Row

_OFFSETS_FILE = "lakeward.offsets-file"
_MOVES_FILE = "lakeward.moves-file"


def files_below(folder: Path) -> Iterator[Path]:
    """List the files of a folder and its subfolders, which may be deleted meanwhile: `rglob` would raise."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


class Warehouse:
    """A directory of Iceberg tables, read by nobody of ours."""

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        self.root = root
        self._read: dict[tuple[TablePath, str], tuple[str, list[Row]]] = {}
        """What was read last, and of which version: whoever waits looks often, and a version stays as it is."""

    def table(self, path: TablePath) -> Table | None:
        """Load a table as it is now; None where there is none yet."""
        if not (self.root / "catalog.db").exists():
            return None
        # It only reads: a service may be making the catalog's own tables just now.
        properties = {"warehouse": f"file://{self.root}", "init_catalog_tables": "false"}
        catalog = SqlCatalog("lakeward", uri=f"sqlite:///{self.root}/catalog.db?timeout=60", **properties)
        try:
            return catalog.load_table((path.database, path.table))
        except NoSuchTableError:
            return None
        except OperationalError as failed:
            if "no such table" not in str(failed):
                raise
            return None
        finally:
            catalog.engine.dispose()

    def version(self, path: TablePath) -> str:
        """Return the name of a table's newest metadata, without reading it; empty where it is not known."""
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        file = f"file:{self.root}/catalog.db?mode=ro"
        # Nothing may be there yet, or it is locked just now.
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(file, uri=True)) as catalog:
            return "".join(name for (name,) in catalog.execute(query, (path.database, path.table)))
        return ""

    def rows(self, table: AnyTable) -> list[Row]:
        """Return a table's live rows by DuckDB, sorted."""
        return self.select(table.path, ", ".join(table.columns))

    def select(self, path: TablePath, columns: str) -> list[Row]:
        """Return columns of a table's live rows by DuckDB, sorted; none where there is no such table."""
        version = self.version(path)
        known, rows = self._read.get((path, columns), ("", []))
        if not version or version != known:
            rows = self._select(path, columns)
            self._read[path, columns] = (version, rows)
        return list(rows)

    def _select(self, path: TablePath, columns: str) -> list[Row]:
        table = self.table(path)
        if table is None or table.current_snapshot() is None:
            return []
        query = f"SELECT {columns} FROM iceberg_scan('{table.metadata_location}')"  # noqa: S608 - a test's own text
        with _duckdb().cursor() as cursor:
            return sorted(cursor.execute(query).fetchall(), key=str)

    def partitions(self, path: TablePath) -> dict[int, set[Row]]:
        """Return the partitions of the data files that a table has now, by the id of their layout."""
        table = self.table(path)
        found: dict[int, set[Row]] = {}
        for task in () if table is None else table.scan().plan_files():
            values = tuple(task.file.partition[place] for place in range(len(task.file.partition)))
            found.setdefault(task.file.spec_id, set()).add(values)
        return found

    def ids_by_snapshot(self, path: TablePath) -> list[list[int]]:
        """Return the column `id` as of each retained snapshot, by pyiceberg."""
        table = self.table(path)
        snapshots = [] if table is None else table.metadata.snapshots
        return [
            sorted(table.scan(snapshot_id=one.snapshot_id).to_arrow().column("id").to_pylist())
            for one in snapshots
            if table is not None
        ]

    def commits(self, path: TablePath) -> int:
        """Return how many retained snapshots carry offsets."""
        table = self.table(path)
        snapshots = [] if table is None else table.metadata.snapshots
        return sum("fluss-offsets" in _summary(snapshot) for snapshot in snapshots)

    def rewrite(self, path: TablePath) -> None:
        """Let somebody else write each data file anew."""
        # Other tests use this class too, without the kits of lakes.
        from lakeward_iceberg_kit.rewriting import rewrite_each_file  # noqa: PLC0415

        found = self.table(path)
        assert found is not None
        rewrite_each_file(found)

    def files(self, path: TablePath) -> set[str]:
        """Return all files in a table's directory."""
        table = self.table(path)
        default = self.root / path.database / path.table
        folder = default if table is None else Path(table.location().removeprefix("file://"))
        return {str(file) for file in files_below(folder) if not file.name.endswith(".crc")}

    def orphans(self, path: TablePath) -> set[str]:
        """Return files in a table's directory that neither its metadata nor any retained snapshot names."""
        found = self.files(path)
        return found - _named(self.table(path))


def _named(table: Table | None) -> set[str]:
    if table is None:
        return set()
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named |= {text for key, text in metadata.properties.items() if key == _OFFSETS_FILE}
    for snapshot in metadata.snapshots:
        said = _summary(snapshot)
        named |= {snapshot.manifest_list, said.get(_OFFSETS_FILE, ""), said.get(_MOVES_FILE, "")}
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return {name.removeprefix("file://") for name in named}


def _summary(snapshot: object) -> dict[str, str]:
    summary = getattr(snapshot, "summary", None)
    return {} if summary is None else dict(summary.additional_properties)


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """Return the process's DuckDB: what it has to load takes longer than most of what it reads."""
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        connection.execute(f"LOAD '{_extension(name)}'")
    return connection


def _extension(name: str) -> Path:
    package = import_module(f"duckdb_extension_{name}")
    return Path(package.__path__[0]) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
