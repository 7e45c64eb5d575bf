"""A subtask's share of a restored checkpoint: closed files to go on from, and rows to read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.model.exchange import Side
from lakeward.subtask.exchange.items import RowsRestored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakeward.model.exchange import ExchangeState, Segment
    from lakeward.model.results import LakeFile
    from lakeward.ports import CheckpointStore, Executor, Partitioner
    from lakeward.subtask.exchange.routing import Routing
    from lakeward.subtask.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class Share:
    """What a subtask takes over without reading anything."""

    files: tuple[LakeFile, ...] = ()
    rows: int = 0
    left_out: int = 0


def share_of(
    states: Sequence[ExchangeState], subtask: int, subtasks: int, routing: Routing, partitioner: Partitioner
) -> Share:
    """Return a subtask's share of the closed files and of the counts.

    `states` are those of all subtasks of the checkpoint, of which there may have been more or fewer; `subtasks` is how
    many there are now. Files of a table with a primary key go to the owner of their partition, whose writer has to know
    their keys. Otherwise, as with the counts, it does not matter who has them, as long as one has.
    """
    files: list[LakeFile] = []
    rows = left_out = 0
    for state in states:
        mine = state.subtask % subtasks == subtask
        if mine:
            rows, left_out = rows + state.rows, left_out + state.left_out
        if routing.by_bucket:
            files += state.files if mine else ()
        else:
            files += (file for file in state.files if routing.owner(partitioner.partition_of(file)) == subtask)
    return Share(tuple(files), rows, left_out)


def segments_of(states: Sequence[ExchangeState]) -> Iterator[tuple[Segment, bool]]:
    """Yield all rows in the order in which they are written again, and whether a writer had counted them.

    Per subtask: what its writer had taken, then what its channels had brought, then what waited to be sent. A row of
    one key is only ever on one such way, in this order.
    """
    for state in sorted(states, key=lambda one: one.subtask):
        yield from ((segment, True) for rows in state.open_rows for segment in rows.segments)
    for side in (Side.IN, Side.OUT):
        for state in sorted(states, key=lambda one: one.subtask):
            yield from ((channel.segment, False) for channel in state.channels if channel.side is side)


def rows_of(store: CheckpointStore, segment: Segment) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a segment from the first row on that a checkpoint holds, each with its first row's number.

    Its key groups are not looked at. All of the segment is read, so that damage is found wherever it is.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: the store refused.
    """
    skip = 0 if segment.kept is None else segment.kept.first_row
    end = 0
    for records in store.read_segment(segment):
        start, end = end, end + records.num_rows
        if start < skip:
            records, start = records.slice(skip - start), skip  # noqa: PLW2901 - the rest of it
        if records.num_rows:
            yield start, records


class RowsReading:
    """Reads the rows of a checkpoint on a worker, one batch at a time, and posts them."""

    def __init__(
        self,
        states: Sequence[ExchangeState],
        open_store: Callable[[], CheckpointStore],
        executor: Executor,
        mailbox: Mailbox,
    ) -> None:
        """Read the first batch; `states` are those of all subtasks of the checkpoint.

        `open_store` is called on the worker; `RowsRestored` is posted in the mailbox.
        """
        self._open_store = open_store
        self._mailbox = mailbox
        self._worker = executor.worker(name="restore-rows")
        self._rows = self._read(states)
        self.next()

    def next(self) -> None:
        """Read the next batch."""
        self._worker.submit(self._post_next)

    def stop(self, timeout_s: float) -> None:
        """Stop reading."""
        self._worker.stop(timeout_s)

    def _post_next(self) -> None:
        try:
            item = next(self._rows, RowsRestored(None))
        except Exception as error:  # noqa: BLE001 - handed over whole to the mailbox thread, which raises it
            item = RowsRestored(None, error=error)
        self._mailbox.put(item)

    def _read(self, states: Sequence[ExchangeState]) -> Iterator[RowsRestored]:
        store: CheckpointStore | None = None
        for segment, counted in segments_of(states):
            store = self._open_store() if store is None else store
            for _, records in rows_of(store, segment):
                yield RowsRestored(records, counted, segment.kept)
