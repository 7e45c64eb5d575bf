"""A subtask with an exchange that exchanges nothing: it keeps the rows that it reads.

For tests of the coordinator's half: it registers, connects, reads, takes checkpoints and writes as the protocol wants,
over real sockets and a real store. All its files are closed at each cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.checkpoints.gateway import AbortFor, CloseFor, Gateway, MessageReceived, OpenFor, Pass
from lakeward.model.checkpoints import Origin, SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    AnyEvent,
    AssignSplits,
    Cancel,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    Connected,
    DeclineCheckpoint,
    Deploy,
    Failed,
    FinishEarly,
    NoMoreSplits,
    Open,
    RequestSplit,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
    WriterFinished,
)
from lakeward.model.exchange import ExchangeState
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.wire import unpack_table
from lakeward.subtask.link import AllAcknowledged, Link, LostCoordinator
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read, SplitReading
from lakeward.subtask.run import real_ports
from lakeward_service_kit.checkpoint_values import batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import LakeWriter, SourceReader


@dataclass
class StandInGang:
    """What the tasks of a `ThreadJobs` run. `fails` says whether a task breaks when it has read a batch."""

    fails: Callable[[SubtaskPlace], bool] = lambda _place: False
    closes: list[bool] = field(default_factory=list)
    """`close_files` of each trigger that any subtask received."""
    restored: list[int] = field(default_factory=list)
    """Rows in the states that each subtask was deployed with."""
    declines: bool = False
    """Whether subtasks store rows for a checkpoint and then decline it."""

    def __call__(self, place: SubtaskPlace) -> str:
        """Run one task."""
        return _StandIn(self, place).run()


class _StandIn:
    def __init__(self, gang: StandInGang, place: SubtaskPlace) -> None:
        self._gang, self._place, self._parts = gang, place, real_ports()
        self._mailbox = Mailbox()
        self._link = Link(place, self._parts.transport, self._parts.clock, self._mailbox.put_message)
        self._gateway = Gateway()
        self._waiting: list[SplitProgress] = []
        self._now: SplitProgress | None = None
        self._reading: SplitReading | None = None
        self._reader: SourceReader | None = None
        self._writer: LakeWriter | None = None
        self._files: tuple[LakeFile, ...] = ()
        self._rows = self._left_out = self._number = 0
        self._outcome = ""
        self._finished = False
        """All files are closed, and `SubtaskDone` is still to be sent."""

    def run(self) -> str:
        self._link.start()
        try:
            while not self._outcome:
                self._take(self._mailbox.get(0.2))
                if self._finished and not self._gateway.held:
                    self._finished = False
                    self._link.send(SubtaskDone())
                if self._reader is not None:
                    self._link.heartbeat()
        except Exception as error:
            self._link.send(Failed(code="LW-000", message=str(error)))
            raise
        finally:
            if self._reading is not None:
                self._reading.stop()
            self._link.close()
        return self._outcome

    def _take(self, item: object) -> None:  # noqa: C901 - one case for each message
        match item:
            case Deploy():
                self._begin(item)
            case Cancel() | LostCoordinator():
                self._outcome = "cancelled"
            case AllAcknowledged():
                self._outcome = "done"
            case AssignSplits():
                self._waiting.extend(item.splits)
                self._read_next()
            case Read():
                self._take_read(item)
            case FinishEarly():
                self._waiting.clear()
                if self._now is not None:
                    self._finish()
            case NoMoreSplits():
                self._close_files()
                self._send(WriterFinished(state=self._state()))
                self._finished = True
            case Close():
                self._step(CloseFor(item.checkpoint))
                self._link.send(AckClose(checkpoint=item.checkpoint, sent=self._link.sent))
            case TriggerCheckpoint():
                self._snapshot(item)
            case CheckpointComplete() | CheckpointAborted():
                self._step(AbortFor(item.checkpoint))
            case _:
                pass

    def _begin(self, deploy: Deploy) -> None:
        exchange = deploy.exchange
        assert exchange is not None
        self._deploy, self._table = deploy, unpack_table(deploy.table)
        self._gateway = Gateway(closed_for=deploy.gateway_closed)
        self._size = len(exchange.addresses)
        self._gang.restored.append(sum(state.rows for state in exchange.restore))
        for state in exchange.restore:
            if state.subtask % self._size == self._place.subtask:
                self._files += state.files
                self._rows, self._left_out = self._rows + state.rows, self._left_out + state.left_out
        self._reader = self._parts.source(deploy.source).reader(deploy.source_task, self._table)
        self._link.send(Connected())
        self._send(RequestSplit())

    def _read_next(self) -> None:
        if self._now is not None or not self._waiting or self._reader is None:
            return
        self._now = self._waiting.pop(0)
        parts = self._parts
        self._reading = SplitReading(
            self._now.split, self._reader, parts.clock, parts.executor, self._mailbox, self._now.position
        )

    def _take_read(self, item: Read) -> None:
        if self._now is None or self._reading is None or item.split_id != self._now.split.split_id:
            return
        if item.error is not None:
            raise item.error
        if item.batch is None:
            self._finish()
            return
        if self._gang.fails(self._place):
            message = "as the test wants it"
            raise RuntimeError(message)
        rows = item.batch.records.num_rows
        self._open_writer().write(item.batch)
        self._rows += rows
        self._now = structs.replace(self._now, position=item.batch.next_offset, rows=self._now.rows + rows)
        self._reading.taken()

    def _open_writer(self) -> LakeWriter:
        if self._writer is None:
            self._number += 1
            lake, name = self._parts.lake(self._deploy.lake), f"x{self._place.subtask}-{self._number}"
            task, attempt = self._deploy.lake_task, self._deploy.attempt
            self._writer = lake.partition_writer(task, self._table, b"[]", name, attempt, (), 0)  # type: ignore[attr-defined] # the folder lake's
        return self._writer

    def _close_files(self) -> None:
        if self._writer is not None:
            self._files += self._writer.close()
            self._left_out += self._writer.left_out
            self._writer = None

    def _finish(self) -> None:
        assert self._now is not None
        assert self._reading is not None
        self._reading.stop()
        now, self._now, self._reading = self._now, None, None
        bucket = now.split.bucket
        result = WriteResult(now.split.split_id, bucket, now.position, -1, now.rows, (), empty_offsets=0)
        self._send(SplitFinished(result=result))
        if self._waiting:
            self._read_next()
        else:
            self._send(RequestSplit())

    def _state(self) -> ExchangeState:
        return ExchangeState(
            subtask=self._place.subtask,
            subtasks=self._size,
            files=self._files,
            rows=self._rows,
            left_out=self._left_out,
        )

    def _snapshot(self, trigger: TriggerCheckpoint) -> None:
        self._gang.closes.append(trigger.close_files)
        self._close_files()
        progress = (*([self._now] if self._now is not None else []), *self._waiting)
        origin = Origin(self._place.job.job_attempt, self._place.subtask, self._deploy.attempt, self._link.sent)
        blocked = self._gateway.held_as(origin)
        snapshot = SubtaskSnapshot(self._place.subtask, self._deploy.attempt, progress, blocked, self._state())
        ref = self._deploy.checkpoint_ref
        assert ref is not None
        ref, store = replace(ref, number=trigger.checkpoint), self._parts.checkpoints(self._deploy.checkpoint_root)
        if self._gang.declines:
            name = f"{trigger.checkpoint}-{self._place.subtask}-{self._deploy.attempt}-0.arrow"
            store.write_segment(ref, name, batches(1))
            self._step(OpenFor(trigger.checkpoint))
            self._link.send(Open(checkpoint=trigger.checkpoint))
            self._link.send(DeclineCheckpoint(checkpoint=trigger.checkpoint, reason="as the test wants it"))
            return
        part = store.write_part(ref, snapshot)
        self._step(OpenFor(trigger.checkpoint))
        self._link.send(Open(checkpoint=trigger.checkpoint))
        self._link.send(AckCheckpoint(checkpoint=trigger.checkpoint, part=part, snapshot=snapshot))

    def _send(self, event: AnyEvent) -> None:
        self._step(MessageReceived(event))

    def _step(self, event: CloseFor | OpenFor | AbortFor | MessageReceived) -> None:
        for command in self._gateway.step(event):
            if isinstance(command, Pass):
                self._link.send(command.event)
