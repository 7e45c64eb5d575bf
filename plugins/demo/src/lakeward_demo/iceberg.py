"""Two readers of the demo's lake that are not ours: DuckDB, where it is installed, and pyiceberg."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import MissingPluginError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from lakeward.model.tables import TablePath
    from lakeward_demo.place import Place

CATALOG = "lakeward"
_EXTENSIONS = ("avro", "iceberg")


def catalog_uri(warehouse: Path) -> str:
    """Return the URI of the lake's catalog: SQLite, relative if the path is."""
    return f"sqlite:///{warehouse / 'catalog.db'}"


def metadata_file(place: Place, table: TablePath) -> Path:
    """Return the current metadata file of a lake table.

    Raises:
        MissingPluginError: pyiceberg is not installed.
    """
    location = Path(_load(place, table).metadata_location.removeprefix("file://"))
    return place.root / location.relative_to(place.root.absolute())


def read_table(place: Place, table: TablePath) -> tuple[pa.Table, str]:
    """Read all live rows of a lake table, with the most independent reader that is there; return its name too.

    Raises:
        MissingPluginError: pyiceberg is not installed.
    """
    if duckdb_ready(place):
        import duckdb  # noqa: PLC0415 - optional

        with duckdb.connect(config={"extension_directory": str(place.duckdb)}) as connection:
            file = str(metadata_file(place, table)).replace("'", "''")
            return connection.execute(f"SELECT * FROM iceberg_scan('{file}')").to_arrow_table(), "DuckDB"  # noqa: S608 - the path of our own file, quoted
    return _load(place, table).scan().to_arrow(), "pyiceberg"


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


def _load(place: Place, table: TablePath) -> Table:
    try:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - comes with the lake's plugin
    except ImportError as error:
        key = "lake.type"
        raise MissingPluginError(key, "an installed lake", "iceberg", "pip install lakeward-lake-iceberg") from error
    catalog = SqlCatalog(CATALOG, uri=catalog_uri(place.warehouse.absolute()))
    try:
        return catalog.load_table((table.database, table.table))
    finally:
        catalog.engine.dispose()
