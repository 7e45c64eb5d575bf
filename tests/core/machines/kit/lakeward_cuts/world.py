"""One round that takes checkpoints, over any number of coordinators, launches and attempts.

Both machines are the real ones, and so are the channels. What they carry is a small round: splits that are handed
out, read, finished. Every completed checkpoint must hold each split exactly once, and whatever is restored from it must
come to the same end. The checks are named after the invariants of the protocol's page in the docs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase, ParticipantPhase
from lakeward.machines.checkpoints.gateway import (
    CloseFor,
    Gateway,
    GatewayCommand,
    GatewayPhase,
    MessageReceived,
    OpenFor,
    Origins,
    Pass,
)
from lakeward.machines.checkpoints.messages import (
    Abort,
    Admit,
    Attempt,
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
    OpenDownGateway,
    PartStored,
    RejectMessage,
    ReturnSplits,
    SendAborted,
    SendClose,
    SendComplete,
    SendTrigger,
    SnapshotTaken,
    StoreCheckpoint,
    StoreFailed,
    SubtaskEvent,
    SubtaskFinished,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TakeSnapshot,
    TimePassed,
)
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.checkpoints import BlockedEvent, Origin, SplitProgress, SubtaskSnapshot
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
    NoMoreSplits,
    Open,
    RequestSplit,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Collection

from lakeward_cuts.process import PATIENCE, POLICY, SPLITS, Cut, Peer, Process


class World:
    """One round over any number of coordinators, launches and attempts."""

    machine: type[CheckpointCoordinator] = CheckpointCoordinator
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
        self.peers: dict[int, Peer] = {}
        self.origins = Origins()
        self.storing: StoreCheckpoint | None = None
        self.assigned: dict[str, Attempt] = {}
        self.order = {}
        cut, parts = Cut(set(SPLITS), set(), {}), tuple[SubtaskSnapshot, ...]()
        if self.completed:
            _, cut, parts = self.completed[-1]
        self.finished = set(cut.finished)
        self.pending = dict(cut.pending) | {one.result.split_id: one for part in parts for one in part.blocked}
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
            case ReturnSplits():
                self.return_splits(command)
            case CloseDownGateways():
                self.close_down(command)
            case TakeSnapshot():
                self.take(command.checkpoint)
            case SendTrigger():
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
                self.send_command(command)

    def send_command(self, command: CheckpointsCommand) -> None:
        """Carry out what concerns one attempt alone."""
        match command:
            case SendClose():
                if command.checkpoint != self.numbers[-1]:
                    assert command.checkpoint > self.numbers[-1], "A-I6: numbers only grow"
                    self.numbers.append(command.checkpoint)
                self.control(command.subtask, command.attempt, Close(checkpoint=command.checkpoint))
            case SendComplete():
                self.control(command.subtask, command.attempt, CheckpointComplete(checkpoint=command.checkpoint))
            case SendAborted():
                self.control(command.subtask, command.attempt, CheckpointAborted(checkpoint=command.checkpoint))
            case OpenDownGateway():
                peer = self.peer(command.subtask, command.attempt)
                self.send(peer, peer.gateway.step(OpenFor(command.checkpoint)))
            case FailAttempt():
                peer = self.peer(command.subtask, command.attempt)
                assert peer.channel.acked < peer.cut_down[1], "A-I10: nobody else is failed over"
                self.failed_over.append(command.subtask)
                self.crash(command.subtask)
            case _:
                pass

    def peer(self, subtask: int, attempt: int) -> Peer:
        peer = self.peers[subtask]
        assert peer.key.task_attempt == attempt, "A-I11: nothing is meant for another attempt"
        return peer

    def control(self, subtask: int, attempt: int, event: AnyEvent) -> None:
        peer = self.peer(subtask, attempt)
        self.send(peer, peer.gateway.step(MessageReceived(event)))

    def send(self, peer: Peer, commands: Collection[GatewayCommand]) -> None:
        peer.down.extend(peer.channel.send(command.event) for command in commands if isinstance(command, Pass))

    def admit(self, command: Admit) -> None:
        assert self.order.get(command.subtask) != "living", "A-I16: the splits of the older one are returned first"
        self.order[command.subtask] = "living"
        key = ChannelKey("r", self.job_attempt, command.subtask, command.attempt)
        gateway = self.gateway(latest=command.latest, closed_for=command.closed_for)
        held = {name for peer in self.peers.values() for name in peer.restored}
        restored = sorted(self.pending.keys() - held)
        peer = Peer(key, Channel(key, "down"), gateway, restored=tuple(restored))
        self.peers[command.subtask] = peer
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
        self.send(peer, (Pass(deploy),))

    def return_splits(self, command: ReturnSplits) -> None:
        assert self.order[command.subtask] == "living", "A-I16 and A-I22: returned once, after it was admitted"
        self.order[command.subtask] = "returned"
        peer = self.peers.pop(command.subtask)
        self.late += peer.up
        attempt = (command.subtask, command.attempt)
        blocked: dict[str, BlockedEvent] = {}
        if isinstance(command.snapshot, SubtaskSnapshot):
            assert command.snapshot.task_attempt == command.attempt
            blocked = {one.result.split_id: one for one in command.snapshot.blocked}
        for name in [name for name, holder in self.assigned.items() if holder == attempt]:
            del self.assigned[name]
            if name in blocked:
                self.pending[name] = blocked[name]
            else:
                self.unassigned.append(name)
        self.serve()

    def close_down(self, command: CloseDownGateways) -> None:
        living = {(subtask, peer.key.task_attempt) for subtask, peer in self.peers.items()}
        assert set(command.attempts) == living, "A-I7: all of them or none"
        for attempt in command.attempts:
            peer = self.peer(*attempt)
            self.send(peer, peer.gateway.step(CloseFor(command.checkpoint)))

    def take(self, number: int) -> None:
        sent = {}
        for subtask, peer in self.peers.items():
            assert peer.gateway.closed_for == number, "A-I3: closed before the snapshot"
            assert peer.channel.received >= peer.cut_up[1], "A-I1: what was sent before the cut is in it"
            peer.cut_down = (number, peer.channel.sent)
            sent[subtask, peer.key.task_attempt] = peer.channel.sent
        held = {name for peer in self.peers.values() for name in peer.restored}
        pending = {name: one for name, one in self.pending.items() if name not in held}
        cut = Cut(set(self.unassigned), set(self.finished), pending)
        self.step(SnapshotTaken(now=self.now, checkpoint=number, snapshot=cut, sent=sent))

    def trigger(self, command: SendTrigger) -> None:
        for peer in self.peers.values():
            if peer.cut_down[0] == command.checkpoint:
                got = peer.process.channel.received if peer.process is not None else 0
                assert got >= peer.cut_down[1], "A-I2: what was sent before the cut has arrived"
        self.control(command.subtask, command.attempt, TriggerCheckpoint(checkpoint=command.checkpoint))

    def complete(self, number: int) -> None:
        assert self.storing is not None
        cut, parts = self.storing.snapshot, [snapshot for _, snapshot in self.storing.parts]
        assert isinstance(cut, Cut)
        snapshots = tuple(snapshot for snapshot in parts if isinstance(snapshot, SubtaskSnapshot))
        everywhere = [*cut.unassigned, *cut.finished, *cut.pending]
        everywhere += [progress.split.split_id for part in snapshots for progress in part.progress]
        everywhere += [one.result.split_id for part in snapshots for one in part.blocked]
        assert sorted(everywhere) == sorted(SPLITS), "A-I1 and A-I21: each split is in exactly one place"
        for part in snapshots:
            for one in part.blocked:
                self.name(one.origin, one.result.split_id)
        self.completed.append((number, cut, snapshots))

    def check_open(self, number: int) -> None:
        """The gateways of those that are gone are dropped, whatever they hold (A-I11)."""
        gone = ParticipantPhase.GONE
        living = [
            peer
            for peer in self.peers.values()
            if self.checkpoints.phase_of((peer.key.subtask, peer.key.task_attempt)) is not gone
        ]
        closed = [peer for peer in living if peer.gateway.closed_for == number]
        assert closed == [], "A-I17: opened before the end is sent"

    def receive(self, peer: Peer, envelope: Envelope) -> None:
        """Take one envelope from a subtask."""
        event = peer.channel.receive(envelope)
        sender = (peer.key.subtask, peer.key.task_attempt)
        if event is None:
            return
        if envelope.sequence:
            peer.received_events.append(event)
            assert peer.process is not None
            assert peer.received_events == peer.process.sent_events[: len(peer.received_events)], (
                "A-I5 and A-I15: in order, restored ones first"
            )
            cut = peer.cut_up
            if cut[0] == self.checkpoints.running and envelope.sequence > cut[1]:
                assert peer.process.taken >= cut[0], "A-I4: nothing arrives between its cut and its snapshot"
        match event:
            case RequestSplit():
                peer.waiting = True
                self.serve()
            case SplitFinished():
                self.accept(event, envelope)
            case _:
                message = self.message_of(event, sender, peer)
                if message is not None:
                    self.step(message)
        if envelope.sequence and self.peers.get(peer.key.subtask) is peer:
            self.step(DataReceived(now=self.now, subtask=sender[0], attempt=sender[1], number=peer.channel.received))

    def message_of(self, event: AnyEvent, who: Attempt, peer: Peer | None) -> SubtaskEvent | None:
        """Translate a control event; `peer` is None where its attempt is gone."""
        fields: dict[str, Any] = {"now": self.now, "subtask": who[0], "attempt": who[1]}
        message: SubtaskEvent | None = None
        match event:
            case AckClose():
                if peer is not None and event.checkpoint == self.checkpoints.running:
                    peer.cut_up = (event.checkpoint, event.sent)
                message = CloseAcked(checkpoint=event.checkpoint, sent=event.sent, **fields)
            case Open():
                message = GatewayOpened(checkpoint=event.checkpoint, **fields)
            case AckCheckpoint():
                message = PartStored(checkpoint=event.checkpoint, part=event.part, snapshot=event.snapshot, **fields)
            case DeclineCheckpoint():
                message = Declined(checkpoint=event.checkpoint, reason=event.reason, **fields)
            case Heartbeat() if peer is not None:
                message = DataAcked(number=peer.channel.acked, **fields)
            case SubtaskDone():
                message = SubtaskFinished(**fields)
                if peer is not None:
                    del self.peers[who[0]]
                    self.order[who[0]] = "finished"
            case _:
                pass
        return message

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
        for _, peer in sorted(self.peers.items()):
            if not peer.waiting:
                continue
            event: AnyEvent | None = None
            if self.unassigned:
                name = self.unassigned.pop(0)
                self.assigned[name] = (peer.key.subtask, peer.key.task_attempt)
                event = AssignSplits(splits=[SplitProgress.beginning(SPLITS[name])])
            elif len(self.finished) == len(SPLITS):
                event = NoMoreSplits()
            if event is not None:
                peer.waiting = False
                peer.sent_events.append(event)
                self.send(peer, peer.gateway.step(MessageReceived(event)))

    # --- the network and the processes ----------------------------------------------------------------------

    def deliver_up(self, subtask: int) -> None:
        peer = self.peers[subtask]
        if peer.up:
            self.receive(peer, peer.up.popleft())

    def deliver_down(self, subtask: int) -> None:
        peer = self.peers[subtask]
        if not peer.down:
            return
        envelope = peer.down.popleft()
        if isinstance(envelope.event, Deploy):
            peer.process = Process(self.gateway, peer.key, envelope.event, peer.up)
            return
        process = peer.process
        assert process is not None
        event = process.channel.receive(envelope)
        if event is None:
            return
        if envelope.sequence:
            peer.received_below.append(event)
            assert peer.received_below == peer.sent_events[: len(peer.received_below)], "A-I5: in order"
            number, last = peer.cut_down
            if number == self.checkpoints.running and envelope.sequence > last:
                assert process.taken >= number, "A-I3: nothing arrives between the coordinator's cut and its own"
        process.receive(event)

    def heartbeat(self, subtask: int) -> None:
        """Both acknowledge what they have received."""
        peer = self.peers[subtask]
        peer.down.append(peer.channel.send(Heartbeat(acked=peer.channel.received)))
        if peer.process is not None:
            peer.up.append(peer.process.channel.send(Heartbeat(acked=peer.process.channel.received)))

    def break_connection(self, subtask: int, *, overtaking: bool = False) -> None:
        """Lose everything on its way; both send again what was not acknowledged.

        Args:
            subtask: whose.
            overtaking: a control event is faster on the new connection than what is sent again.
        """
        peer = self.peers[subtask]
        if peer.process is None:
            self.crash(subtask)
            return
        peer.up.clear()
        peer.down.clear()
        peer.down.append(peer.channel.send(Heartbeat(acked=peer.channel.received)))
        peer.down.extend(peer.channel.unacked())
        if overtaking and peer.process.gateway.closed_for is not None:
            number, sent = peer.process.gateway.closed_for, peer.process.channel.sent
            peer.up.append(peer.process.channel.send(AckClose(checkpoint=number, sent=sent)))
        peer.up.extend(peer.process.channel.unacked())
        if peer.process.done_sent:
            peer.up.append(peer.process.channel.send(SubtaskDone()))
        who = (peer.key.subtask, peer.key.task_attempt)
        self.step(SubtaskReconnected(now=self.now, subtask=who[0], attempt=who[1]))

    def crash(self, subtask: int) -> None:
        attempt = self.peers[subtask].key.task_attempt
        self.step(SubtaskLost(now=self.now, subtask=subtask, attempt=attempt))

    def register(self, subtask: int) -> None:
        attempt, self.next_attempt = self.next_attempt, self.next_attempt + 1
        self.step(SubtaskRegistered(now=self.now, subtask=subtask, attempt=attempt))

    def receive_late(self) -> None:
        """An event of an attempt that is gone comes after all."""
        envelope = self.late.pop(0)
        if envelope.job_attempt != self.job_attempt:
            return
        message = self.message_of(envelope.event, (envelope.subtask, envelope.task_attempt), None)
        if message is not None:
            commands = self.checkpoints.step(message)
            assert any(isinstance(command, RejectMessage) for command in commands), "A-I26: another attempt is rejected"

    def tick(self, seconds: float) -> None:
        self.now += seconds
        due = self.checkpoints.next_due
        if due is not None and due <= self.now:
            self.step(TimePassed(now=self.now))

    def start_checkpoint(self) -> None:
        """Let time pass until the next checkpoint is due; one that runs goes on."""
        due = self.checkpoints.next_due
        if self.checkpoints.phase is CheckpointPhase.IDLE and due is not None:
            self.now = max(self.now, due)
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
            closed = [peer for peer in self.peers.values() if peer.gateway.phase is not GatewayPhase.OPEN]
            assert closed == [], "A-I9: open whenever no checkpoint runs"
        elif phase is not CheckpointPhase.STORING:
            assert self.checkpoints.next_due is not None, "A-I28: every wait has an end"

    def exchange(self, subtask: int) -> None:
        """Deliver all that is on its way from and to a subtask, and what follows from it."""
        self.heartbeat(subtask)
        peer = self.peers[subtask]
        while self.peers.get(subtask) is peer and (peer.up or peer.down):
            self.deliver_down(subtask)
            if self.peers.get(subtask) is peer:
                self.deliver_up(subtask)

    def turn(self, *, checkpoints: bool) -> None:
        """Let everybody do what there is to do, without a fault."""
        if not self.peers and len(self.finished) < len(SPLITS):
            self.register(0)
        for subtask in list(self.peers):
            process = self.peers[subtask].process
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
            if self.checkpoints.running is None and not any(peer.up or peer.down for peer in self.peers.values()):
                break
            self.turn(checkpoints=False)
            self.check()
        assert self.checkpoints.running is None, "A-I28: it comes to an end"
        for peer in self.peers.values():
            gateway = peer.process.gateway if peer.process is not None else peer.gateway
            assert gateway.phase is GatewayPhase.OPEN, "A-I9: both ends are open"

    def one_more(self) -> None:
        """Without faults a checkpoint completes, unless a subtask that is done leaves in the middle of it."""
        if not self.peers:
            return
        before, aborted = len(self.completed), len(self.aborted)
        self.start_checkpoint()
        self.rest()
        aborted = any("finished before" in reason for reason in self.aborted[aborted:])
        assert len(self.completed) == before + 1 or aborted, "liveness: it completes"

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
