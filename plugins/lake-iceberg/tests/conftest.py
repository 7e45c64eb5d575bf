"""A warehouse, and two readers that are not ours: DuckDB and pyiceberg."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

sys.path.insert(0, str(Path(__file__).with_name("kit")))

from lakeward_iceberg_kit.duck import extension
from lakeward_iceberg_kit.gateway import Gateway
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.sql import LineageSqlCatalog
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake


@pytest.fixture
def plugin() -> IcebergLakePlugin:
    """The plugin under test."""
    return IcebergLakePlugin()


@pytest.fixture
def options(tmp_path: Path) -> IcebergOptions:
    """A fresh warehouse."""
    return IcebergOptions(warehouse=str(tmp_path / "warehouse"))


@pytest.fixture
def lake(plugin: IcebergLakePlugin, options: IcebergOptions) -> Iterator[Lake]:
    """An open lake."""
    lake = plugin.open(options, FakeClock())
    yield lake
    lake.close()


@pytest.fixture
def with_target(options: IcebergOptions) -> Callable[[int], IcebergOptions]:
    """The same warehouse, with another target file size."""

    def resized(target_bytes: int) -> IcebergOptions:
        return msgspec.structs.replace(options, target_file_size_bytes=target_bytes)

    return resized


@pytest.fixture
def catalog(options: IcebergOptions) -> Iterator[SqlCatalog]:
    """Somebody else's catalog on the same warehouse; it writes tables of format version 3, too."""
    Path(options.warehouse).mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{options.warehouse}/catalog.db"
    catalog = LineageSqlCatalog("lakeward", uri=uri, warehouse=f"file://{options.warehouse}")
    yield catalog
    catalog.engine.dispose()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A REST catalog behind a gateway."""
    gateway = Gateway(tmp_path / "behind")
    yield gateway
    gateway.close()


@pytest.fixture(scope="session")
def reader() -> Iterator[Any]:
    """DuckDB with its Iceberg extension."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            connection.execute(f"LOAD '{extension(name, duckdb.__version__)}'")
        yield connection


@pytest.fixture
def query(catalog: SqlCatalog, reader: Any) -> Callable[[TablePath, str], pa.Table]:  # noqa: ANN401 - DuckDB is not typed
    """Ask DuckDB: `query(path, "id > 5")`."""

    def ask(path: TablePath, where: str = "true") -> pa.Table:
        location = catalog.load_table((path.database, path.table)).metadata_location
        return reader.execute(f"SELECT * FROM iceberg_scan('{location}') WHERE {where}").to_arrow_table()  # noqa: S608 - a test's own text

    return ask


@pytest.fixture
def read_table(query: Callable[..., pa.Table]) -> Callable[[TablePath], pa.Table]:
    """All live rows, by DuckDB."""
    return query


@pytest.fixture
def roll_back(catalog: SqlCatalog) -> Callable[[TablePath, int], None]:
    """Moves main to another snapshot, as a person would."""

    def move(path: TablePath, snapshot_id: int) -> None:
        table = catalog.load_table((path.database, path.table))
        update = SetSnapshotRefUpdate.model_validate(
            {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
        )
        catalog.commit_table(table, (), (update,))

    return move
