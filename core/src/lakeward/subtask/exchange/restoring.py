"""A subtask's share of a restored checkpoint: closed files to go on from, and rows to read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.subtask.exchange.items import RowsRestored
from lakeward.subtask.exchange.spilled_rows import channels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakeward.model.exchange import ExchangeFigures, ExchangeState, Segment
    from lakeward.model.results import LakeFile
    from lakeward.ports import CheckpointStore, Partitioner
    from lakeward.subtask.exchange.checkpoint_part import ExchangePart
    from lakeward.subtask.exchange.items import RestoredItem
    from lakeward.subtask.exchange.routing import Routing
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.ports import SubtaskPorts


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


class Restoration:
    """Writes the rows of the checkpoint that a launch goes on from; by itself, of one that has none.

    Called by the mailbox thread. What a checkpoint that is taken meanwhile holds, `lakeward.machines.recovery` says.
    """

    @property
    def ready(self) -> bool:
        """Whether splits may be read and checkpoints taken, once all channels are connected."""
        return self.done

    @property
    def done(self) -> bool:
        """Whether all rows are written: live rows may pass."""
        return True

    @property
    def can_take(self) -> bool:
        """Whether `write_next` has something to do."""
        return False

    def figures(self, figures: ExchangeFigures) -> ExchangeFigures:
        """Add what was spilled."""
        return figures

    def take(self, item: RestoredItem) -> None:
        """Handle an item of the mailbox.

        Raises:
            Exception: why rows cannot be restored.
        """

    def producers_connected(self) -> None:
        """Note that all channels are connected; repeatable."""

    def write_next(self) -> None:
        """Write the next rows, if there are any."""

    def refuse(self, checkpoint: int) -> None:
        """Note that a checkpoint came too early."""

    def end(self, checkpoint: int) -> None:
        """Note that a checkpoint is complete, or was aborted."""

    def keep(self, _part: ExchangePart) -> bool:
        """Add to a part, at its cut, what is not written; return False if its marker is missing."""
        return True

    def close(self, timeout_s: float) -> None:
        """Stop; calling it twice is harmless."""


class RowsReading(Restoration):
    """Reads the rows of a checkpoint on a worker, one batch at a time, and writes them before anything else."""

    def __init__(
        self,
        states: Sequence[ExchangeState],
        open_store: Callable[[], CheckpointStore],
        ports: SubtaskPorts,
        mailbox: Mailbox,
        write: Callable[[RowsRestored], None],
    ) -> None:
        """Read the first batch; `states` are those of all subtasks of the checkpoint.

        `open_store` is called on the worker; `RowsRestored` is posted in the mailbox. `write` gets those with rows.
        """
        self._done = False
        self._open_store = open_store
        self._mailbox = mailbox
        self._write = write
        self._worker = ports.executor.worker(name="restore-rows")
        self._rows = self._read(states)
        self._worker.submit(self._post_next)

    @property
    def done(self) -> bool:
        """See `Restoration`."""
        return self._done

    def take(self, item: RestoredItem) -> None:
        """Write rows that were read back."""
        if not isinstance(item, RowsRestored):
            return
        if item.error is not None:
            raise item.error
        if item.records is None:
            self._done = True
            return
        self._write(item)
        self._worker.submit(self._post_next)

    def close(self, timeout_s: float) -> None:
        """See `Restoration`."""
        self._worker.stop(timeout_s)

    def _post_next(self) -> None:
        try:
            item = next(self._rows, RowsRestored(None))
        except Exception as error:  # noqa: BLE001 - handed over whole to the mailbox thread, which raises it
            item = RowsRestored(None, error=error)
        self._mailbox.put(item)

    def _read(self, states: Sequence[ExchangeState]) -> Iterator[RowsRestored]:
        store: CheckpointStore | None = None
        for channel in channels_of(states):
            for segment in channel.segments:
                store = self._open_store() if store is None else store
                for _, records in rows_of(store, segment):
                    yield RowsRestored(records, channel.counted, segment.kept)
