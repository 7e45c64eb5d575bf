"""Reads one split on its own worker and posts batches to the mailbox, at most a few ahead of the writer."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msgspec import structs

from lakeward.model.splits import LogSplit, Split
from lakeward.subtask.task_log import task_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.ports import Clock, Executor, SourceBatch, SourceReader
    from lakeward.subtask.mailbox import Mailbox

_LOGGER = "lakeward.subtask"
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
    """One split being read: a batch at a time, as long as fewer than `AHEAD` wait to be written."""

    stop_s: ClassVar[float] = 5.0
    """Seconds that `stop` waits for a running read: meanwhile the subtask sends no heartbeat."""

    def __init__(  # noqa: PLR0917 - what is read, then the parts to do it with
        self,
        split: Split,
        reader: SourceReader,
        clock: Clock,
        executor: Executor,
        mailbox: Mailbox,
        position: int,
    ) -> None:
        """Start reading at a position, as in `SplitProgress`: an offset of a log, a number of rows of a snapshot.

        The executor runs the reads; `Read` is posted in the mailbox.
        """
        self.split = split
        self._position = position
        self._reader = reader
        self._clock = clock
        self._mailbox = mailbox
        self._worker = executor.worker(name=f"read-{split.split_id}")
        self._batches: Iterator[SourceBatch] | None = None
        self._lock = threading.Lock()
        """Guards the fields below: both threads change them."""
        self._credits = AHEAD
        self._reading = False
        self._asked_at = 0.0
        """When the read that is in progress began."""
        self._stopped = False
        self._read_next()

    def taken(self) -> None:
        """Note that a batch was written, so that another one may be read."""
        with self._lock:
            self._credits += 1
        self._read_next()

    @property
    def waited_s(self) -> float:
        """For how many seconds the read in progress has given nothing; 0 if none is in progress."""
        with self._lock:
            return self._clock.now() - self._asked_at if self._reading else 0.0

    def stop(self) -> None:
        """Stop reading; the receiver must drop batches that were already posted.

        Nothing more is posted. A read that hangs is not waited for: its thread ends once the source answers, or with
        the process.
        """
        with self._lock:
            self._stopped = True
        if not self._worker.stop(self.stop_s):
            task_log(_LOGGER).warning("the source does not answer; its read is left behind", split=self.split.split_id)

    def _read_next(self) -> None:
        with self._lock:
            if self._reading or self._stopped or not self._credits:
                return
            self._credits -= 1
            self._reading, self._asked_at = True, self._clock.now()
        self._worker.submit(self._read)

    def _read(self) -> None:
        started = self._clock.now()
        try:
            if self._batches is None:
                self._batches = self._open()
            batch = next(self._batches, None)
        except Exception as error:  # noqa: BLE001 - handed over whole to the mailbox thread, which raises it
            if not self._post(None, error, self._clock.now() - started):
                task_log(_LOGGER).info(
                    "a read that was stopped has failed", split=self.split.split_id, reason=str(error)
                )
            return
        if self._post(batch, None, self._clock.now() - started):
            self._read_next()

    def _post(self, batch: SourceBatch | None, error: Exception | None, read_s: float) -> bool:
        """Post an item and return True, or return False if reading has stopped; the end and an error stop it."""
        with self._lock:
            self._reading = False
            if self._stopped:
                return False
            self._stopped = batch is None
            self._mailbox.put(Read(self.split.split_id, batch, error, read_s))
            return True

    def _open(self) -> Iterator[SourceBatch]:
        if isinstance(self.split, LogSplit):
            return self._reader.read_log(structs.replace(self.split, start=self._position))
        return self._reader.read_snapshot(self.split, self._position)
