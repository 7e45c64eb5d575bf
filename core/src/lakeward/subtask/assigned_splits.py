"""The splits that a subtask was given: one is read and written, the others wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.model.events import RequestSplit, SplitFinished
from lakeward.model.splits import LogSplit
from lakeward.subtask.work import SplitWork
from lakeward.subtask.writers import row_filter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.batches import SourceBatch
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.events import Deploy
    from lakeward.model.tables import TableSpec
    from lakeward.subtask.checkpointing import Checkpointing
    from lakeward.subtask.exchange.exchange_work import ExchangeWork
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.no_exchange import NoExchange
    from lakeward.subtask.ports import SubtaskPorts
    from lakeward.subtask.reading import Read


class AssignedSplits:
    """The splits of one attempt, from its deployment on. Called by the mailbox thread."""

    def __init__(  # noqa: PLR0917 - what is worked on, then the ports to do it with
        self,
        deploy: Deploy,
        table: TableSpec,
        exchange: ExchangeWork | NoExchange,
        checkpointing: Checkpointing,
        ports: SubtaskPorts,
        mailbox: Mailbox,
    ) -> None:
        """Open the source's reader; `Read` is posted in the mailbox."""
        self._deploy = deploy
        self._table = table.as_written
        self._names = table.lake_columns
        self._exchange = exchange
        self._checkpointing = checkpointing
        self._ports = ports
        self._mailbox = mailbox
        self._reader = ports.source(deploy.source).reader(deploy.source_task, table.as_read)
        self._closed = False
        self._waiting: list[SplitProgress] = []
        self.work: SplitWork | None = None
        """The split that is read, None if none is."""

    def request(self) -> None:
        """Ask the coordinator for a split."""
        self._checkpointing.send(RequestSplit())

    def add(self, splits: Iterable[SplitProgress]) -> None:
        """Take splits that the coordinator gives."""
        self._waiting.extend(splits)
        self._start_next()

    def take(self, item: Read) -> None:
        """Write what was read of the present split; drop what was read of one that has ended.

        Raises:
            LakewardError: it cannot be read or written.
        """
        work = self.work
        if work is None or work.split.split_id != item.split_id:
            return
        if item.error is not None:
            raise work.unreadable(item.error)
        if item.batch is None:
            self._finish(work, ended=True)
        else:
            work.write(self._named(item.batch), item.read_s)

    def check_read(self) -> None:
        """Raise if the source has not answered for too long.

        Raises:
            ReadTimeoutError: names the split.
        """
        if self.work is not None:
            self.work.check_read(self._deploy.read_timeout_s)

    def finish_early(self) -> None:
        """Begin no split any more, and end a log split where it is."""
        self._waiting.clear()
        if self.work is not None and isinstance(self.work.split, LogSplit):
            self._finish(self.work, ended=False)

    def roll(self) -> tuple[SplitProgress, ...]:
        """Close files that are large enough; return the progress of all splits of this subtask."""
        begun = (self.work.roll(),) if self.work is not None else ()
        return (*begun, *self._waiting)

    def abort(self) -> None:
        """Stop reading, and delete what was written and no checkpoint refers to."""
        work, self.work = self.work, None
        if work is not None:
            work.abort()

    def close(self) -> None:
        """Close the source's reader; calling it twice is harmless."""
        if not self._closed:
            self._closed = True
            self._reader.close()

    def _start_next(self) -> None:
        if self.work is not None or not self._waiting:
            return
        ports = self._ports
        progress, writer = self._exchange.begin_split(self._deploy, self._table, self._waiting.pop(0))
        rows = row_filter(ports.lake(self._deploy.lake), self._deploy, self._table, progress)
        self.work = SplitWork(
            self._table, progress, self._reader, writer, ports.clock, ports.executor, self._mailbox, rows
        )

    def _named(self, batch: SourceBatch) -> SourceBatch:
        """Return a batch whose columns are called as in the lake table."""
        if not self._names:
            return batch
        names = [self._names.get(name, name) for name in batch.records.schema.names]
        return replace(batch, records=batch.records.rename_columns(names))

    def _finish(self, work: SplitWork, *, ended: bool) -> None:
        result = work.close(ended=ended)
        self.work = None
        finish = SplitFinished(result=result, read_bytes=work.size_bytes)
        self._checkpointing.finish(finish, work.ended(result))
        if self._waiting:
            self._start_next()
        else:
            self.request()
