"""Rounds of a key table, and the rows that they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.tables import Change
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    check_landed,
    head_of,
    incarnation,
    key_table,
    log_split,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from lakeward.model.tables import TableSpec
    from lakeward_lake_iceberg.lake import IcebergLake

    ReadTable = Callable[..., pa.Table]


class Keys:
    """Rounds of a key table, and the rows that it has to have."""

    def __init__(self, lake: IcebergLake, spec: TableSpec | None = None) -> None:
        """Begin without rows."""
        self._lake = lake
        self.spec = spec or key_table(buckets=1)
        self.rows: dict[int, str] = {}
        self._number = 0

    def begin(self, keys: Mapping[int, str | None], bucket: int = 0) -> TieringRound:
        """Write a round that sets these keys, and deletes those with None."""
        self._number += 1
        tiering = TieringRound(IcebergLakePlugin(), self._lake, self.spec, incarnation(), self._number)
        changes = [Change.DELETE if name is None else Change.UPDATE_AFTER for name in keys.values()]
        rows = [{"id": key, "name": name} for key, name in keys.items()]
        tiering.write(
            log_split(self.spec, bucket),
            [source_batch(self.spec.schema, rows, changes=changes, start=100 * self._number)],
        )
        for key, name in keys.items():
            self.rows.pop(key, None)
            self.rows |= {} if name is None else {key: name}
        return tiering

    def tier(self, keys: Mapping[int, str | None], bucket: int = 0) -> None:
        """Commit such a round."""
        check_landed(self._lake.commit(self.begin(keys, bucket).request()))

    def check(self, read_table: ReadTable) -> None:
        """Assert that DuckDB reads these rows, and that all files are what they say."""
        found = read_table(PATH).sort_by("id")
        assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == self.rows
        assert found.num_rows == len(self.rows)
        head = head_of(self._lake).snapshot_id
        assert head is not None
        assert list(self._lake.check_files(PATH, head, None)) == []
