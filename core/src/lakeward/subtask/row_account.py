"""Counts rows in and out: each offset of a split is a record or explained, each record is a row or left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward.errors import LogGapError, RowCountError, SourceError
from lakeward.model.dead_letters import KIND
from lakeward.model.splits import LogSplit
from lakeward.model.tables import OFFSET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.bad_rows import BadRows
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch

DATA = "data"


class RowAccount:
    """What one try of a split has read and written."""

    def __init__(self, table: TableSpec, progress: SplitProgress) -> None:
        """Start where the split's progress before this try ends; messages name the table."""
        self._split = progress.split
        self._where = f"table {table.path}, bucket {progress.split.bucket}"
        self._before = frozenset(file.path for file in progress.files)
        self._reached = progress.position
        self._first_row = 0 if isinstance(progress.split, LogSplit) else progress.position
        self._rows = 0
        self._left_out = progress.left_out
        self._bad_before = progress.bad_rows.total
        self._empty = progress.empty_offsets if isinstance(progress.split, LogSplit) else None

    def take(self, batch: SourceBatch) -> None:
        """Count a batch that was read, before it is written.

        Raises:
            LogGapError: offsets are missing between the batch before and this one, or within it.
            RowCountError: offsets go back, or there are fewer records than the source says.
        """
        if isinstance(self._split, LogSplit):
            self._check_offsets(batch)
            self._reached = batch.next_offset
            self._empty = _sum(self._empty, batch.empty_offsets)
        self._rows += batch.records.num_rows

    @property
    def position(self) -> int:
        """Up to where the split is read, as in `SplitProgress`."""
        return self._reached if isinstance(self._split, LogSplit) else self._first_row + self._rows

    @property
    def empty_offsets(self) -> int | None:
        """Offsets of a log split so far that have no record, including earlier tries; None if not counted."""
        return self._empty

    def left_out(self, here: int) -> int | None:
        """Return the records so far that needed no row, including earlier tries; None if not counted.

        `here` are the records of this try.
        """
        return _sum(self._left_out, here)

    def check_end(self) -> None:
        """Check, where the source has no more batches, that the split is read to its stop.

        Raises:
            SourceError: it was not.
        """
        if isinstance(self._split, LogSplit) and self._reached != self._split.stop:
            message = (
                f"{self._where}: expected log records up to offset {self._split.stop}, "
                f"found none from offset {self._reached} on"
            )
            raise SourceError(message)

    def check_written(self, files: Collection[LakeFile], left_out: int, bad: BadRows) -> None:
        """Check, once everything is in closed files, that each record is in one, was left out or does not fit.

        `files` and `bad` are all of the split; `left_out` are records of this try that needed no row, as the writer
        counts them.

        Raises:
            RowCountError: names both counts.
        """
        written = sum(file.rows for file in files if file.kind == DATA and file.path not in self._before)
        unfit, letters = bad.total - self._bad_before, sum(file.rows for file in files if file.kind == KIND)
        if letters != bad.dead_letters:
            message = (
                f"{self._where}, split {self._split.split_id}: {bad.dead_letters} rows became dead letters, "
                f"{letters} are in files"
            )
            raise RowCountError(message)
        if written + left_out + unfit != self._rows:
            message = (
                f"{self._where}, split {self._split.split_id}: {self._rows} records were read, "
                f"{written} rows were written, {left_out} records needed none and {unfit} do not fit"
            )
            raise RowCountError(message)

    def _check_offsets(self, batch: SourceBatch) -> None:
        reached, end, rows = self._reached, batch.next_offset, batch.records.num_rows
        offsets = batch.records.column(OFFSET_COLUMN).to_numpy()
        if end < reached or (
            rows and (offsets[0] < reached or offsets[-1] >= end or (offsets[1:] <= offsets[:-1]).any())
        ):
            found = f"{offsets[0]} to {offsets[-1]} and then {end}" if rows else str(end)
            message = f"{self._where}: expected ascending offsets from {reached} on, found {found}"
            raise RowCountError(message)
        if batch.empty_offsets is None or rows + batch.empty_offsets == end - reached:
            return
        if not batch.empty_offsets:
            gaps = np.flatnonzero(offsets != np.arange(reached, reached + rows))
            if len(gaps):
                raise LogGapError(self._where, reached + int(gaps[0]), int(offsets[gaps[0]]))
        message = (
            f"{self._where}: expected {end - reached - batch.empty_offsets} records from offset {reached} to {end} "
            f"({batch.empty_offsets} offsets hold none), found {rows}"
        )
        raise RowCountError(message)


def _sum(before: int | None, more: int | None) -> int | None:
    return None if before is None or more is None else before + more
