"""The rows of files that are open at a checkpoint: each is stored once, and later checkpoints refer to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakeward.model.exchange import Segment
    from lakeward.subtask.fan_out.writer import ExchangeFanOut


@dataclass(slots=True)
class Piece:
    """Rows for a checkpoint: in memory until a segment holds them.

    The mailbox thread makes it; from then on the worker that stores checkpoints is the only one to change it.
    """

    records: Sequence[pa.RecordBatch]
    segment: Segment | None = None

    def stored(self, write: Callable[[Iterator[pa.RecordBatch]], Segment]) -> Segment:
        """Return the segment; `write` stores the rows first if no checkpoint has done so."""
        if self.segment is None:
            self.segment = write(iter(self.records))
            self.records = ()
        return self.segment


class OpenFiles:
    """What checkpoints know of each open file of a writer."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[bytes, int], list[Piece]] = {}
        """By partition and generation."""

    def take(self, writer: ExchangeFanOut) -> dict[bytes, tuple[Piece, ...]]:
        """Return, by partition, the rows of the files that are open now, and forget those that are closed.

        The writer hands over the rows that it has taken since the last time.
        """
        pieces: dict[tuple[bytes, int], list[Piece]] = {}
        for partition, opened in writer.open_rows().items():
            name = (partition, opened.generation)
            pieces[name] = self._pieces.get(name, [])
            fresh = writer.take_unsaved(partition)
            if fresh:
                pieces[name].append(Piece(fresh))
        self._pieces = pieces
        return {partition: tuple(found) for (partition, _), found in pieces.items()}
