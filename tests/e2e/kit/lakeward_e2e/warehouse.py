"""The lake as others see it: DuckDB reads the rows, pyiceberg's metadata says which files are named."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakeward.model.tables import TablePath
    from lakeward_e2e.tables import AnyTable, Row

_OFFSETS_FILE = "lakeward.offsets-file"


class Warehouse:
    """A directory of Iceberg tables, read by nobody of ours."""

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        self.root = root

    def table(self, path: TablePath) -> Table | None:
        """Load a table as it is now; None where there is none yet."""
        if not (self.root / "catalog.db").exists():
            return None
        catalog = SqlCatalog("lakeward", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}")
        try:
            return catalog.load_table((path.database, path.table))
        except NoSuchTableError:
            return None
        finally:
            catalog.engine.dispose()

    def rows(self, table: AnyTable) -> list[Row]:
        """Return a table's live rows by DuckDB, sorted."""
        return self.select(table.path, ", ".join(table.columns))

    def select(self, path: TablePath, columns: str) -> list[Row]:
        """Return columns of a table's live rows by DuckDB, sorted; none where there is no such table."""
        table = self.table(path)
        if table is None or table.current_snapshot() is None:
            return []
        query = f"SELECT {columns} FROM iceberg_scan('{table.metadata_location}')"  # noqa: S608 - a test's own text
        with duckdb.connect() as connection:
            for name in ("avro", "iceberg"):
                connection.execute(f"LOAD '{_extension(name)}'")
            return sorted(connection.execute(query).fetchall(), key=str)

    def commits(self, path: TablePath) -> int:
        """Return how many retained snapshots carry offsets."""
        table = self.table(path)
        snapshots = [] if table is None else table.metadata.snapshots
        return sum("fluss-offsets" in _summary(snapshot) for snapshot in snapshots)

    def files(self, path: TablePath) -> set[str]:
        """Return all files in a table's directory."""
        table = self.table(path)
        default = self.root / path.database / path.table
        folder = default if table is None else Path(table.location().removeprefix("file://"))
        return {str(file) for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".crc")}

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
        named |= {snapshot.manifest_list, _summary(snapshot).get(_OFFSETS_FILE, "")}
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return {name.removeprefix("file://") for name in named}


def _summary(snapshot: object) -> dict[str, str]:
    summary = getattr(snapshot, "summary", None)
    return {} if summary is None else dict(summary.additional_properties)


def _extension(name: str) -> Path:
    package = import_module(f"duckdb_extension_{name}")
    return Path(package.__path__[0]) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
