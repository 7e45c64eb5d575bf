"""The lines by which other programs read a table: each is run as it stands, and sees every row."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import TableGoneError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TablePath
from lakeward.ports import DescribedLake
from lakeward_iceberg_kit.duck import extension
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

IDS = [1, 2, 3]


@pytest.fixture
def lines(plugin: IcebergLakePlugin, options: IcebergOptions) -> Mapping[str, str]:
    """What is said of a table of three rows."""
    lake = plugin.open(options, FakeClock())
    tiering = TieringRound(plugin, lake, log_table(), incarnation(1000))
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": one} for one in IDS])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert isinstance(lake, DescribedLake)
    found = lake.reading_lines(PATH)
    lake.close()
    return found


def test_pyiceberg_reads_the_table_by_its_line(lines: Mapping[str, str]) -> None:
    known: dict[str, Any] = {}
    exec(lines["pyiceberg"], known)  # noqa: S102 - a line of ours, as a user would run it
    assert sorted(known["rows"]["id"].to_pylist()) == IDS


def test_duckdb_reads_the_table_by_its_line(lines: Mapping[str, str]) -> None:
    duckdb = import_module("duckdb")
    install, load, select, _ = lines["DuckDB"].split(";")
    assert (install, load) == ("INSTALL iceberg", " LOAD iceberg")
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):  # as its wheel has it: to install one takes a network
            connection.execute(f"LOAD '{extension(name, duckdb.__version__)}'")
        rows = connection.execute(select).to_arrow_table()
    assert sorted(rows["id"].to_pylist()) == IDS


def test_spark_and_trino_are_given_the_metadata_file_by_its_place_and_its_name(lines: Mapping[str, str]) -> None:
    metadata = lines["Spark"].removeprefix("spark.read.format('iceberg').load('").removesuffix("')")
    folder, _, file = metadata.rpartition("/metadata/")
    assert f"table_location => '{folder}', metadata_file_name => '{file}'" in lines["Trino"]


def test_a_table_that_is_not_there_is_an_error(plugin: IcebergLakePlugin, options: IcebergOptions) -> None:
    lake = plugin.open(options, FakeClock())
    assert isinstance(lake, DescribedLake)
    with pytest.raises(TableGoneError, match=r"shop\.none"):
        lake.reading_lines(TablePath("shop", "none"))
    lake.close()
