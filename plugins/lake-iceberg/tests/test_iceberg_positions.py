"""Position deletes: as many of one data file as it has rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from lakeward_lake_iceberg import positions
from lakeward_lake_iceberg.positions import SCHEMA, DeletePlace, read_positions, union, write_positions
from lakeward_lake_iceberg.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.results import LakeFile

LONGEST_PATH = 4000
"""Characters: with 600,000 positions 2.4 GB of paths."""


def _write(place: Path, target: str, count: int) -> tuple[Storage, LakeFile]:
    storage = Storage(str(place), {})
    path = str(place / f"{count}-deletes.parquet")
    return storage, write_positions(
        storage, target, path, np.arange(count, dtype=np.int64), compression="zstd", place=DeletePlace(0, (0,))
    )


def test_positions_whose_paths_are_more_than_two_gigabytes_are_written_and_read(tmp_path: Path) -> None:
    target = "file:///" + "x" * LONGEST_PATH
    storage, file = _write(tmp_path, target, 600_000)
    assert file.rows == 600_000
    found = read_positions(storage, [file.path], target)
    assert np.array_equal(found, np.arange(600_000))


def test_all_row_groups_of_a_file_are_one_delete_file_of_the_same_schema(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: Any,  # noqa: ANN401 - DuckDB is not typed
) -> None:
    monkeypatch.setattr(positions, "GROUP_BYTES", 1000)
    storage, file = _write(tmp_path, "file:///a.parquet", 100)
    written = pq.ParquetFile(file.path)
    assert written.schema_arrow.remove_metadata() == SCHEMA.remove_metadata()
    assert written.num_row_groups == 2
    found = reader.execute(f"SELECT count(*), min(pos), max(pos), max(file_path) FROM '{file.path}'").fetchone()  # noqa: S608 - a test's own text
    assert found == (100, 0, 99, "file:///a.parquet")
    assert not len(read_positions(storage, [file.path], "file:///b.parquet"))


def test_positions_of_several_parts_are_each_there_once_and_ascend() -> None:
    parts = [np.array(one, dtype=np.int64) for one in ([3, 5, 9], [], [1, 5], [9, 2])]
    assert union(parts).tolist() == [1, 2, 3, 5, 9]
    assert union([]).tolist() == []
