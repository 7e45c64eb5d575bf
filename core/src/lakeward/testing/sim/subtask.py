"""One task of a job: the real `Subtask` and `Checkpointing`, with mailbox, link and reading in virtual time."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakeward.errors import IllegalEventError, LakewardError, ProtocolError
from lakeward.machines.channel import Channel, ChannelKey
from lakeward.model.events import (
    AckCheckpoint,
    AnyEvent,
    Cancel,
    Deploy,
    Envelope,
    Heartbeat,
    Left,
    Register,
    RequestSplit,
)
from lakeward.model.splits import LogSplit
from lakeward.subtask.entry import Subtask
from lakeward.subtask.link import LostCoordinator
from lakeward.subtask.reading import AHEAD, Read
from lakeward.testing.sim.lake import SimWriter, stem_of
from lakeward.testing.sim.network import SimConnection
from lakeward.testing.sim.scheduler import Process
from lakeward.testing.sim.source import SimReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.machines.gateway import GatewayPhase
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, SourceBatch, SourceReader
    from lakeward.subtask.work import SplitWork
    from lakeward.testing.sim.world import World

_CONNECT_S = 5.0
_PAUSE_S = 1.0
_WRITE_S = 0.05


class SimMailbox:
    """As `subtask.mailbox.Mailbox`; whoever puts something in wakes the process."""

    def __init__(self, process: SimTask) -> None:
        """Start empty."""
        self.process = process
        self._said: deque[object] = deque()
        self._rest: deque[object] = deque()
        self._armed = False

    def put(self, item: object) -> None:
        """See `Mailbox`."""
        self._rest.append(item)
        self._wake()

    def put_said(self, item: object) -> None:
        """See `Mailbox`."""
        self._said.append(item)
        self._wake()

    def _wake(self) -> None:
        """Begin with the next item: what is heard while it is in work comes after it, but for words on checkpoints."""
        if not self._armed and (self._said or self._rest):
            self._armed = True
            item = (self._said or self._rest).popleft()
            self.process.after(self.process.random.random() * _WRITE_S, self._turn, item)

    def _turn(self, item: object) -> None:
        self._armed = False
        self.process.take(item)
        self._wake()


class SimLink:
    """As `subtask.link.Link`: registers, reconnects, sends again what was not acknowledged."""

    def __init__(self, world: World, process: SimTask, place: SubtaskPlace, mailbox: SimMailbox) -> None:
        """Connect nothing yet."""
        self._world = world
        self.process = process
        self._place = place
        self._mailbox = mailbox
        self._channel: Channel | None = None
        self._attempt: int | None = None
        self._up: SimConnection | None = None
        self._asked: SimConnection | None = None
        self._heard = world.scheduler.now
        self._asked_at: float | None = None
        self._closed = False

    @property
    def sent(self) -> int:
        """See `Link`."""
        return self._channel.sent if self._channel is not None else 0

    @property
    def settled(self) -> bool:
        """Whether everything that was sent is acknowledged."""
        return self._channel is None or not self._channel.unacked()

    @property
    def silent_s(self) -> float:
        """Seconds since the coordinator was heard."""
        return self._world.scheduler.now - self._heard

    @property
    def unanswered_s(self) -> float:
        """See `Link`."""
        return 0.0 if self._asked_at is None else self._world.scheduler.now - self._asked_at

    def connect(self) -> None:
        """Ask to be let in."""
        if self._closed:
            return
        job = self._place.job
        if self.silent_s > job.fence_s:
            self._give_up()
            return
        server = self._world.server_at(job.port)
        if server is None:
            self.process.after(_PAUSE_S, self.connect)
            return
        connection = self._asked = SimConnection(self._world, server, self)
        register = Register(subtask=self._place.subtask, host="sim", pid=1, attempt=self._attempt)
        connection.up(Channel(self._key(self._attempt or 0), "up").send(register))
        self.process.after(_CONNECT_S, partial(self._too_long, connection))

    def send(self, event: AnyEvent) -> None:
        """See `Link`."""
        if self._channel is not None:
            self._put(self._channel.send(event))

    def beat(self) -> None:
        """See `Link`."""
        if self._channel is not None:
            self._asked_at = self._world.scheduler.now if self._asked_at is None else self._asked_at
            self._put(self._channel.send(Heartbeat(acked=self._channel.received)))

    def close(self) -> None:
        """See `Link`."""
        self._closed = True
        for connection in (self._up, self._asked):
            if connection is not None:
                connection.cut()
        self._up = self._asked = None

    def receive(self, connection: SimConnection, envelope: Envelope) -> None:
        """Take what came down."""
        if self._closed:
            return
        self._heard, self._asked_at = self._world.scheduler.now, None
        if connection is self._asked:
            self._answered(connection, envelope)
        elif connection is self._up and self._channel is not None:
            self._hear(self._channel, connection, envelope)

    def broken(self, connection: SimConnection) -> None:
        """Its connection is gone."""
        if connection is self._up or connection is self._asked:
            self._up = self._up if connection is not self._up else None
            self._asked = None
            self.connect()

    def _hear(self, channel: Channel, connection: SimConnection, envelope: Envelope) -> None:
        try:
            event = channel.receive(envelope)
        except ProtocolError as error:
            self._world.story.note(self.process.name, f"ends its connection: {error}")
            connection.cut()
            return
        if envelope.sequence:
            self.beat()
        if event is not None and not isinstance(event, Heartbeat):
            self.process.hear(event)

    def _answered(self, connection: SimConnection, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, Cancel):
            self.close()
            if self._attempt is None:
                self.process.end("cancelled")
            else:
                self._mailbox.put_said(event)
            return
        self._asked, self._up = None, connection
        if isinstance(event, Deploy) and self._attempt is None:
            self._attempt = event.attempt
            self._channel = Channel(self._key(event.attempt), "up")
            self.process.deploy(event)
            return
        # What is said between these two moments overtakes what is sent again.
        self.process.after(
            self.process.random.random() * self._world.send_again_s, partial(self._send_again, connection)
        )

    def _send_again(self, connection: SimConnection) -> None:
        if connection is self._up and self._channel is not None:
            for envelope in self._channel.unacked():
                self._put(envelope)

    def _too_long(self, connection: SimConnection) -> None:
        if connection is self._asked:
            connection.cut()

    def _give_up(self) -> None:
        if self._attempt is None:
            self.process.end(None)
        else:
            self._mailbox.put_said(LostCoordinator(self.silent_s))

    def _put(self, envelope: Envelope) -> None:
        if isinstance(envelope.event, AckCheckpoint):
            self._world.checks.acknowledging(self.process.name, envelope.event)
        if self._up is not None:
            self._up.up(envelope)

    def _key(self, attempt: int) -> ChannelKey:
        job = self._place.job
        return ChannelKey(job.round_name, job.job_attempt, self._place.subtask, attempt)


class SimReading:
    """As `subtask.reading.SplitReading`: a batch at a time, a few ahead."""

    def __init__(self, split: Split, reader: SourceReader, clock: Clock, mailbox: SimMailbox, position: int) -> None:
        """Start reading."""
        del clock
        self.split = split
        self._reader = reader
        self._mailbox = mailbox
        self._position = position
        self._batches: Iterator[SourceBatch] | None = None
        self._credits = AHEAD
        self._reading = False
        self._stopped = False
        self._more()

    def taken(self) -> None:
        """See `SplitReading`."""
        self._credits += 1
        self._more()

    def stop(self) -> None:
        """See `SplitReading`."""
        self._stopped = True

    def _more(self) -> None:
        if self._credits and not self._reading and not self._stopped:
            self._credits -= 1
            self._reading = True
            process = self._mailbox.process
            process.after(process.random.random() * process.world.read_s, self._next)

    def _next(self) -> None:
        self._reading = False
        if self._stopped:
            return
        name = self.split.split_id
        try:
            self._batches = self._batches or self._open()
            batch = next(self._batches, None)
        except Exception as error:  # noqa: BLE001 - as `SplitReading`
            self._stopped = True
            self._mailbox.put(Read(name, None, error, 0.0))
            return
        self._stopped = batch is None
        self._mailbox.put(Read(name, batch, None, 0.0))
        self._more()

    def _open(self) -> Iterator[SourceBatch]:
        if isinstance(self.split, LogSplit):
            return self._reader.read_log(replace(self.split, start=self._position))
        return self._reader.read_snapshot(self.split, self._position)


class _Plugins:
    """The source and the lake in a subtask."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reader(self, task: bytes, table: TableSpec) -> SimReader:
        """See `SourcePlugin`."""
        del table
        return SimReader(self._world.source, int(task))

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> SimWriter:
        """See `LakePlugin`."""
        del table
        return SimWriter(self._world.lake, stem_of(task, split, attempt), self._world.target_rows, progress)


