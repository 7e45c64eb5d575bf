"""One attempt of a subtask: registers, pulls splits, reads, writes, reports.

One mailbox thread owns all state but the gateway, whose messages are handled as they arrive (`Checkpointing`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.errors import FencedError, LakewardError, ReadTimeoutError, TableError, code_of, in_words
from lakeward.model.events import (
    AnyEvent,
    AssignSplits,
    Cancel,
    Deploy,
    Failed,
    FinishEarly,
    NoMoreSplits,
    Progress,
    RequestSplit,
    SplitFinished,
)
from lakeward.model.splits import LogSplit
from lakeward.model.wire import unpack_table
from lakeward.subtask.checkpointing import (
    CheckpointEnded,
    Checkpointing,
    CheckpointMessage,
    MakeExchangePart,
    MakePart,
    PartWritten,
)
from lakeward.subtask.exchange.exchange_work import ExchangeWork
from lakeward.subtask.exchange.items import ExchangeItem
from lakeward.subtask.link import Link, LostCoordinator, Settled
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read
from lakeward.subtask.work import SplitWork
from lakeward.subtask.writers import split_writer

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.gateway import GatewayPhase
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceReader
    from lakeward.subtask.link import Delivered
    from lakeward.subtask.parts import SubtaskParts

_FINISH_TURN_S = 0.2
_CANCEL_S = 10.0
"""Seconds that a subtask with a permanent error waits for the coordinator to end the round."""
_CANCEL_TURN_S = 0.1


class _Phase(Enum):
    REGISTERING = "registering"
    WORKING = "working"
    FINISHING = "finishing"
    """`SubtaskDone` was sent; some earlier events are not acknowledged yet."""
    FAILED = "failed"
    """A permanent error was reported; the subtask waits for the coordinator to end the round."""
    ENDED = "ended"


class Subtask:
    """One attempt of a subtask, from its registration to its end."""

    def __init__(self, place: SubtaskPlace, parts: SubtaskParts, mailbox: Mailbox | None = None) -> None:
        """Prepare the attempt; `start` connects.

        Everything that happens to this subtask is in the mailbox, in order; None = a new one.
        """
        self._place = place
        self._parts = parts
        self._clock = parts.clock
        self._mailbox = Mailbox() if mailbox is None else mailbox
        self._exchange = ExchangeWork(place, parts, self._mailbox) if place.job.exchange else None
        address = "" if self._exchange is None else self._exchange.address
        self._link = Link(place, parts.transport, parts.clock, self.on_event, address)
        self._phase = _Phase.REGISTERING
        self._deploy: Deploy | None = None
        self._table: TableSpec | None = None
        self._checkpointing: Checkpointing | None = None
        self._reader: SourceReader | None = None
        self._waiting: list[SplitProgress] = []
        self._work: SplitWork | None = None
        self._requested = False
        """The first split was requested."""
        self._written = False
        """Its writer's last figures were reported."""
        self._last_heartbeat = self._last_progress = parts.clock.now()
        self._cancel_by = 0.0
        self.outcome = ""
        """`done`, `cancelled` or `failed` once it has ended; empty if it ended with an error."""
        self.error: Exception | None = None
        """Why it could not continue."""

    # --- its turns --------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Work until there is nothing more, or until told to stop; return the outcome, see `run_subtask`.

        Raises:
            LakewardError: it could not continue.
        """
        try:
            self.start()
            while not self.ended:
                self.turn(self._mailbox.get(self.turn_s))
        finally:
            self.close()
        if self.error is not None and not self.outcome:
            raise self.error
        return self.outcome

    def start(self) -> None:
        """Connect and register."""
        self._link.start()

    def turn(self, item: object | None) -> None:
        """Handle the next item of the mailbox, None where none came within `turn_s`; send a heartbeat if it is due."""
        try:
            self._take(item)
            if self._exchange is not None and self._phase is _Phase.WORKING:
                self._exchange_on(self._exchange, idle=item is None)
            self._send_heartbeat()
        except Exception as error:  # noqa: BLE001 - kept, and raised by `run`
            self._fail(error)

    def close(self) -> None:
        """Free everything; calling it twice is harmless."""
        reader, self._reader = self._reader, None
        try:
            if self._checkpointing is not None:
                self._checkpointing.close()
            if reader is not None:
                reader.close()
            if self._exchange is not None:
                self._exchange.close()
        finally:
            self._link.close()

    def on_event(self, event: Delivered) -> None:
        """Receive from the link, on its thread: handle checkpoint messages at once, post everything else."""
        if isinstance(event, Deploy) and self._checkpointing is None:
            self._deploy = event
            self._checkpointing = Checkpointing(self._place, event, self._link, self._parts, self._mailbox)
        if not isinstance(event, CheckpointMessage) or self._checkpointing is None:
            self._mailbox.put_message(event)
            return
        try:
            self._checkpointing.on_message(event)
        except LakewardError as error:
            self._mailbox.put_message(error)

    @property
    def ended(self) -> bool:
        """True once it has ended: there are no more turns."""
        return self._phase is _Phase.ENDED

    @property
    def turn_s(self) -> float:
        """Longest wait for the mailbox, in seconds: heartbeats go out in between."""
        if self._phase is _Phase.FAILED:
            return _CANCEL_TURN_S
        if self._phase is _Phase.FINISHING:
            return _FINISH_TURN_S
        due, longest = None if self._exchange is None else self._exchange.due, self._parts.heartbeat_s
        return longest if due is None else min(longest, max(0.0, due - self._clock.now()))

    @property
    def work(self) -> SplitWork | None:
        """The split that it reads, None if it reads none."""
        return self._work

    @property
    def is_restoring(self) -> bool:
        """Whether rows of a checkpoint are still read back or written."""
        return self._exchange is not None and self._exchange.is_restoring

    @property
    def gateway(self) -> GatewayPhase | None:
        """The state of its gateway, None before it is deployed."""
        return None if self._checkpointing is None else self._checkpointing.gateway

    # --- items of the mailbox -----------------------------------------------------------------------------------

    def _take(self, item: object) -> None:
        match item:
            case LostCoordinator():
                self._lost(item)
            case LakewardError() if self._phase is not _Phase.FAILED:
                raise item
            case Cancel():
                self._abort()
                self._end("cancelled" if self._phase is not _Phase.FAILED else "failed")
            case Settled():
                self._end("done")
            case Deploy():
                self._begin(item)
            case _ if isinstance(item, ExchangeItem) and self._phase in {_Phase.REGISTERING, _Phase.WORKING}:
                self._exchanged().take(item)
            case _ if self._phase is _Phase.WORKING:
                self._take_work(item)
            case _:
                pass

    def _take_work(self, item: object) -> None:
        match item:
            case Read():
                self._take_read(item)
            case AssignSplits():
                self._waiting.extend(item.splits)
                self._start_next()
            case NoMoreSplits() if self._exchange is not None:
                self._exchange.end_output()
            case NoMoreSplits():
                self._done()
            case FinishEarly():
                self._finish_early()
            case MakePart():
                self._deployed().make_part(item, self._roll)
            case MakeExchangePart():
                self._exchanged().trigger(item, progress=self._roll)
            case CheckpointEnded():
                self._exchanged().end_checkpoint(item.checkpoint)
            case PartWritten():
                self._deployed().part_written(item)
            case _:
                pass

    def _begin(self, deploy: Deploy) -> None:
        self._phase = _Phase.WORKING
        self._last_progress = self._clock.now()
        self._table = unpack_table(deploy.table)
        self._reader = self._parts.source(deploy.source).reader(deploy.source_task, self._table)
        self._deployed().start()
        if self._exchange is not None:
            self._exchange.begin(deploy, self._table, self._deployed())
        else:
            self._send(RequestSplit())

    def _exchange_on(self, exchange: ExchangeWork, *, idle: bool) -> None:
        """Do what follows from a change of the exchange: ask for splits, read on, or finish."""
        exchange.check_time()
        if exchange.is_ready and not self._requested:
            self._requested = True
            self._send(RequestSplit())
        if self._work is None or idle:
            exchange.flush()
        if self._work is not None and not exchange.is_full:
            self._work.read_on()
        if exchange.has_written and not self._written:
            # A round is often shorter than the time between two reports, and how uneven it was is seen at its end.
            self._written = True
            self._send_progress()
        # `SubtaskDone` passes a closed gateway, and from then on no message about checkpoints opens it any more.
        if exchange.is_done and not self._deployed().holds_events:
            self._done()

    def _done(self) -> None:
        if self._exchange is not None:
            self._send_progress()
        self._phase = _Phase.FINISHING
        self._deployed().send_done()

    def _exchanged(self) -> ExchangeWork:
        if self._exchange is None:
            message = "a subtask without an exchange got a message about one"
            raise LakewardError(message)
        return self._exchange

    def _take_read(self, item: Read) -> None:
        work = self._work
        if work is None or work.split.split_id != item.split_id:
            return
        if item.error is not None:
            raise work.unreadable(item.error)
        if item.batch is not None:
            work.write(item.batch, item.read_s, read_on=self._exchange is None)
            return
        self._finish(work)

    def _start_next(self) -> None:
        deploy, table, reader = self._deploy, self._table, self._reader
        if self._work is not None or not self._waiting or deploy is None or table is None or reader is None:
            return
        progress = self._waiting.pop(0)
        parts = self._parts
        if self._exchange is None:
            writer = split_writer(parts.lake(deploy.lake), deploy, table, progress, parts.clock)
        else:
            progress = structs.replace(progress, left_out=None)  # the writers count what they leave out
            writer = self._exchange.output(progress.split.bucket.bucket)
        self._work = SplitWork(table, progress, reader, writer, parts.clock, parts.executor, self._mailbox)

    def _finish(self, work: SplitWork, *, ended: bool = True) -> None:
        result = work.close(ended=ended)
        self._work = None
        finish = SplitFinished(result=result, read_bytes=work.size_bytes)
        self._deployed().finish(finish, work.ended(result))
        if self._waiting:
            self._start_next()
        else:
            self._send(RequestSplit())

    def _finish_early(self) -> None:
        self._waiting.clear()
        if self._work is not None and isinstance(self._work.split, LogSplit):
            self._finish(self._work, ended=False)

    def _roll(self) -> tuple[SplitProgress, ...]:
        """Close files that are large enough; return the progress of all splits of this subtask."""
        begun = (self._work.roll(),) if self._work is not None else ()
        return (*begun, *self._waiting)

    def _send(self, event: AnyEvent) -> None:
        self._deployed().send(event)

    def _deployed(self) -> Checkpointing:
        if self._checkpointing is None:
            message = "a subtask was to work before it was deployed"
            raise LakewardError(message)
        return self._checkpointing

    # --- heartbeats and ends --------------------------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        if self._phase is _Phase.ENDED:
            return
        now, fence_s = self._clock.now(), self._place.job.fence_s
        if self._phase is _Phase.REGISTERING:
            self._check_answers(fence_s)
            return
        if self._phase is not _Phase.WORKING or now - self._last_heartbeat >= min(
            self._parts.heartbeat_s, fence_s / 10
        ):
            self._last_heartbeat = now
            self._link.heartbeat()
        if self._phase is _Phase.FAILED:
            if now >= self._cancel_by:
                self._end("failed")
            return
        self._check_answers(fence_s)
        if self._work is not None and self._deploy is not None:
            self._work.check_read(self._deploy.read_timeout_s)
        self._report_progress(now)

    def _check_answers(self, fence_s: float) -> None:
        if self._link.unanswered_s > fence_s:
            # A paused coordinator keeps its connections; a later start deletes what is written from now on.
            message = f"coordinator silent for {self._link.unanswered_s:.0f} s: stopping, nothing more is written"
            raise FencedError(message)

    def _report_progress(self, now: float) -> None:
        deploy, idle = self._deploy, self._work is None and self._exchange is None
        if deploy is not None and now - self._last_progress >= deploy.progress_s and not idle:
            self._last_progress = now
            self._send_progress()

    def _send_progress(self) -> None:
        work, exchange = self._work, self._exchange
        figures = None if exchange is None else exchange.figures
        if work is None:
            self._link.send(Progress(split_id="", rows=0, size_bytes=0, offset=0, exchange=figures))
            return
        split_id, offset = work.split.split_id, work.next_offset
        size = work.size_bytes
        self._link.send(Progress(split_id=split_id, rows=work.rows, size_bytes=size, offset=offset, exchange=figures))

    def _lost(self, lost: LostCoordinator) -> None:
        if self._phase is _Phase.FAILED:
            self._end("failed")
            return
        if self._deploy is None:
            job = self._place.job
            message = f"coordinator at {job.host}:{job.port} not reached for {job.fence_s:.0f} s: {lost.reason}"
            raise FencedError(message)
        message = f"coordinator silent for {lost.silent_s:.0f} s: stopping, nothing more is written"
        raise FencedError(message)

    def _fail(self, error: Exception) -> None:
        """Tell the coordinator of an error; if a retry is of no use now, wait for it to end the round.

        Otherwise Spark would retry a task that ends with an error, in vain, and the coordinator would launch a job
        again that ends before the round.
        """
        self.error = error
        permanent = isinstance(error, TableError) and error.permanent
        if self._deploy is not None:
            self._link.send(Failed(code=code_of(error), message=in_words(error), permanent=permanent))
        if permanent or isinstance(error, ReadTimeoutError):
            self._phase = _Phase.FAILED
            self._cancel_by = self._clock.now() + _CANCEL_S
        else:
            self._end("")
        self._abort()

    def _abort(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.abort()
        if self._exchange is not None:
            self._exchange.abort()

    def _end(self, outcome: str) -> None:
        self._phase = _Phase.ENDED
        self.outcome = outcome
