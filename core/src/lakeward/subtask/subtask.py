"""One attempt of a subtask: registers, pulls splits, reads, writes, reports.

One mailbox thread owns all state but the gateway, whose messages are handled as they arrive (`Checkpointing`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from lakeward.errors import FencedError, LakewardError, ReadTimeoutError, TableError, code_of, in_words
from lakeward.model.events import AssignSplits, Cancel, Deploy, Failed, FinishEarly, NoMoreSplits, Progress
from lakeward.model.wire import unpack_table
from lakeward.subtask.assigned_splits import AssignedSplits
from lakeward.subtask.checkpointing import CheckpointEnded, Checkpointing, CheckpointMessage, MakePart
from lakeward.subtask.exchange.exchange_work import ExchangeWork
from lakeward.subtask.exchange.items import ExchangeItem
from lakeward.subtask.exchange.phase import ExchangePhase
from lakeward.subtask.link import AllAcknowledged, Link, LostCoordinator
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.no_exchange import NoExchange
from lakeward.subtask.part_store import PartWritten
from lakeward.subtask.reading import Read

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.gateway import GatewayPhase
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.subtask.link import Delivered
    from lakeward.subtask.ports import SubtaskPorts
    from lakeward.subtask.work import SplitWork

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

    def __init__(self, place: SubtaskPlace, ports: SubtaskPorts, mailbox: Mailbox | None = None) -> None:
        """Prepare the attempt; `start` connects.

        Everything that happens to this subtask is in the mailbox, in order; None = a new one.
        """
        self._place = place
        self._ports = ports
        self._mailbox = Mailbox() if mailbox is None else mailbox
        self._exchange = ExchangeWork(place, ports, self._mailbox) if place.job.exchange else NoExchange(ports)
        self._link = Link(place, ports.transport, ports.clock, self.on_event, self._exchange.address)
        self._phase = _Phase.REGISTERING
        self._exchange_phase = ExchangePhase.CONNECTING
        """The one that was acted on last."""
        self._deploy: Deploy | None = None
        self._checkpointing: Checkpointing | None = None
        self._splits: AssignedSplits | None = None
        """None before it is deployed, as are the two above."""
        self._last_heartbeat = self._last_progress = ports.clock.now()
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
            if self._phase is _Phase.WORKING:
                self._go_on(self._assigned(), idle=item is None)
            self._send_heartbeat()
        except Exception as error:  # noqa: BLE001 - kept, and raised by `run`
            self._fail(error)

    def close(self) -> None:
        """Free everything; calling it twice is harmless."""
        try:
            if self._checkpointing is not None:
                self._checkpointing.store.close()
            if self._splits is not None:
                self._splits.close()
            self._exchange.close()
        finally:
            self._link.close()

    def on_event(self, event: Delivered) -> None:
        """Receive from the link, on its thread: handle checkpoint messages at once, post everything else."""
        if isinstance(event, Deploy) and self._checkpointing is None:
            self._deploy = event
            self._checkpointing = Checkpointing(self._place, event, self._link, self._ports, self._mailbox)
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
        due, longest = self._exchange.due, self._ports.heartbeat_s
        return longest if due is None else min(longest, max(0.0, due - self._ports.clock.now()))

    @property
    def work(self) -> SplitWork | None:
        """The split that it reads, None if it reads none."""
        return None if self._splits is None else self._splits.work

    @property
    def is_restoring(self) -> bool:
        """Whether rows of a checkpoint are still read back or written."""
        return self._exchange.is_restoring

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
            case AllAcknowledged():
                self._end("done")
            case Deploy():
                self._begin(item)
            case _ if isinstance(item, ExchangeItem) and self._phase in {_Phase.REGISTERING, _Phase.WORKING}:
                self._exchange.take(item)
            case _ if self._phase is _Phase.WORKING:
                self._take_work(item)
            case _:
                pass

    def _take_work(self, item: object) -> None:
        splits = self._assigned()
        match item:
            case Read():
                splits.take(item)
            case AssignSplits():
                splits.add(item.splits)
            case NoMoreSplits():
                self._exchange.end_output()
            case FinishEarly():
                splits.finish_early()
            case MakePart():
                self._exchange.trigger(item, self._deployed(), progress=splits.roll)
            case CheckpointEnded():
                self._deployed().store.end(item.checkpoint)
                self._exchange.end_checkpoint(item.checkpoint)
            case PartWritten():
                self._deployed().part_written(item)
            case _:
                pass

    def _begin(self, deploy: Deploy) -> None:
        self._phase = _Phase.WORKING
        self._last_progress = self._ports.clock.now()
        table, checkpointing = unpack_table(deploy.table), self._deployed()
        self._splits = AssignedSplits(deploy, table, self._exchange, checkpointing, self._ports, self._mailbox)
        checkpointing.start()
        self._exchange.begin(deploy, table.as_written, checkpointing)

    def _go_on(self, splits: AssignedSplits, *, idle: bool) -> None:
        """Do what follows from a change of the exchange: ask for splits, read on, or finish."""
        exchange = self._exchange
        exchange.check_time()
        if exchange.phase is not self._exchange_phase:
            self._exchange_phase = exchange.phase
            self._enter(splits)
        if splits.work is None or idle:
            exchange.flush()
        if splits.work is not None and not exchange.is_full:
            splits.work.read_on()
        # `SubtaskDone` passes a closed gateway, and from then on no message about checkpoints opens it any more.
        if exchange.phase is ExchangePhase.DONE and not self._deployed().holds_events:
            self._phase = _Phase.FINISHING
            self._deployed().send_done()

    def _enter(self, splits: AssignedSplits) -> None:
        if self._exchange_phase is ExchangePhase.RUNNING:
            splits.request()
        elif self._exchange.figures is not None:
            # A round is often shorter than the time between two reports, and how uneven it was is seen at its end.
            self._send_progress()

    def _assigned(self) -> AssignedSplits:
        if self._splits is None:
            message = "a subtask was to work before it was deployed"
            raise LakewardError(message)
        return self._splits

    def _deployed(self) -> Checkpointing:
        if self._checkpointing is None:
            message = "a subtask was to work before it was deployed"
            raise LakewardError(message)
        return self._checkpointing

    # --- heartbeats and ends --------------------------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        if self._phase is _Phase.ENDED:
            return
        now, fence_s = self._ports.clock.now(), self._place.job.fence_s
        if self._phase is _Phase.REGISTERING:
            self._check_answers(fence_s)
            return
        if self._phase is not _Phase.WORKING or now - self._last_heartbeat >= min(
            self._ports.heartbeat_s, fence_s / 10
        ):
            self._last_heartbeat = now
            self._link.heartbeat()
        if self._phase is _Phase.FAILED:
            if now >= self._cancel_by:
                self._end("failed")
            return
        self._check_answers(fence_s)
        if self._splits is not None:
            self._splits.check_read()
        self._report_progress(now)

    def _check_answers(self, fence_s: float) -> None:
        if self._link.unanswered_s > fence_s:
            # A paused coordinator keeps its connections; a later start deletes what is written from now on.
            message = f"coordinator silent for {self._link.unanswered_s:.0f} s: stopping, nothing more is written"
            raise FencedError(message)

    def _report_progress(self, now: float) -> None:
        deploy = self._deploy
        if deploy is None or now - self._last_progress < deploy.progress_s:
            return
        if self.work is not None or self._exchange.figures is not None:
            self._last_progress = now
            self._send_progress()

    def _send_progress(self) -> None:
        work, figures = self.work, self._exchange.figures
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
            self._cancel_by = self._ports.clock.now() + _CANCEL_S
        else:
            self._end("")
        self._abort()

    def _abort(self) -> None:
        if self._splits is not None:
            self._splits.abort()
        self._exchange.abort()

    def _end(self, outcome: str) -> None:
        self._phase = _Phase.ENDED
        self.outcome = outcome
