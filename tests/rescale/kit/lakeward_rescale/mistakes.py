"""Mistakes made on purpose, to see that runs find them. Each changes this process alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lakeward.subtask.exchange.routing import Routing
from lakeward.subtask.fan_out.writer import ExchangeFanOut

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.model.exchange import KeptRows

    Ints = np.ndarray[Any, np.dtype[np.int64]]


def _keeps_rows_of_others() -> None:
    """Write every row that is read back, in every subtask."""

    def every(self: Routing, records: pa.RecordBatch, subtask: int, kept: KeptRows | None = None) -> Ints:
        del self, subtask, kept
        return np.arange(records.num_rows)

    setattr(Routing, "places", every)  # noqa: B010 - the mistake


def _forgets_open_rows() -> None:
    """Leave the newest rows of open files out of checkpoints."""
    take = ExchangeFanOut.take_unsaved

    def forgetful(self: ExchangeFanOut, partition: bytes) -> list[pa.RecordBatch]:
        return take(self, partition)[:-1]

    setattr(ExchangeFanOut, "take_unsaved", forgetful)  # noqa: B010 - the mistake


MISTAKES: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "keeps-rows-of-others": _keeps_rows_of_others,
    "forgets-open-rows": _forgets_open_rows,
}
