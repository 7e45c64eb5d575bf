"""How data files are searched for keys: in steps that grow with the keys, up to a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward_lake_iceberg import base
from lakeward_lake_iceberg.base import KeyScan
from lakeward_lake_iceberg.keys import KeyIndex
from lakeward_lake_iceberg.parquet_fields import FIELD_ID
from lakeward_lake_iceberg.storage import Storage
from lakeward_lake_iceberg.task import WriterTask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakeward_lake_iceberg.keys import Flags

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={FIELD_ID: "1"})])
ROWS = 8000


class SteppedIndex(KeyIndex):
    """Remembers how many rows it was asked for at once."""

    def __init__(self, keys: pa.Table) -> None:
        """Index them."""
        super().__init__(keys)
        self.steps: list[int] = []

    def contains(self, columns: Sequence[pa.Array]) -> Flags:
        """Do as an index does."""
        self.steps.append(len(columns[0]))
        return super().contains(columns)


@pytest.mark.parametrize(
    ("keys", "steps"), [(10, [1000] * 8), (1000, [1000] * 8), (2000, [2000] * 4), (ROWS, [4000] * 2)]
)
def test_the_more_keys_are_looked_for_the_larger_the_steps_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, steps: list[int]
) -> None:
    monkeypatch.setattr(base, "_LEAST_ROWS", 1000)
    monkeypatch.setattr(base, "_MOST_ROWS", 4000)
    path = str(tmp_path / "data.parquet")
    pq.write_table(pa.table([np.arange(ROWS)[::-1]], schema=SCHEMA), path)
    task = WriterTask(
        location=str(tmp_path),
        prefix="",
        schema=SCHEMA.serialize().to_pybytes(),
        types={1: "long"},
        spec_id=0,
        target_size_bytes=1,
        compression="zstd",
        compression_level=1,
        storage={},
        key_columns=("id",),
    )
    index = SteppedIndex(pa.table({"id": np.arange(keys)}))
    found = KeyScan(Storage(str(tmp_path), {}), task).positions(path, index)
    assert np.array_equal(found, np.arange(ROWS - keys, ROWS))
    assert index.steps == steps
