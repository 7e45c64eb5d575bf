"""The demo's Iceberg lake and two readers that are not ours: DuckDB, where it is installed, and pyiceberg."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import MissingPluginError
from lakeward_demo.feed import FLIGHTS
from lakeward_demo.lakes import ICEBERG, SharedLake
from lakeward_demo.shell_lines import python_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyiceberg.table import Table

    from lakeward.model.tables import TablePath
    from lakeward_demo.place import Place

_CATALOG = "lakeward"
_EXTENSIONS = ("avro", "iceberg")
_SQL = "SELECT carrier, count(*) AS flights, round(avg(arr_delay), 1) AS minutes_late"
_SQL_ORDER = "GROUP BY carrier ORDER BY flights DESC LIMIT 5"


class IcebergDemoLake:
    """See `lakeward_demo.lakes.DemoLake`."""

    title = "Iceberg; its catalog is catalog.db there"

    def __init__(self, place: Place) -> None:
        """Read in a demo's directory."""
        self._place = place

    def read_table(self, table: TablePath) -> tuple[pa.Table, str]:
        """See Protocol: read by DuckDB where it is there, else by pyiceberg."""
        if duckdb_ready(self._place):
            import duckdb  # noqa: PLC0415 - optional

            with duckdb.connect(config={"extension_directory": str(self._place.duckdb)}) as connection:
                file = str(self.metadata_file(table)).replace("'", "''")
                found = connection.execute(f"SELECT * FROM iceberg_scan('{file}')")  # noqa: S608 - the path of our own file, quoted
                return found.to_arrow_table(), "DuckDB"
        return self._load(table).scan().to_arrow(), "pyiceberg"

    def metadata_file(self, table: TablePath) -> Path:
        """See Protocol: the current metadata file."""
        location = Path(self._load(table).metadata_location.removeprefix("file://"))
        return self._place.root / location.relative_to(self._place.root.absolute())

    def query_lines(self) -> Mapping[str, str | None]:
        """See Protocol."""
        return {"duckdb": self._duckdb_line(), "pyiceberg": self._pyiceberg_line()}

    @contextmanager
    def shared(self) -> Iterator[SharedLake]:
        """See Protocol: by a REST catalog."""
        from lakeward_demo.rest_server import RestCatalogServer  # noqa: PLC0415 - the embedded store needs none

        with RestCatalogServer.running(self._place.warehouse.absolute()) as catalog:
            cluster = {
                "datalake.format": ICEBERG,
                "datalake.iceberg.type": "rest",
                "datalake.iceberg.uri": catalog.uri,
                "datalake.iceberg.warehouse": catalog.warehouse,
            }
            options = {"catalog": "rest", "uri": catalog.uri, "warehouse": catalog.warehouse}
            yield SharedLake(f"Iceberg catalog {catalog.uri}", cluster, options)

    def _duckdb_line(self) -> str | None:
        if not duckdb_ready(self._place):
            return None
        file = str(self.metadata_file(FLIGHTS)).replace("'", "''")
        query = f"{_SQL} FROM iceberg_scan('{file}') {_SQL_ORDER}"
        connection = f"duckdb.connect(config={{'extension_directory': {str(self._place.duckdb)!r}}})"
        return python_line(f"import duckdb; print({connection}.sql('''{query}'''))")

    def _pyiceberg_line(self) -> str:
        catalog = f"SqlCatalog({_CATALOG!r}, uri={_catalog_uri(self._place.warehouse)!r})"
        columns = "'flight_id', 'dest', 'status', 'arr_delay'"
        scan = f"load_table('{FLIGHTS}').scan('arr_delay > 600', selected_fields=({columns}))"
        return python_line(f"from pyiceberg.catalog.sql import SqlCatalog; print({catalog}.{scan}.to_pandas())")

    def _load(self, table: TablePath) -> Table:
        try:
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - comes with the lake's plugin
        except ImportError as error:
            key = "lake.type"
            raise MissingPluginError(key, "an installed lake", ICEBERG, "pip install lakeward-lake-iceberg") from error
        catalog = SqlCatalog(_CATALOG, uri=_catalog_uri(self._place.warehouse.absolute()))
        try:
            return catalog.load_table((table.database, table.table))
        finally:
            catalog.engine.dispose()


def _catalog_uri(warehouse: Path) -> str:
    """Return the URI of the lake's catalog: SQLite, relative if the path is."""
    return f"sqlite:///{warehouse / 'catalog.db'}"


def duckdb_ready(place: Place) -> bool:
    """Make DuckDB's extensions that came as wheels known below the demo's directory, so that it needs no network.

    Return False where DuckDB, or an extension for its version, is not installed.
    """
    if importlib.util.find_spec("duckdb") is None:
        return False
    import duckdb  # noqa: PLC0415 - optional

    version = f"v{duckdb.__version__}"
    files = [_extension(name, version) for name in _EXTENSIONS]
    with duckdb.connect() as connection:
        platform = str(connection.execute("PRAGMA platform").fetchall()[0][0])
    folder = place.duckdb / version / platform
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        if file is None:
            return False
        link = folder / file.name
        if not link.exists():
            link.symlink_to(file)
    return True


def _extension(name: str, version: str) -> Path | None:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        file = Path(folder) / "extensions" / version / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    return None
