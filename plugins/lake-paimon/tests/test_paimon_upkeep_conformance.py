"""The Paimon lake keeps the contract of upkeep, on a disk and by a REST catalog; pypaimon reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.rest import TOKEN, RestCatalogServer
from lakeward_testing.lake_rewrite import LakeRewriteConformance
from lakeward_testing.lake_tables import key_table
from lakeward_testing.lake_upkeep import LakeUpkeepConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_paimon_kit.reader import PythonReader

pytestmark = pytest.mark.slow


class TestPaimonUpkeep(LakeUpkeepConformance, LakeRewriteConformance):
    """Key tables as Fluss makes them, with changelog files."""

    __test__ = True
    published = PaimonLakePlugin


class TestCleanPaimonUpkeep(LakeUpkeepConformance):
    """Key tables without system columns and changelog files."""

    __test__ = True

    @pytest.fixture
    def upkept(self) -> TableSpec:
        return key_table(system_columns=False, properties={"paimon.changelog-producer": "none"})


class TestPaimonUpkeepByRest(LakeUpkeepConformance, LakeRewriteConformance):
    """A commit goes through the catalog."""

    __test__ = True

    @pytest.fixture
    def options(self, tmp_path: Path) -> Iterator[PaimonOptions]:
        with RestCatalogServer.running(tmp_path / "warehouse") as catalog:
            yield PaimonOptions(metastore="rest", uri=catalog.uri, warehouse="lake", properties={"token": TOKEN})

    @pytest.fixture
    def read_table(self, python_reader: PythonReader, options: PaimonOptions) -> Callable[[TablePath], pa.Table]:
        told = {"metastore": "rest", "uri": options.uri, "token.provider": "bear", "token": TOKEN}
        return lambda path: python_reader.rows(options.warehouse, str(path), told)