class _Subtask(Subtask):
    """The real one, turned from outside."""

    def __init__(self, world: World, place: SubtaskPlace, deploy: Deploy, link: SimLink, mailbox: SimMailbox) -> None:
        super().__init__(place, deploy, link, world.clock, mailbox)  # type: ignore[arg-type] # they have what is asked of them
        self._plugins = _Plugins(world)
        self._checkpointing._store = world.store  # noqa: SLF001 - else it would open one on a disk

    def _source(self) -> _Plugins:  # type: ignore[override]
        return self._plugins

    def _lake(self) -> _Plugins:  # type: ignore[override]
        return self._plugins

    def begin(self) -> None:
        """Do what `run` does before its first turn."""
        self._reader = self._plugins.reader(self._deploy.source_task, self._table)
        self._checkpointing.start()
        self._checkpointing.say(RequestSplit())

    def turn(self, item: object) -> str | None:
        """Do one turn; return the outcome if this was the last."""
        self._take(item)
        self._show_life()
        return self._outcome

    def fail(self, error: Exception) -> None:
        """Say that it cannot go on, as `run` does."""
        self._fail(error)


class SimTask(Process):
    """The process of one try of a task. `over` is told the outcome in one word, or None and why it failed."""

    def __init__(self, world: World, place: SubtaskPlace, name: str, over: Callable[[str | None], None]) -> None:
        """Start."""
        super().__init__(world.scheduler, name)
        self.world = self._world = world
        self._place = place
        self._over = over
        self.place = place
        self.outlives = False
        """Whether the driver takes it for dead."""
        self._mailbox = SimMailbox(self)
        self.link = SimLink(world, self, place, self._mailbox)
        self._subtask: _Subtask | None = None
        self.link.connect()

    @property
    def gateway(self) -> GatewayPhase | None:
        """Its gateway's phase, None before it is deployed."""
        return self._subtask._checkpointing._gateway.phase if self._subtask is not None else None  # noqa: SLF001 - as below

    @property
    def work(self) -> SplitWork | None:
        """The split that it reads, None if it reads none."""
        return self._subtask._work if self._subtask is not None else None  # noqa: SLF001 - looked at, not touched

    def deploy(self, deploy: Deploy) -> None:
        """Begin."""
        self._subtask = _Subtask(self._world, self._place, deploy, self.link, self._mailbox)
        self._guard(self._subtask.begin)
        self.after(2.0, self._life)

    def take(self, item: object) -> None:
        """Do one turn of the mailbox's."""
        if (subtask := self._subtask) is not None and self.alive:
            self._entered(lambda: self._outcome(subtask.turn(item)))

    def hear(self, event: AnyEvent) -> None:
        """Let the subtask hear what came down, as its link does."""
        if (subtask := self._subtask) is not None and self.alive:
            self._entered(lambda: subtask.hear(event))

    def end(self, outcome: str | None) -> None:
        """The process is over."""
        if self.alive:
            self.kill()
            self._over(outcome)

    def kill(self) -> None:
        """Die: connections break with it."""
        super().kill()
        self.link.close()

    def _life(self) -> None:
        self.take(None)
        self.after(2.0, self._life)

    def _outcome(self, outcome: str | None) -> None:
        if outcome == "done":
            self._subtask = None
            self.link.send(Left())
            self._finish()
        elif outcome is not None:
            self.end(outcome)

    def _finish(self) -> None:
        if self.link.settled:
            self.end("done")
        elif self.link.silent_s > self._place.job.fence_s:
            self.end(None)
        else:
            self.link.beat()
            self.after(0.5, self._finish)

    def _entered(self, work: Callable[[], None]) -> None:
        before = self._world.enter(self)
        try:
            self._guard(work)
        finally:
            self._world.enter(before)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as `Subtask.run`
            self._world.story.note(self.name, f"fails: {type(error).__name__}: {error}")
            if isinstance(error, IllegalEventError) or not isinstance(error, LakewardError):
                self._world.checks.fail(f"{self.name}: {type(error).__name__}: {error}")
            if self._subtask is not None:
                self._subtask.fail(error)
            self.after(0.01, lambda: self.end(None))
