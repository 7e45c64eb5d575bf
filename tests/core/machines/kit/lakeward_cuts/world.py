"""One round that takes checkpoints, over any number of coordinators, launches and attempts.

Both machines are the real ones, and so are the channels. What they carry is a small round: splits that are handed
out, read, finished. Every completed checkpoint must hold each split exactly once, and whoever goes on from it must
come to the same end. The checks are named after the invariants of the protocol's page in the docs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.machines.channel import Channel, ChannelKey
from lakeward.machines.checkpoint_protocol import (
    Abort,
    Admit,
    Attempt,
    CheckpointAsked,
    CheckpointsCommand,
    CheckpointsEvent,
    CheckpointStored,
    CloseAcked,
    CloseDownGateways,
    Complete,
    DataAcked,
    DataReceived,
    Declined,
    FailAttempt,
    GatewayOpened,
    GiveBack,
    OpenDownGateway,
    PartStored,
    RejectWord,
    SnapshotTaken,
    StoreCheckpoint,
    StoreFailed,
    SubtaskLeft,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    SubtaskWord,
    TakeSnapshot,
    TellAborted,
    TellClose,
    TellComplete,
    TellTrigger,
    TimePassed,
)
from lakeward.machines.checkpoints import AttemptPhase, CheckpointPhase, Checkpoints
from lakeward.machines.gateway import (
    CloseFor,
    Discarded,
    Gateway,
    GatewayCommand,
    GatewayPhase,
    OpenFor,
    Origins,
    Pass,
    Said,
)
from lakeward.model.checkpoints import BlockedEvent, Origin, SubtaskSnapshot
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    AnyEvent,
    AssignSplits,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    DeclineCheckpoint,
    Deploy,
    Envelope,
    Heartbeat,
    Left,
    NoMoreSplits,
    Open,
    RequestSplit,
    SplitFinished,
    TriggerCheckpoint,
    wire_split,
)

if TYPE_CHECKING:
    from collections.abc import Collection

from lakeward_cuts.process import PATIENCE, POLICY, SPLITS, Cut, Process, Seat


class World:
    """One round over any number of coordinators, launches and attempts."""

    machine: type[Checkpoints] = Checkpoints
    gateway: type[Gateway] = Gateway

    def __init__(self) -> None:
        self.now = 0.0
        self.job_attempt = 0
        self.next_attempt = 1
        self.numbers = [0]
        self.completed: list[tuple[int, Cut, tuple[SubtaskSnapshot, ...]]] = []
        self.named: dict[Origin, str] = {}
        self.late: list[Envelope] = []
        self.order: dict[int, str] = {}
        self.origin_of: dict[tuple[str, int, int, int], Origin] = {}
        self.aborted: list[str] = []
        self.failed_over: list[int] = []
        self.broken = False
        self.restore()

    # --- the coordinator ------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Start a coordinator from the newest checkpoint, or from the beginning."""
        self.job_attempt += 1
        self.checkpoints = self.machine(POLICY, now=self.now, latest=self.numbers[-1])
        self.seats: dict[int, Seat] = {}
        self.origins = Origins()
        self.storing: StoreCheckpoint | None = None
        self.assigned: dict[str, Attempt] = {}
        self.order = {}
        cut, parts = Cut(set(SPLITS), set(), {}), tuple[SubtaskSnapshot, ...]()
        if self.completed:
            _, cut, parts = self.completed[-1]
        self.finished = set(cut.finished)
        self.pending = dict(cut.pending) | {one.event.result.split_id: one for part in parts for one in part.blocked}
        work = {progress.split.split_id for part in parts for progress in part.progress}
        self.unassigned = sorted(cut.unassigned | work)

    def step(self, event: CheckpointsEvent) -> None:
        broken, self.broken = self.broken, True
        for command in self.checkpoints.step(event):
            self.do(command)
        self.broken = broken

    def do(self, command: CheckpointsCommand) -> None:
        match command:
            case Admit():
                self.admit(command)
            case GiveBack():
                self.give_back(command)
            case CloseDownGateways():
                self.close_down(command)
            case TakeSnapshot():
                self.take(command.checkpoint)
            case TellTrigger():
                self.trigger(command)
            case StoreCheckpoint():
                assert self.storing is None, "A-I18: one at a time"
                self.storing = command
            case Complete():
                self.check_open(command.checkpoint)
                self.complete(command.checkpoint)
            case Abort():
                self.check_open(command.checkpoint)
                self.aborted.append(command.reason)
            case _:
                self.tell(command)

    def tell(self, command: CheckpointsCommand) -> None:
        """Carry out what concerns one attempt alone."""
        match command:
            case TellClose():
                if command.checkpoint != self.numbers[-1]:
                    assert command.checkpoint > self.numbers[-1], "A-I6: numbers only grow"
                    self.numbers.append(command.checkpoint)
                self.control(command.subtask, command.attempt, Close(checkpoint=command.checkpoint))
            case TellComplete():
                self.control(command.subtask, command.attempt, CheckpointComplete(checkpoint=command.checkpoint))
            case TellAborted():
                self.control(command.subtask, command.attempt, CheckpointAborted(checkpoint=command.checkpoint))
            case OpenDownGateway():
                seat = self.seat(command.subtask, command.attempt)
                self.send(seat, seat.gateway.step(OpenFor(command.checkpoint)))
            case FailAttempt():
                seat = self.seat(command.subtask, command.attempt)
                assert seat.channel.acked < seat.cut_down[1], "A-I10: nobody else is failed over"
                self.failed_over.append(command.subtask)
                self.crash(command.subtask)
            case _:
                pass

    def seat(self, subtask: int, attempt: int) -> Seat:
        seat = self.seats[subtask]
        assert seat.key.task_attempt == attempt, "A-I11: nothing is meant for another attempt"
        return seat

    def control(self, subtask: int, attempt: int, event: AnyEvent) -> None:
        seat = self.seat(subtask, attempt)
        self.send(seat, seat.gateway.step(Said(event)))

    def send(self, seat: Seat, commands: Collection[GatewayCommand]) -> None:
        seat.down.extend(seat.channel.send(command.event) for command in commands if isinstance(command, Pass))

    def admit(self, command: Admit) -> None:
        assert self.order.get(command.subtask) != "living", "A-I16: the older one is given back first"
        self.order[command.subtask] = "living"
        key = ChannelKey("r", self.job_attempt, command.subtask, command.attempt)
        gateway = self.gateway(latest=command.latest, closed_for=command.closed_for)
        held = {name for seat in self.seats.values() for name in seat.restored}
        restored = sorted(self.pending.keys() - held)
        seat = Seat(key, Channel(key, "down"), gateway, restored=tuple(restored))
        self.seats[command.subtask] = seat
        deploy = Deploy(
            attempt=command.attempt,
            table=b"",
            source="",
            source_task=b"",
            lake="",
            lake_task=b"",
            fence_s=1,
            progress_s=1,
            gateway_closed=command.closed_for,
            restored=[self.pending[name] for name in restored],
        )
        self.send(seat, (Pass(deploy),))

    def give_back(self, command: GiveBack) -> None:
        assert self.order[command.subtask] == "living", "A-I16 and A-I22: given back once, after it was admitted"
        self.order[command.subtask] = "given back"
        seat = self.seats.pop(command.subtask)
        self.late += seat.up
        seat.gateway.step(Discarded())
        attempt = (command.subtask, command.attempt)
        blocked: dict[str, BlockedEvent] = {}
        if isinstance(command.snapshot, SubtaskSnapshot):
            assert command.snapshot.task_attempt == command.attempt
            blocked = {one.event.result.split_id: one for one in command.snapshot.blocked}
        for name in [name for name, holder in self.assigned.items() if holder == attempt]:
            del self.assigned[name]
            if name in blocked:
                self.pending[name] = blocked[name]
            else:
                self.unassigned.append(name)
        self.serve()

    def close_down(self, command: CloseDownGateways) -> None:
        living = {(subtask, seat.key.task_attempt) for subtask, seat in self.seats.items()}
        assert set(command.attempts) == living, "A-I7: all of them or none"
        for attempt in command.attempts:
            seat = self.seat(*attempt)
            self.send(seat, seat.gateway.step(CloseFor(command.checkpoint)))

    def take(self, number: int) -> None:
        sent = {}
        for subtask, seat in self.seats.items():
            assert seat.gateway.closed_for == number, "A-I3: closed before the snapshot"
            assert seat.channel.received >= seat.cut_up[1], "A-I1: what was sent before the cut is in it"
            seat.cut_down = (number, seat.channel.sent)
            sent[subtask, seat.key.task_attempt] = seat.channel.sent
        held = {name for seat in self.seats.values() for name in seat.restored}
        pending = {name: one for name, one in self.pending.items() if name not in held}
        cut = Cut(set(self.unassigned), set(self.finished), pending)
        self.step(SnapshotTaken(now=self.now, checkpoint=number, snapshot=cut, sent=sent))

    def trigger(self, command: TellTrigger) -> None:
        for seat in self.seats.values():
            if seat.cut_down[0] == command.checkpoint:
                got = seat.process.channel.received if seat.process is not None else 0
                assert got >= seat.cut_down[1], "A-I2: what was sent before the cut has arrived"
        self.control(command.subtask, command.attempt, TriggerCheckpoint(checkpoint=command.checkpoint))

    def complete(self, number: int) -> None:
        assert self.storing is not None
        cut, parts = self.storing.snapshot, [snapshot for _, snapshot in self.storing.parts]
        assert isinstance(cut, Cut)
        snapshots = tuple(snapshot for snapshot in parts if isinstance(snapshot, SubtaskSnapshot))
        everywhere = [*cut.unassigned, *cut.finished, *cut.pending]
        everywhere += [progress.split.split_id for part in snapshots for progress in part.progress]
        everywhere += [one.event.result.split_id for part in snapshots for one in part.blocked]
        assert sorted(everywhere) == sorted(SPLITS), "A-I1 and A-I21: each split is in exactly one place"
        for part in snapshots:
            for one in part.blocked:
                self.name(one.origin, one.event.result.split_id)
        self.completed.append((number, cut, snapshots))

    def check_open(self, number: int) -> None:
        """The gateways of those that are gone are dropped, whatever they hold (A-I11)."""
        gone = AttemptPhase.GONE
        living = [
            seat
            for seat in self.seats.values()
            if self.checkpoints.phase_of((seat.key.subtask, seat.key.task_attempt)) is not gone
        ]
        closed = [seat for seat in living if seat.gateway.closed_for == number]
        assert closed == [], "A-I17: opened before anybody is told"

    def hear(self, seat: Seat, envelope: Envelope) -> None:
        """Take one envelope from a subtask."""
        event = seat.channel.receive(envelope)
        words = (seat.key.subtask, seat.key.task_attempt)
        if event is None:
            return
        if envelope.sequence:
            seat.heard.append(event)
            assert seat.process is not None
            assert seat.heard == seat.process.said[: len(seat.heard)], "A-I5 and A-I15: in order, restored ones first"
            cut = seat.cut_up
            if cut[0] == self.checkpoints.running and envelope.sequence > cut[1]:
                assert seat.process.taken >= cut[0], "A-I4: nothing arrives between its cut and its snapshot"
        match event:
            case RequestSplit():
                seat.waiting = True
                self.serve()
            case SplitFinished():
                self.accept(event, envelope)
            case _:
                word = self.word_of(event, words, seat)
                if word is not None:
                    self.step(word)
        if envelope.sequence and self.seats.get(seat.key.subtask) is seat:
            self.step(DataReceived(now=self.now, subtask=words[0], attempt=words[1], number=seat.channel.received))

    def word_of(self, event: AnyEvent, who: Attempt, seat: Seat | None) -> SubtaskWord | None:
        """Translate a control event; `seat` is None where its attempt is gone."""
        says: dict[str, Any] = {"now": self.now, "subtask": who[0], "attempt": who[1]}
        word: SubtaskWord | None = None
        match event:
            case AckClose():
                if seat is not None and event.checkpoint == self.checkpoints.running:
                    seat.cut_up = (event.checkpoint, event.sent)
                word = CloseAcked(checkpoint=event.checkpoint, sent=event.sent, **says)
            case Open():
                word = GatewayOpened(checkpoint=event.checkpoint, **says)
            case AckCheckpoint():
                word = PartStored(checkpoint=event.checkpoint, part=event.part, snapshot=event.snapshot, **says)
            case DeclineCheckpoint():
                word = Declined(checkpoint=event.checkpoint, reason=event.reason, **says)
            case Heartbeat() if seat is not None:
                word = DataAcked(number=seat.channel.acked, **says)
            case Left():
                word = SubtaskLeft(**says)
                if seat is not None:
                    del self.seats[who[0]]
                    self.order[who[0]] = "left"
            case _:
                pass
        return word

    def accept(self, event: SplitFinished, envelope: Envelope) -> None:
        name = event.result.split_id
        mine = Origin(envelope.job_attempt, envelope.subtask, envelope.task_attempt, envelope.sequence)
        origin = event.origin or mine
        self.name(origin, name)
        if not self.origins.first(origin):
            return
        assert name not in self.finished, "A-I15 and A-I21: finished once"
        if event.origin is None:
            assert self.assigned.pop(name) == (envelope.subtask, envelope.task_attempt)
        else:
            del self.pending[name]
        self.finished.add(name)
        self.serve()

    def name(self, origin: Origin, split: str) -> None:
        """The origin of a finish is the same wherever it is kept, and nobody else's."""
        finish = (split, origin.job_attempt, origin.subtask, origin.task_attempt)
        assert self.named.setdefault(origin, split) == split, "A-I15: an origin names one event"
        assert self.origin_of.setdefault(finish, origin) == origin, "A-I15: an event has one origin"

    def serve(self) -> None:
        """Hand out what is there; what is recorded goes to the gateway, whether it is open or not (A-I19)."""
        for _, seat in sorted(self.seats.items()):
            if not seat.waiting:
                continue
            event: AnyEvent | None = None
            if self.unassigned:
                name = self.unassigned.pop(0)
                self.assigned[name] = (seat.key.subtask, seat.key.task_attempt)
                event = AssignSplits(splits=[wire_split(SPLITS[name])])
            elif len(self.finished) == len(SPLITS):
                event = NoMoreSplits()
            if event is not None:
                seat.waiting = False
                seat.said.append(event)
                self.send(seat, seat.gateway.step(Said(event)))

    # --- the network and the processes ----------------------------------------------------------------------

    def deliver_up(self, subtask: int) -> None:
        seat = self.seats[subtask]
        if seat.up:
            self.hear(seat, seat.up.popleft())

    def deliver_down(self, subtask: int) -> None:
        seat = self.seats[subtask]
        if not seat.down:
            return
        envelope = seat.down.popleft()
        if isinstance(envelope.event, Deploy):
            seat.process = Process(self.gateway, seat.key, envelope.event, seat.up)
            return
        process = seat.process
        assert process is not None
        event = process.channel.receive(envelope)
        if event is None:
            return
        if envelope.sequence:
            seat.heard_below.append(event)
            assert seat.heard_below == seat.said[: len(seat.heard_below)], "A-I5: in order"
            number, last = seat.cut_down
            if number == self.checkpoints.running and envelope.sequence > last:
                assert process.taken >= number, "A-I3: nothing arrives between the coordinator's cut and its own"
        process.hear(event)

    def beat(self, subtask: int) -> None:
        """Both say how far they are."""
        seat = self.seats[subtask]
        seat.down.append(seat.channel.send(Heartbeat(acked=seat.channel.received)))
        if seat.process is not None:
            seat.up.append(seat.process.channel.send(Heartbeat(acked=seat.process.channel.received)))

    def break_connection(self, subtask: int, *, overtaking: bool = False) -> None:
        """Lose everything on its way; both send again what was not acknowledged.

        Args:
            subtask: whose.
            overtaking: a control event is faster on the new connection than what is sent again.
        """
        seat = self.seats[subtask]
        if seat.process is None:
            self.crash(subtask)
            return
        seat.up.clear()
        seat.down.clear()
        seat.down.append(seat.channel.send(Heartbeat(acked=seat.channel.received)))
        seat.down.extend(seat.channel.unacked())
        if overtaking and seat.process.gateway.closed_for is not None:
            number, sent = seat.process.gateway.closed_for, seat.process.channel.sent
            seat.up.append(seat.process.channel.send(AckClose(checkpoint=number, sent=sent)))
        seat.up.extend(seat.process.channel.unacked())
        if seat.process.left:
            seat.up.append(seat.process.channel.send(Left()))
        who = (seat.key.subtask, seat.key.task_attempt)
        self.step(SubtaskReconnected(now=self.now, subtask=who[0], attempt=who[1]))

    def crash(self, subtask: int) -> None:
        attempt = self.seats[subtask].key.task_attempt
        self.step(SubtaskLost(now=self.now, subtask=subtask, attempt=attempt))

    def register(self, subtask: int) -> None:
        attempt, self.next_attempt = self.next_attempt, self.next_attempt + 1
        self.step(SubtaskRegistered(now=self.now, subtask=subtask, attempt=attempt))

    def hear_late(self) -> None:
        """An event of an attempt that is gone comes after all."""
        envelope = self.late.pop(0)
        if envelope.job_attempt != self.job_attempt:
            return
        word = self.word_of(envelope.event, (envelope.subtask, envelope.task_attempt), None)
        if word is not None:
            commands = self.checkpoints.step(word)
            assert any(isinstance(command, RejectWord) for command in commands), "A-I26: another attempt is rejected"

    def tick(self, seconds: float) -> None:
        self.now += seconds
        due = self.checkpoints.next_due
        if due is not None and due <= self.now:
            self.step(TimePassed(now=self.now))

    def settle_store(self, *, ok: bool) -> None:
        command = self.storing
        assert command is not None
        number = command.checkpoint
        kind = CheckpointStored(now=self.now, checkpoint=number)
        self.step(kind if ok else StoreFailed(now=self.now, checkpoint=number, reason="full"))
        self.storing = None

    # --- what must hold -------------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        phase = self.checkpoints.phase
        if self.checkpoints.running is None:
            closed = [seat for seat in self.seats.values() if seat.gateway.phase is not GatewayPhase.OPEN]
            assert closed == [], "A-I9: open whenever no checkpoint runs"
        elif phase is not CheckpointPhase.STORING:
            assert self.checkpoints.next_due is not None, "A-I28: every wait has an end"

    def exchange(self, subtask: int) -> None:
        """Deliver all that is on its way from and to a subtask, and what follows from it."""
        self.beat(subtask)
        seat = self.seats[subtask]
        while self.seats.get(subtask) is seat and (seat.up or seat.down):
            self.deliver_down(subtask)
            if self.seats.get(subtask) is seat:
                self.deliver_up(subtask)

    def turn(self, *, checkpoints: bool) -> None:
        """Let everybody do what there is to do, without a fault."""
        if not self.seats and len(self.finished) < len(SPLITS):
            self.register(0)
        for subtask in list(self.seats):
            process = self.seats[subtask].process
            if process is not None:
                process.go_on()
            self.exchange(subtask)
        if self.storing is not None:
            self.settle_store(ok=True)
        if checkpoints or self.checkpoints.running is not None:
            self.tick(1)

    def rest(self) -> None:
        """Without faults no checkpoint runs for ever, and both ends are open then."""
        for _ in range(PATIENCE):
            if self.checkpoints.running is None and not any(seat.up or seat.down for seat in self.seats.values()):
                break
            self.turn(checkpoints=False)
            self.check()
        assert self.checkpoints.running is None, "A-I28: it comes to an end"
        for seat in self.seats.values():
            gateway = seat.process.gateway if seat.process is not None else seat.gateway
            assert gateway.phase is GatewayPhase.OPEN, "A-I9: both ends are open"

    def one_more(self) -> None:
        """Without faults a checkpoint completes, unless a subtask that is done leaves in the middle of it."""
        if not self.seats:
            return
        before, aborted = len(self.completed), len(self.aborted)
        self.step(CheckpointAsked(now=self.now))
        self.rest()
        left = any("left" in reason for reason in self.aborted[aborted:])
        assert len(self.completed) == before + 1 or left, "liveness: it completes"

    def finish(self) -> None:
        """Liveness: once faults stop, checkpoints complete and every split is finished."""
        if self.broken:
            return  # something was found already; what follows from it would hide it
        self.rest()
        self.one_more()
        for _ in range(PATIENCE):
            if len(self.finished) == len(SPLITS):
                break
            self.turn(checkpoints=False)
            self.check()
        self.rest()
        assert self.finished == set(SPLITS), "A-I9 and A-I21: everything is finished at last"
