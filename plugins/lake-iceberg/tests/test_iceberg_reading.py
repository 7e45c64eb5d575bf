"""Whoever only looks creates nothing: no directory, no database, no catalog's tables."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import StorageError
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, incarnation, log_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


def test_looking_at_a_warehouse_that_is_not_there_creates_nothing(
    plugin: IcebergLakePlugin, options: IcebergOptions, tmp_path: Path
) -> None:
    lake = plugin.open(options, FakeClock())
    assert lake.head(PATH) is None
    lake.close()
    assert list(tmp_path.iterdir()) == []


def test_looking_into_another_programs_database_creates_no_tables_in_it(
    plugin: IcebergLakePlugin, options: IcebergOptions, tmp_path: Path
) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (id INTEGER)")
    other.close()
    lake = plugin.open(msgspec.structs.replace(options, uri=f"sqlite:///{file}"), FakeClock())
    assert lake.head(PATH) is None
    lake.close()
    with sqlite3.connect(file) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


def test_the_first_table_makes_the_warehouse_and_the_catalog(
    plugin: IcebergLakePlugin, options: IcebergOptions
) -> None:
    looking, lake = plugin.open(options, FakeClock()), plugin.open(options, FakeClock())
    assert looking.head(PATH) is None
    lake.open_table(log_table(), incarnation())
    assert looking.head(PATH) is not None
    looking.close()
    lake.close()


def test_a_warehouse_that_cannot_be_made_is_said_when_the_lake_is_opened(
    plugin: IcebergLakePlugin, options: IcebergOptions, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created"):
        plugin.open(msgspec.structs.replace(options, warehouse=str(tmp_path / "file" / "warehouse")), FakeClock())
