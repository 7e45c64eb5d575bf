"""Lakes of both kinds, as a service opens them and as somebody else changes their tables."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.altering import added, alter, dropped, renamed
from lakeward_paimon_kit.made import create_as_fluss
from lakeward_testing.lake_tables import log_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.hooks.plugins import PartitioningLakePlugin
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock

Column = Literal["BIGINT", "STRING"]


class IcebergTables:
    """Iceberg tables in a warehouse on this disk, whose catalog is a SQLite file.

    `row` is the id of a row of a keyed table that lies in a file without deletes.
    """

    name = "iceberg"
    row = 7
    finds_doubled_keys = True

    def __init__(self, folder: Path) -> None:
        """Keep where they are: in the folder `warehouse` of this one."""
        self.warehouse = folder / "warehouse"

    @property
    def plugin(self) -> PartitioningLakePlugin:
        """The plugin."""
        return IcebergLakePlugin()

    def open(self, clock: Clock, **options: Any) -> Any:  # noqa: ANN401 - a lake that can be read
        """Open the lake."""
        return self.plugin.open(IcebergOptions(warehouse=str(self.warehouse), **options), clock)

    def make_clean(self, path: TablePath) -> None:
        """Make a lake table of `id` and `name` without system columns, as Fluss does since 1.0."""
        self.warehouse.mkdir(exist_ok=True)
        with self._catalog() as catalog:
            catalog.create_namespace(path.database)
            names = NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())
            catalog.create_table(str(path), Schema(*names))

    def files_of(self, path: TablePath, row: int) -> list[Path]:
        """Return the data files with the row of an id that no deletes are about."""
        with self._catalog() as catalog:
            tasks = list(catalog.load_table((path.database, path.table)).scan().plan_files())
        files = [Path(task.file.file_path.removeprefix("file://")) for task in tasks if not task.delete_files]
        return [file for file in files if row in pq.read_table(file, partitioning=None).column("id").to_pylist()]

    def folder_of_data(self, path: TablePath) -> Path:
        """Return the folder of a table's data files."""
        return self.warehouse / path.database / path.table / "data"

    def move(self, path: TablePath, name: str) -> None:
        """Give a table another name in its database."""
        with self._catalog() as catalog:
            catalog.rename_table((path.database, path.table), (path.database, name))

    def drop(self, path: TablePath, column: str) -> None:
        """Drop a column."""
        with self._schema(path) as update:
            update.delete_column(column)

    def rename(self, path: TablePath, column: str, name: str) -> None:
        """Rename a column."""
        with self._schema(path) as update:
            update.rename_column(column, name)

    def add(self, path: TablePath, column: str, kind: Column = "STRING") -> None:
        """Add a column."""
        with self._schema(path) as update:
            update.add_column(column, LongType() if kind == "BIGINT" else StringType())

    @contextmanager
    def put_back(self, path: TablePath) -> Iterator[None]:
        """Give a table its metadata back afterwards."""
        with self._catalog() as catalog:
            name = (path.database, path.table)
            before = catalog.load_table(name).metadata_location
            yield
            catalog.drop_table(name)
            catalog.register_table(name, before)

    @contextmanager
    def _schema(self, path: TablePath) -> Iterator[Any]:
        with (
            self._catalog() as catalog,
            catalog.load_table((path.database, path.table)).update_schema(allow_incompatible_changes=True) as update,
        ):
            yield update

    @contextmanager
    def _catalog(self) -> Iterator[SqlCatalog]:
        uri = f"sqlite:///{self.warehouse}/catalog.db"
        catalog = SqlCatalog("lakeward", uri=uri, warehouse=f"file://{self.warehouse}")
        yield catalog
        catalog.engine.dispose()


class PaimonTables:
    """Paimon tables in a warehouse on this disk. In a keyed table a row that was changed lies in several files."""

    name = "paimon"
    row = 107
    finds_doubled_keys = False
    """Readers take one row of each key, whatever is in the files."""

    def __init__(self, folder: Path) -> None:
        """Keep where they are: in the folder `warehouse` of this one."""
        self.warehouse = folder / "warehouse"
        self._options = PaimonOptions(warehouse=str(self.warehouse))

    @property
    def plugin(self) -> PartitioningLakePlugin:
        """The plugin."""
        return PaimonLakePlugin()

    def open(self, clock: Clock, **options: Any) -> Any:  # noqa: ANN401 - a lake that can be read
        """Open the lake."""
        return self.plugin.open(PaimonOptions(warehouse=str(self.warehouse), **options), clock)

    def make_clean(self, path: TablePath) -> None:
        """See `IcebergTables`."""
        create_as_fluss(
            self._options, replace(log_table(), path=path), {"id": "BIGINT", "name": "STRING"}, system=False
        )

    def files_of(self, path: TablePath, row: int) -> list[Path]:
        """Return the data files with the row of an id."""
        files = self._folder(path).rglob("data-*.parquet")
        return [file for file in files if row in pq.read_table(file, partitioning=None).column("id").to_pylist()]

    def folder_of_data(self, path: TablePath) -> Path:
        """See `IcebergTables`."""
        return self._folder(path) / "bucket-0"

    def move(self, path: TablePath, name: str) -> None:
        """See `IcebergTables`."""
        self._folder(path).rename(self._folder(path).with_name(name))

    def drop(self, path: TablePath, column: str) -> None:
        """See `IcebergTables`."""
        alter(self._folder(path), dropped(column))

    def rename(self, path: TablePath, column: str, name: str) -> None:
        """See `IcebergTables`."""
        alter(self._folder(path), renamed(column, name))

    def add(self, path: TablePath, column: str, kind: Column = "STRING") -> None:
        """See `IcebergTables`."""
        alter(self._folder(path), added(column, kind))

    @contextmanager
    def put_back(self, path: TablePath) -> Iterator[None]:
        """Give a table its schema back afterwards."""
        folder = self._folder(path) / "schema"
        before = set(folder.iterdir())
        yield
        for file in set(folder.iterdir()) - before:
            file.unlink()

    def _folder(self, path: TablePath) -> Path:
        return self.warehouse / f"{path.database}.db" / path.table


LAKES = IcebergTables, PaimonTables
AnyTables = IcebergTables | PaimonTables


def lake_id(kind: type[AnyTables]) -> str:
    """Return how tests name a lake."""
    return kind.name
