"""A lake of Paimon as others see it: rows by the reader of `lakeward verify`, files by what all snapshots name."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.errors import LakeError
from lakeward_e2e.warehouse import Warehouse
from lakeward_lake_paimon.lake import PaimonLake
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_paimon_kit.checks import Checker
from lakeward_paimon_kit.engine import Engine

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.tables import TablePath
    from lakeward_e2e.tables import Row


class PaimonWarehouse(Warehouse):
    """A directory of Paimon tables."""

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        super().__init__(root)
        self._checker = Checker({}, {})

    def version(self, path: TablePath) -> str:
        """Return which file a table's newest snapshot is; empty where there is none.

        A table that is made anew has a snapshot of the same name.
        """
        files = (self._folder(path) / "snapshot").glob("snapshot-*")
        newest = max(files, key=lambda file: int(file.name.partition("-")[2]), default=None)
        with suppress(FileNotFoundError):  # the table has been set aside since
            return "" if newest is None else f"{newest.name} {newest.stat().st_ino}"
        return ""

    def commits(self, path: TablePath) -> int:
        """Return how many retained snapshots carry offsets."""
        files = (self._folder(path) / "snapshot").glob("snapshot-*")
        return sum(b'"lakeward.round"' in file.read_bytes() for file in files)

    def rewrite(self, path: TablePath) -> None:
        """Let somebody else merge the files of a bucket."""
        while not Engine(random.Random(1), self._folder(path), None).compact():  # noqa: S311 - test data
            pass

    def files(self, path: TablePath) -> set[str]:
        """Return all files in a table's directory."""
        return {str(file) for file in self._folder(path).rglob("*") if file.is_file()}

    def orphans(self, path: TablePath) -> set[str]:
        """Return files in a table's directory that no snapshot names."""
        while True:
            try:
                return {str(self._folder(path) / name) for name in self._checker.orphans(self._folder(path))}
            except FileNotFoundError:  # expired while it was looked at
                continue

    def _select(self, path: TablePath, columns: str) -> list[Row]:
        names = columns.split(", ")
        lake = PaimonLake(PaimonOptions(warehouse=str(self.root)), SystemClock())
        while True:
            head = lake.head(path) if self.version(path) else None
            if head is None or head.snapshot_id is None:
                return []
            try:
                batches = list(lake.read_rows(path, head.snapshot_id))
                return sorted(
                    (tuple(row[name] for name in names) for one in batches for row in one.to_pylist()), key=str
                )
            except LakeError:
                if self.version(path).startswith(f"snapshot-{head.snapshot_id} "):
                    raise  # not one that has expired while it was read

    def _folder(self, path: TablePath) -> Path:
        return self.root / f"{path.database}.db" / path.table
