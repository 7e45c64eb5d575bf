"""A warehouse, and readers that are not ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).with_name("kit")))

from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.reader import PythonReader
from lakeward_paimon_kit.rollback import roll_back_to
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake


@pytest.fixture
def plugin() -> PaimonLakePlugin:
    """The plugin under test."""
    return PaimonLakePlugin()


@pytest.fixture
def options(tmp_path: Path) -> PaimonOptions:
    """A fresh warehouse."""
    return PaimonOptions(warehouse=str(tmp_path / "warehouse"))


@pytest.fixture
def lake(plugin: PaimonLakePlugin, options: PaimonOptions) -> Iterator[Lake]:
    """An open lake."""
    lake = plugin.open(options, FakeClock())
    yield lake
    lake.close()


@pytest.fixture
def with_target(options: PaimonOptions) -> Callable[[int], PaimonOptions]:
    """The same warehouse, with another target file size."""

    def resized(target_bytes: int) -> PaimonOptions:
        return msgspec.structs.replace(options, target_file_size_bytes=target_bytes)

    return resized


@pytest.fixture(scope="session")
def python_reader() -> Iterator[PythonReader]:
    """Paimon's own reader for Python, in an environment of its own."""
    with PythonReader.running() as reader:
        yield reader


@pytest.fixture
def read_table(python_reader: PythonReader, options: PaimonOptions) -> Callable[[TablePath], pa.Table]:
    """All live rows, by pypaimon."""

    def read(path: TablePath) -> pa.Table:
        return python_reader.rows(options.warehouse, str(path))

    return read


@pytest.fixture
def roll_back(options: PaimonOptions) -> Callable[[TablePath, int], None]:
    """Rolls a table back to a snapshot, as Paimon's `rollback_to` does."""

    def move(path: TablePath, snapshot_id: int) -> None:
        roll_back_to(f"{options.warehouse}/{path.database}.db/{path.table}", snapshot_id)

    return move
