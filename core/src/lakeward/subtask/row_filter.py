"""Keeps rows from a split's writer that do not fit the lake table, and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from lakeward.model.bad_rows import check_most
from lakeward.model.batches import SourceBatch
from lakeward.subtask.task_log import task_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.errors import RowError
    from lakeward.model.bad_rows import BadRows
    from lakeward.model.tables import TablePath
    from lakeward.ports import RowCheck

_LOGGED = 3
"""Rows of a split of which the log says why they do not fit."""


class RowFilter:
    """The bad rows of one split. Without a check each row goes to the writer, and a bad one is an error."""

    def __init__(self, path: TablePath, bad: BadRows, check: RowCheck | None = None, most: float = 1.0) -> None:
        """Start with those of earlier tries.

        More than `most` rows of one split are too many of any round; of a share, below 1, only the whole round knows.
        """
        self._path = path
        self._check = check
        self._most = most
        self._logged = 0
        self.bad = bad
        """So far, those of earlier tries included."""

    def fitting(self, batch: SourceBatch, rows: int) -> SourceBatch:
        """Return the batch without the rows that do not fit; `rows` of the split were read before it.

        Raises:
            RowError: too many rows do not fit.
        """
        misfits = {} if self._check is None else self._check(batch.records)
        if not misfits:
            return batch
        errors = tuple(misfits.values())
        self.bad = structs.replace(
            self.bad, dropped=self.bad.dropped + len(errors), first=self.bad.first or str(errors[0])
        )
        self._log(errors)
        if self._most >= 1:
            check_most(self._path, self.bad, rows + batch.records.num_rows, self._most)
        fit = np.ones(batch.records.num_rows, dtype=np.bool_)
        fit[list(misfits)] = False
        return SourceBatch(batch.records.filter(pa.array(fit)), batch.next_offset, batch.decode_s, batch.empty_offsets)

    def _log(self, errors: Sequence[RowError]) -> None:
        for error in errors[: _LOGGED - self._logged]:
            self._logged += 1
            task_log("lakeward.subtask").warning("a row does not fit the lake table", reason=str(error))
