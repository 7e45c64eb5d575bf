"""The embedded source, with points before and after each step, and batches small enough to stop between two."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lakeward.model.tables import OFFSET_COLUMN
from lakeward.ports import SourceBatch
from lakeward_faulty.points import note, note_executor, reached
from lakeward_source_embedded.plugin import EmbeddedOptions, EmbeddedSourcePlugin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import Clock, Source, SourceReader

BATCH_ROWS = "LAKEWARD_TEST_BATCH_ROWS"


class FaultySource:
    """Hands everything to the embedded source."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._inner, name)

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        at = f"{table.path.table}"
        reached(f"before-prepare.{at}")
        prepared = self._inner.prepare(table, offsets)
        reached(f"after-prepare.{at}")
        return prepared

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        reached(f"before-source-commit.{table.path.table}")
        self._inner.commit(table, snapshot_id, prepared, offsets)
        reached(f"after-source-commit.{table.path.table}")


class FaultyReader:
    """Cuts the embedded source's batches."""

    def __init__(self, inner: SourceReader, table: TableSpec) -> None:
        self._inner = inner
        self._at = table.path.table
        self._rows = int(os.environ.get(BATCH_ROWS, "40"))

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        reached(f"before-read.{self._at}")
        note_executor(f"executors.{self._at}")
        return self._cut(self._inner.read_log(split))

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        reached(f"before-read-snapshot.{self._at}")
        return self._cut(self._inner.read_snapshot(split, skip_rows))

    def close(self) -> None:
        self._inner.close()

    def _cut(self, batches: Iterator[SourceBatch]) -> Iterator[SourceBatch]:
        for batch in batches:
            rows = batch.records.num_rows
            for start in range(0, max(rows, 1), self._rows):
                reached(f"each-read.{self._at}")
                part = batch.records.slice(start, self._rows)
                note(f"rows-read.{self._at}", str(part.num_rows))
                last = start + self._rows >= rows
                offset = batch.next_offset if last else part.column(OFFSET_COLUMN)[-1].as_py() + 1
                yield SourceBatch(part, batch.next_offset if offset <= 0 else offset)


class FaultySourcePlugin:
    """The source `embedded-faulty`."""

    options = EmbeddedOptions

    def open(self, options: EmbeddedOptions, clock: Clock) -> FaultySource:
        from lakeward_faulty.driver import watch_driver  # noqa: PLC0415 - workers need nothing of the driver

        watch_driver()
        return FaultySource(EmbeddedSourcePlugin().open(options, clock))

    def reader(self, task: bytes, table: TableSpec) -> FaultyReader:
        return FaultyReader(EmbeddedSourcePlugin().reader(task, table), table)
