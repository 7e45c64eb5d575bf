"""The lines by which other programs read a table: what can be run here is run as it stands."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import TableGoneError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TablePath
from lakeward_paimon_kit.reader import python_with_pypaimon
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin


def test_pypaimon_reads_the_table_by_its_line(plugin: PaimonLakePlugin, lake: PaimonLake) -> None:
    tiering = TieringRound(plugin, lake, log_table(), incarnation(1000))
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": one} for one in (1, 2, 3)])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    code = f"{lake.reading_lines(PATH)['pypaimon']}; print(sorted(rows['id'].to_pylist()))"
    told = subprocess.run([python_with_pypaimon(), "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert told.stdout.splitlines()[-1] == "[1, 2, 3]"


def test_the_lines_name_the_warehouse_and_the_folder_of_the_table(lake: PaimonLake, options: PaimonOptions) -> None:
    lake.open_table(log_table(), incarnation())
    lines = lake.reading_lines(PATH)
    assert f"'warehouse' = '{options.warehouse}'" in lines["Flink SQL"]
    assert lines["Spark"] == f"spark.read.format('paimon').load('{options.warehouse}/shop.db/orders')"
    assert lines["Trino"].endswith(f"connector.name=paimon; metastore=filesystem; warehouse={options.warehouse}")


def test_a_table_that_is_not_there_is_an_error(lake: PaimonLake) -> None:
    with pytest.raises(TableGoneError, match=r"shop\.none"):
        lake.reading_lines(TablePath("shop", "none"))
