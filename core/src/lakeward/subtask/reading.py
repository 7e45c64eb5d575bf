"""Reads one split on a thread of its own and posts its batches to the mailbox, a few ahead and no more."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.model.splits import LogSplit, Split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.ports import Clock, SourceBatch, SourceReader
    from lakeward.subtask.mailbox import Mailbox

AHEAD = 4
"""Batches read ahead of the writer: enough to hide a read, few enough to bound memory."""


@dataclass(frozen=True, slots=True)
class Read:
    """Posted to the mailbox: the next batch of a split, None at its end, or what went wrong."""

    split_id: str
    batch: SourceBatch | None
    error: Exception | None
    read_s: float


class SplitReading:
    """One split being read."""

    def __init__(self, split: Split, reader: SourceReader, clock: Clock, mailbox: Mailbox, position: int) -> None:
        """Start reading.

        Args:
            split: what to read.
            reader: the source in this subtask.
            clock: the machine's clock.
            mailbox: where `Read` is posted.
            position: where to start, as in `SplitProgress`: an offset of a log, a number of rows of a snapshot.
        """
        self.split = split
        self._position = position
        self._reader = reader
        self._clock = clock
        self._mailbox = mailbox
        self._credits = threading.Semaphore(AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"read-{split.split_id}", daemon=True)
        self._thread.start()

    def taken(self) -> None:
        """Say that a batch was written, so that another one may be read."""
        self._credits.release()

    def stop(self) -> None:
        """Stop reading; batches already posted are left to their receiver to drop."""
        self._stop.set()
        self._credits.release()
        self._thread.join()

    def _run(self) -> None:
        spent = 0.0
        try:
            batches = self._open()
            while True:
                self._credits.acquire()
                if self._stop.is_set():
                    return
                started = self._clock.now()
                batch = next(batches, None)
                spent = self._clock.now() - started
                self._mailbox.put(Read(self.split.split_id, batch, None, spent))
                if batch is None:
                    return
        except Exception as error:  # noqa: BLE001 - handed over whole to the mailbox thread, which raises it
            self._mailbox.put(Read(self.split.split_id, None, error, spent))

    def _open(self) -> Iterator[SourceBatch]:
        if isinstance(self.split, LogSplit):
            return self._reader.read_log(replace(self.split, start=self._position))
        return self._reader.read_snapshot(self.split, self._position)
