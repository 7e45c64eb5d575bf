"""What runs in one Spark task: register, pull splits, read, write, report.

One mailbox thread owns all state but the gateway, which is heard of at once (`Checkpointing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakeward.clock import SystemClock
from lakeward.errors import FencedError, LakewardError, TableError
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
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
from lakeward.subtask.checkpointing import Checkpointing, CheckpointWord, Cut, PartWritten
from lakeward.subtask.link import Link, LostCoordinator
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read
from lakeward.subtask.work import SplitWork, at_its_beginning

if TYPE_CHECKING:
    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import Clock, SourceReader

_TURN_S = 0.5
"""Longest wait for the mailbox: signs of life go out in between."""
_CANCEL_S = 10.0
_CANCEL_TURN_S = 0.1


def run_subtask(place: SubtaskPlace) -> str:
    """Do one task's work.

    Args:
        place: which task this is.

    Returns:
        `done`, `cancelled` where the coordinator no longer counts this attempt, or `failed` where the coordinator was
        told of an error that each further try would meet.

    Raises:
        LakewardError: it could not go on; the coordinator was told first where it could be reached.
    """
    clock = SystemClock()
    mailbox = Mailbox()
    link = Link(place, clock, mailbox)
    try:
        deploy = link.register()
        if isinstance(deploy, Cancel):
            return "cancelled"
        subtask = Subtask(place, deploy, link, clock, mailbox)
        link.listen(subtask.hear)
        return subtask.run()
    finally:
        link.close()


class Subtask:
    """One attempt of a subtask, from its deployment to its end."""

    def __init__(self, place: SubtaskPlace, deploy: Deploy, link: Link, clock: Clock, mailbox: Mailbox) -> None:
        """Keep what it was deployed with.

        Args:
            place: which task this is.
            deploy: what to work on.
            link: the connection to the coordinator.
            clock: the machine's clock.
            mailbox: everything that happens to this subtask, in order.
        """
        self._place = place
        self._deploy = deploy
        self._link = link
        self._clock = clock
        self._mailbox = mailbox
        self._table = unpack_table(deploy.table)
        self._waiting: list[SplitProgress] = []
        self._work: SplitWork | None = None
        self._reader: SourceReader | None = None
        self._last_beat = clock.now()
        self._last_progress = clock.now()
        self._outcome: str | None = None
        self._checkpointing = Checkpointing(place, deploy, link, clock, mailbox)

    def run(self) -> str:
        """Work until there is nothing more, or until told to stop.

        Returns:
            The outcome in one word.
        """
        try:
            self._reader = self._source().reader(self._deploy.source_task, self._table)
            self._checkpointing.start()
            self._checkpointing.say(RequestSplit())
            while self._outcome is None:
                self._turn()
            if self._outcome == "done":
                self._checkpointing.leave()
                self._link.finish()
        except Exception as error:
            if not self._fail(error):
                raise
            self._outcome = "failed"  # an exception would make Spark try the task again, to no use
            self._wait_for_cancel()
        finally:
            self._checkpointing.close()
            if self._reader is not None:
                self._reader.close()
        return self._outcome

    def hear(self, event: AnyEvent) -> None:
        """Take what the coordinator says, on the receiving thread: words on checkpoints at once, the rest in turn."""
        if not isinstance(event, CheckpointWord):
            self._mailbox.put_said(event)
            return
        try:
            self._checkpointing.hear(event)
        except LakewardError as error:
            self._mailbox.put_said(error)

    def _source(self) -> SourcePlugin:
        return cast("SourcePlugin", load(SOURCE_GROUP, self._deploy.source))

    def _lake(self) -> LakePlugin:
        return cast("LakePlugin", load(LAKE_GROUP, self._deploy.lake))

    def _turn(self) -> None:
        self._take(self._mailbox.get(_TURN_S))
        self._show_life()

    def _take(self, item: object) -> None:
        match item:
            case Read():
                self._take_read(item)
            case AssignSplits():
                self._waiting.extend(wire.progress or at_its_beginning(wire.split) for wire in item.splits)
                self._start_next()
            case NoMoreSplits():
                self._outcome = "done"
            case FinishEarly():
                self._finish_early()
            case Cancel():
                self._abort()
                self._outcome = "cancelled"
            case Cut():
                self._checkpointing.make_part(item, self._roll)
            case PartWritten():
                self._checkpointing.part_written(item)
            case LakewardError():
                raise item
            case LostCoordinator():
                self._abort()
                message = f"coordinator silent for {item.silent_s:.0f} s: stopping, nothing more is written"
                raise FencedError(message)
            case _:
                pass

    def _take_read(self, item: Read) -> None:
        work = self._work
        if work is None or work.split.split_id != item.split_id:
            return
        if item.error is not None:
            raise work.unreadable(item.error)
        if item.batch is not None:
            work.write(item.batch, item.read_s)
            return
        self._finish(work)

    def _start_next(self) -> None:
        if self._work is not None or not self._waiting or self._reader is None:
            return
        progress = self._waiting.pop(0)
        deploy = self._deploy
        writer = self._lake().writer(deploy.lake_task, self._table, progress.split, deploy.attempt, progress)
        self._work = SplitWork(self._table, progress, self._reader, writer, self._clock, self._mailbox)

    def _finish(self, work: SplitWork, *, ended: bool = True) -> None:
        result = work.close(ended=ended)
        self._work = None
        self._checkpointing.finish(SplitFinished(result=result), work.ended(result))
        if self._waiting:
            self._start_next()
        else:
            self._checkpointing.say(RequestSplit())

    def _roll(self) -> tuple[SplitProgress, ...]:
        """Close what is large enough; return how far every split is that is held here."""
        begun = (self._work.roll(),) if self._work is not None else ()
        return (*begun, *self._waiting)

    def _finish_early(self) -> None:
        self._waiting.clear()
        if self._work is not None and isinstance(self._work.split, LogSplit):
            self._finish(self._work, ended=False)

    def _show_life(self) -> None:
        now = self._clock.now()
        if now - self._last_beat >= min(_TURN_S, self._place.job.fence_s / 10):
            self._last_beat = now
            self._link.beat()
        if self._link.unanswered_s > self._place.job.fence_s:
            # A paused coordinator keeps its connections: its successor sweeps what we would write from now on.
            message = f"coordinator silent for {self._link.unanswered_s:.0f} s: stopping, nothing more is written"
            raise FencedError(message)
        if self._work is not None and now - self._last_progress >= self._deploy.progress_s:
            self._last_progress = now
            work = self._work
            self._link.send(
                Progress(
                    split_id=work.split.split_id, rows=work.rows, size_bytes=work.size_bytes, offset=work.next_offset
                )
            )

    def _abort(self) -> None:
        if self._work is not None:
            self._work.abort()
            self._work = None

    def _wait_for_cancel(self) -> None:
        """Stay until the coordinator has ended the round: a job that ends first would be launched again."""
        deadline = self._clock.now() + _CANCEL_S
        while self._clock.now() < deadline:
            self._link.beat()
            if isinstance(self._mailbox.get(_CANCEL_TURN_S), (Cancel, LostCoordinator)):
                return

    def _fail(self, error: Exception) -> bool:
        """Tell the coordinator; return whether the next try would fail like this one."""
        code = error.code if isinstance(error, LakewardError) else LakewardError.code
        permanent = isinstance(error, TableError) and error.permanent
        self._link.send(Failed(code=code, message=f"{type(error).__name__}: {error}", permanent=permanent))
        self._abort()
        return permanent
