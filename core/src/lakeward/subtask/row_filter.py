"""Keeps rows from a split's writer that do not fit the lake table: they are counted, and dropped or dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from lakeward.model.bad_rows import check_most
from lakeward.model.batches import SourceBatch
from lakeward.model.dead_letters import split_files
from lakeward.subtask.task_log import task_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.errors import RowError
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TablePath
    from lakeward.ports import RowCheck
    from lakeward.subtask.dead_letter_files import DeadLetterFiles

_LOGGED = 3
"""Rows of a split of which the log says why they do not fit."""


class RowFilter:
    """The bad rows of one split. Without a check each row goes to the writer, and a bad one is an error."""

    def __init__(
        self,
        path: TablePath,
        progress: SplitProgress,
        check: RowCheck | None = None,
        most: float = 1.0,
        letters: DeadLetterFiles | None = None,
        *,
        columns: list[str] | None = None,
    ) -> None:
        """Start with those of earlier tries; without `letters` bad rows are dropped. None but `columns` are passed on.

        More than `most` rows of one split are too many of any round; of a share, below 1, only the whole round knows.
        """
        self._path = path
        self._check = check
        self._most = most
        self._columns = columns
        self._logged = 0
        self._letters = letters
        _, self._letters_before = split_files(progress.files)
        self.bad = progress.bad_rows
        """So far, those of earlier tries included."""

    def fitting(self, batch: SourceBatch, rows: int) -> SourceBatch:
        """Return the batch without the rows that do not fit; `rows` of the split were read before it.

        Raises:
            RowError: too many rows do not fit.
        """
        misfits = {} if self._check is None else self._check(batch.records)
        if not misfits:
            return batch if self._columns is None else self._passed(batch, batch.records)
        errors = tuple(misfits.values())
        kind = "dropped" if self._letters is None else "dead_letters"
        counted = {kind: getattr(self.bad, kind) + len(errors)}
        self.bad = structs.replace(self.bad, first=self.bad.first or str(errors[0]), **counted)
        self._log(errors)
        if self._most >= 1:
            check_most(self._path, self.bad, rows + batch.records.num_rows, self._most)
        fit = np.ones(batch.records.num_rows, dtype=np.bool_)
        fit[list(misfits)] = False
        if self._letters is not None:
            self._letters.add(batch.records.take(pa.array(list(misfits))), errors)
        return self._passed(batch, batch.records.filter(pa.array(fit)))

    def mark(self) -> None:
        """Note that all rows so far are in closed files: the split can be read again from here."""
        if self._letters is not None:
            self._letters.mark()

    def roll(self) -> tuple[LakeFile, ...]:
        """Return the files of dead letters up to the mark, those of earlier tries first."""
        return (*self._letters_before, *(() if self._letters is None else self._letters.roll()))

    def close(self) -> tuple[LakeFile, ...]:
        """Return all files of dead letters, those of earlier tries first."""
        return (*self._letters_before, *(() if self._letters is None else self._letters.close()))

    def abort(self) -> None:
        """Delete files of dead letters that no checkpoint names."""
        if self._letters is not None:
            self._letters.abort()

    def _passed(self, batch: SourceBatch, records: pa.RecordBatch) -> SourceBatch:
        records = records if self._columns is None else records.select(self._columns)
        return SourceBatch(records, batch.next_offset, batch.decode_s, batch.empty_offsets)

    def _log(self, errors: Sequence[RowError]) -> None:
        for error in errors[: _LOGGED - self._logged]:
            self._logged += 1
            task_log("lakeward.subtask").warning("a row does not fit the lake table", reason=str(error))
