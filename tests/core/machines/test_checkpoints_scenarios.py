"""The scenarios of the checkpoint protocol, by their numbers in the table of docs/explanation/checkpoints.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import IllegalEventError, ProtocolError, UsageError
from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase, ParticipantPhase
from lakeward.machines.checkpoints.gateway import GatewayPhase
from lakeward.machines.checkpoints.messages import (
    Abort,
    Admit,
    CheckpointsCommand,
    CheckpointsEvent,
    CheckpointStored,
    CloseAcked,
    CloseDownGateways,
    Complete,
    DataAcked,
    DataReceived,
    Declined,
    DiscardCheckpoint,
    DiscardPart,
    FailAttempt,
    FailRound,
    GatewayOpened,
    LaunchEnded,
    OpenDownGateway,
    PartStored,
    RejectMessage,
    ReturnSplits,
    RoundEnded,
    SendAborted,
    SendClose,
    SendComplete,
    SendTrigger,
    SnapshotFailed,
    SnapshotTaken,
    StoreCheckpoint,
    StoreFailed,
    SubtaskFinished,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TakeSnapshot,
    TimePassed,
)
from lakeward.machines.checkpoints.state import PARTICIPATING
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import NOT_READY, RequestSplit
from lakeward.model.settings import CheckpointSettings
from lakeward_cuts.process import POLICY, SPLITS
from lakeward_cuts.scripts import LAST, last_split, process, triggered
from lakeward_cuts.world import World
from lakeward_machine_stories import checkpoints as stories

if TYPE_CHECKING:
    from collections.abc import Callable

Commands = tuple[CheckpointsCommand, ...]
PATIENT = CheckpointSettings(interval_s=30, timeout_s=10, pause_s=5, tolerated=1)
PHASES = (
    CheckpointPhase.CLOSING,
    CheckpointPhase.CUTTING,
    CheckpointPhase.DRAINING,
    CheckpointPhase.COLLECTING,
)


class Driven:
    """A machine with short ways to give it events: subtask s is in its attempt s + 1 unless another is named."""

    def __init__(
        self, subtasks: int = 2, policy: CheckpointSettings = PATIENT, latest: int = 0, first_due: float = 0
    ) -> None:
        self.machine = CheckpointCoordinator(policy, now=first_due - policy.interval_s, latest=latest)
        self.now = 0.0
        self.up = self.down = 0
        for subtask in range(subtasks):
            self.send(SubtaskRegistered, subtask)

    def step(self, event: CheckpointsEvent) -> Commands:
        return self.machine.step(event)

    def send(
        self, kind: Callable[..., CheckpointsEvent], subtask: int, attempt: int | None = None, **more: object
    ) -> Commands:
        number = subtask + 1 if attempt is None else attempt
        return self.step(kind(now=self.now, subtask=subtask, attempt=number, **more))

    def due(self) -> float | None:
        return self.machine.next_due

    def start(self) -> Commands:
        """Let time pass until the next checkpoint is due; one that runs goes on."""
        due = self.due() if self.machine.phase is CheckpointPhase.IDLE else None
        self.now = self.now if due is None else max(self.now, due)
        return self.step(TimePassed(now=self.now))

    def close(self, subtask: int, sent: int = 0) -> Commands:
        return self.send(CloseAcked, subtask, checkpoint=self.machine.latest, sent=sent)

    def snap(self, **sent: int) -> Commands:
        """Take the coordinator's snapshot; `s0=3`: three data events were sent to subtask 0."""
        numbers = {(subtask, subtask + 1): sent.get(f"s{subtask}", 0) for subtask in range(4)}
        number = self.machine.latest
        return self.step(SnapshotTaken(now=self.now, checkpoint=number, snapshot="coordinator", sent=numbers))

    def store_part(self, subtask: int, snapshot: object = None) -> Commands:
        number = self.machine.latest
        return self.send(PartStored, subtask, checkpoint=number, part=f"part {subtask}", snapshot=snapshot)

    def until(self, phase: CheckpointPhase) -> Driven:
        """Run a checkpoint up to a phase; in CUTTING and DRAINING subtask 0 is awaited."""
        self.start()
        self.up, self.down = self.up + 2, self.down + 3
        if phase is CheckpointPhase.CLOSING:
            return self
        self.close(0, sent=self.up)
        self.close(1)
        if phase is CheckpointPhase.CUTTING:
            return self
        self.send(DataReceived, 0, number=self.up)
        self.snap(s0=self.down)
        if phase is CheckpointPhase.DRAINING:
            return self
        self.send(DataAcked, 0, number=self.down)
        if phase is CheckpointPhase.STORING:
            self.store_part(0, "old")
            self.store_part(1, "old")
        return self

    def complete(self) -> Driven:
        self.until(CheckpointPhase.STORING)
        self.step(CheckpointStored(now=self.now, checkpoint=self.machine.latest))
        return self


def kinds(commands: Commands) -> list[str]:
    return [type(command).__name__ for command in commands]


def aborts(commands: Commands) -> list[Abort]:
    return [command for command in commands if isinstance(command, Abort)]


# --- the coordinator's gateways ---------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["opened", "stored"])
def test_scenario_5_a_subtask_that_took_its_snapshot_opens_its_own_gateway_alone(message: str) -> None:
    driven = Driven().until(CheckpointPhase.COLLECTING)
    commands = driven.send(GatewayOpened, 0, checkpoint=1) if message == "opened" else driven.store_part(0)
    assert commands == (OpenDownGateway(0, 1, 1),)
    assert driven.machine.phase_of((1, 2)) is ParticipantPhase.TRIGGERED


def test_scenario_6_all_gateways_are_open_before_a_checkpoint_is_complete() -> None:
    driven = Driven().until(CheckpointPhase.COLLECTING)
    commands = [*driven.store_part(0), *driven.store_part(1)]
    commands += driven.step(CheckpointStored(now=0, checkpoint=1))
    opened = [command for command in commands if isinstance(command, OpenDownGateway)]
    assert {command.subtask for command in opened} == {0, 1}
    assert commands[-3:] == [SendComplete(0, 1, 1), SendComplete(1, 2, 1), Complete(1)]


@pytest.mark.parametrize("phase", PHASES[2:])
def test_scenarios_7_and_8_an_abort_opens_what_is_closed_on_both_sides(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    driven.now = 10
    commands = driven.step(TimePassed(now=10))
    assert {command.subtask for command in commands if isinstance(command, OpenDownGateway)} == {0, 1}
    assert {command.subtask for command in commands if isinstance(command, SendAborted)} == {0, 1}
    assert driven.machine.running is None


def test_scenario_9_messages_about_an_aborted_checkpoint_are_harmless_and_its_parts_are_deleted() -> None:
    driven = Driven().until(CheckpointPhase.COLLECTING)
    driven.send(Declined, 0, checkpoint=1, reason="full")
    assert driven.send(GatewayOpened, 1, checkpoint=1) == ()
    assert driven.send(CloseAcked, 1, checkpoint=1, sent=0) == ()
    assert driven.send(Declined, 1, checkpoint=1, reason="full") == ()
    late = driven.send(PartStored, 1, checkpoint=1, part="late", snapshot=None)
    assert late == (DiscardPart(1, "late"),)
    driven.start()
    assert driven.send(PartStored, 1, checkpoint=1, part="late", snapshot=None) == (DiscardPart(1, "late"),)
    assert driven.machine.phase is CheckpointPhase.CLOSING


def test_scenario_10_messages_about_a_checkpoint_that_never_was_are_illegal() -> None:
    messages: tuple[tuple[Callable[..., CheckpointsEvent], dict[str, object]], ...] = (
        (CloseAcked, {"sent": 0}),
        (GatewayOpened, {}),
        (PartStored, {"part": 0, "snapshot": 0}),
        (Declined, {"reason": ""}),
    )
    for message, more in messages:
        driven = Driven().until(CheckpointPhase.COLLECTING)
        with pytest.raises(IllegalEventError):
            driven.step(message(now=0, subtask=0, attempt=1, checkpoint=2, **more))


def test_scenario_11_a_repeated_message_opens_once_and_counts_once() -> None:
    driven = Driven().until(CheckpointPhase.COLLECTING)
    assert driven.send(GatewayOpened, 0, checkpoint=1) == (OpenDownGateway(0, 1, 1),)
    assert driven.send(GatewayOpened, 0, checkpoint=1) == ()
    driven.store_part(0)
    assert driven.store_part(0) == ()
    assert driven.step(SubtaskReconnected(now=0, subtask=0, attempt=1)) == ()


def test_a_repeated_part_stored_never_deletes_the_part() -> None:
    """Not while it is being stored with the others, and not when it is part of a completed checkpoint."""
    driven = Driven().until(CheckpointPhase.STORING)
    assert driven.store_part(0) == ()
    driven.send(SubtaskLost, 0)
    assert kinds(driven.store_part(0)) == ["RejectMessage"]
    driven.step(CheckpointStored(now=0, checkpoint=1))
    assert driven.store_part(1) == ()


@pytest.mark.parametrize("latest", [0, 41])
def test_scenario_12_numbers_only_grow_also_after_a_restore_and_an_abort(latest: int) -> None:
    driven = Driven(latest=latest)
    seen = []
    for _ in range(3):
        seen += [one.checkpoint for one in driven.start() if isinstance(one, SendClose)][:1]
        driven.step(LaunchEnded(now=0))
        driven.send(SubtaskRegistered, 0, attempt=len(seen) + 5)
    assert seen == [latest + 1, latest + 2, latest + 3]


# --- the coordinator's snapshot ---------------------------------------------------------------------------------


def test_scenarios_19_and_20_nothing_comes_between_the_cut_and_the_snapshot() -> None:
    driven = Driven().until(CheckpointPhase.CUTTING)
    commands = driven.send(DataReceived, 0, number=2)
    assert commands == (CloseDownGateways(1, ((0, 1), (1, 2))), TakeSnapshot(1))
    for event in (TimePassed(now=99), RoundEnded(now=0), LaunchEnded(now=0)):
        with pytest.raises(IllegalEventError, match="snapping"):
            driven.step(event)
    assert kinds(driven.snap()) == ["SendTrigger", "SendTrigger"]


def test_scenario_21_a_snapshot_after_the_abort_is_illegal_and_closes_nothing() -> None:
    driven = Driven().until(CheckpointPhase.DRAINING)
    driven.send(SubtaskLost, 1)
    with pytest.raises(IllegalEventError):
        driven.snap()
    assert driven.machine.running is None


def test_scenarios_22_and_23_a_snapshot_that_fails_costs_this_checkpoint_alone() -> None:
    driven = Driven().until(CheckpointPhase.CUTTING)
    driven.send(DataReceived, 0, number=2)
    commands = driven.step(SnapshotFailed(now=0, checkpoint=1, reason="broken"))
    assert kinds(commands) == ["OpenDownGateway", "SendAborted", "OpenDownGateway", "SendAborted", "Abort"]
    assert driven.machine.phase is CheckpointPhase.IDLE


@pytest.mark.parametrize("waiting", [0, 1, 3])
def test_scenario_24_it_triggers_when_everybody_has_what_was_sent_before_the_cut(waiting: int) -> None:
    driven = Driven(3)
    driven.start()
    for subtask in range(3):
        driven.close(subtask)
    commands = driven.snap(**{f"s{subtask}": 4 for subtask in range(waiting)})
    for subtask in range(waiting):
        assert commands == ()
        assert driven.send(DataAcked, subtask, number=3) == ()
        commands = driven.send(DataAcked, subtask, number=4)
    assert commands == tuple(SendTrigger(subtask, subtask + 1, 1) for subtask in range(3))


def test_scenarios_25_and_49_a_subtask_lost_before_it_had_everything_fails_the_checkpoint_once() -> None:
    driven = Driven().until(CheckpointPhase.DRAINING)
    commands = driven.send(SubtaskLost, 0)
    assert kinds(commands) == ["OpenDownGateway", "SendAborted", "Abort", "ReturnSplits"]
    assert driven.step(TimePassed(now=10)) == ()


def test_scenarios_27_and_42_a_subtask_lost_after_the_trigger_fails_the_checkpoint() -> None:
    for send in (lambda d: (), lambda d: d.send(GatewayOpened, 0, checkpoint=1), lambda d: d.store_part(0)):
        driven = Driven().until(CheckpointPhase.COLLECTING)
        send(driven)
        commands = driven.send(SubtaskLost, 0)
        assert kinds(commands) == ["OpenDownGateway", "SendAborted", "Abort", "ReturnSplits"]


def test_scenario_30_the_end_of_a_launch_returns_all_splits_and_ends_the_checkpoint() -> None:
    for phase in PHASES:
        driven = Driven().until(phase)
        assert kinds(driven.step(LaunchEnded(now=0))) == ["Abort", "ReturnSplits", "ReturnSplits"]
        assert driven.due() is None


def test_scenario_31_one_failure_too_many_in_a_row_is_reported_once() -> None:
    driven = Driven()
    failed = []
    for number in range(1, 7):
        driven.start()
        commands = driven.send(Declined, 0, checkpoint=number, reason="full")
        failed.append(any(isinstance(command, FailRound) for command in commands))
    assert failed == [False, True, False, True, False, True]


def test_a_completed_checkpoint_starts_the_count_anew_and_lost_subtasks_do_not_count() -> None:
    driven = Driven()
    driven.start()
    driven.send(Declined, 0, checkpoint=1, reason="full")
    assert driven.machine.failures == 1
    driven.complete()
    assert driven.machine.failures == 0
    driven.start()
    driven.send(SubtaskLost, 0)
    assert driven.machine.failures == 0


def test_scenario_32_splits_are_returned_before_the_next_attempt_is_admitted() -> None:
    driven = Driven()
    assert driven.send(SubtaskRegistered, 0, attempt=7) == (ReturnSplits(0, 1, None, None), Admit(0, 7, 0, None))
    driven.step(LaunchEnded(now=0))
    assert driven.send(SubtaskRegistered, 0, attempt=8) == (Admit(0, 8, 0, None),)
    assert driven.send(SubtaskLost, 0, attempt=7) == ()


def test_scenario_33_all_gateways_of_living_subtasks_close_together() -> None:
    driven = Driven(3)
    driven.send(SubtaskFinished, 1)
    driven.start()
    driven.close(0)
    assert driven.close(2)[0] == CloseDownGateways(1, ((0, 1), (2, 3)))


# --- both directions --------------------------------------------------------------------------------------------


def test_scenarios_34_to_36_no_snapshot_before_all_gateways_are_closed_and_empty() -> None:
    driven = Driven()
    assert driven.start() == (SendClose(0, 1, 1), SendClose(1, 2, 1))
    assert driven.close(0, sent=2) == ()
    assert driven.close(1) == ()
    assert driven.send(DataReceived, 0, number=1) == ()
    assert kinds(driven.send(DataReceived, 0, number=2)) == ["CloseDownGateways", "TakeSnapshot"]


def test_an_end_of_the_gateway_is_believed_once() -> None:
    driven = Driven()
    driven.start()
    driven.close(0, sent=2)
    assert driven.close(0, sent=2) == ()
    with pytest.raises(IllegalEventError):
        driven.close(0, sent=3)


@pytest.mark.parametrize("phase", PHASES)
def test_scenario_37_whatever_is_missing_the_deadline_opens_both_sides(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    assert driven.machine.phase is phase
    assert driven.due() == 10
    assert driven.step(TimePassed(now=9)) == ()
    commands = driven.step(TimePassed(now=10))
    assert [one.subtask for one in commands if isinstance(one, SendAborted)] == [0, 1]
    assert phase.value in aborts(commands)[0].reason


def test_scenario_38_a_subtask_that_does_not_live_is_not_waited_for() -> None:
    driven = Driven(3)
    driven.send(SubtaskLost, 1)
    assert driven.start() == (SendClose(0, 1, 1), SendClose(2, 3, 1))


def test_nothing_is_due_while_nobody_lives() -> None:
    driven = Driven(0)
    assert driven.due() is None
    assert driven.start() == ()
    driven.send(SubtaskRegistered, 0)
    assert driven.due() == 0
    assert driven.step(TimePassed(now=0)) == (SendClose(0, 1, 1),)


@pytest.mark.parametrize("phase", PHASES)
def test_scenario_39_a_subtask_that_is_done_is_in_the_coordinators_part(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    if phase is CheckpointPhase.CLOSING:
        driven.close(1)
    commands = driven.send(SubtaskFinished, 0)
    if phase is CheckpointPhase.COLLECTING:
        commands = driven.store_part(1)
        assert commands[-1] == StoreCheckpoint(1, "coordinator", (("part 1", None),))
    else:
        assert kinds(commands)[-1] == ("SendTrigger" if phase is CheckpointPhase.DRAINING else "TakeSnapshot")


def test_a_subtask_that_sent_something_after_its_snapshot_may_not_finish_without_its_part() -> None:
    driven = Driven().until(CheckpointPhase.COLLECTING)
    driven.send(GatewayOpened, 0, checkpoint=1)
    assert "finished before its part was stored" in aborts(driven.send(SubtaskFinished, 0))[0].reason
    driven = Driven().until(CheckpointPhase.COLLECTING)
    driven.store_part(0, "kept")
    assert driven.send(SubtaskFinished, 0) == ()
    stored = driven.store_part(1)[-1]
    assert isinstance(stored, StoreCheckpoint)
    assert stored.parts[0] == ("part 0", "kept")


@pytest.mark.parametrize("phase", PHASES[:3])
def test_scenarios_40_and_41_a_subtask_lost_between_close_and_snapshot_fails_the_checkpoint(
    phase: CheckpointPhase,
) -> None:
    driven = Driven().until(phase)
    commands = driven.send(SubtaskLost, 0)
    assert "lost" in aborts(commands)[0].reason
    assert [one.subtask for one in commands if isinstance(one, SendAborted)] == [1]
    assert commands[-1] == ReturnSplits(0, 1, None, None)


@pytest.mark.parametrize("phase", PHASES[:2])
def test_one_that_registers_before_the_cut_starts_closed_and_is_part_of_it(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    assert driven.send(SubtaskRegistered, 2) == (Admit(2, 3, 1, 1),)
    if phase is CheckpointPhase.CLOSING:
        driven.close(0)
        driven.close(1)
    else:
        driven.send(DataReceived, 0, number=2)
    assert SendTrigger(2, 3, 1) in driven.snap()


@pytest.mark.parametrize("phase", [*PHASES[2:], CheckpointPhase.STORING])
def test_one_that_registers_after_the_cut_starts_open_and_is_not_in_it(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    assert driven.send(SubtaskRegistered, 2) == (Admit(2, 3, 1, None),)
    driven.send(DataAcked, 0, number=3)
    assert driven.machine.phase_of((2, 3)) is ParticipantPhase.NOT_PARTICIPATING
    if phase is not CheckpointPhase.STORING:
        driven.store_part(0)
        assert kinds(driven.store_part(1))[-1] == "StoreCheckpoint"


def resume(old: World) -> World:
    """Restore another coordinator from the newest checkpoint."""
    old.restore()
    return old


def with_blocked_finishes(subtasks: int) -> World:
    """A checkpoint is complete; each of its subtasks finished a split while its gateway was closed."""
    world = World()
    for subtask in range(subtasks):
        world.register(subtask)
        world.exchange(subtask)
        process(world, subtask).request()
        world.exchange(subtask)
    world.start_checkpoint()
    for subtask in range(subtasks):
        world.deliver_down(subtask)
        process(world, subtask).finish()
        assert len(process(world, subtask).gateway.held) == 1
    for _ in range(4):
        for subtask in range(subtasks):
            world.exchange(subtask)
            for _ in process(world, subtask).writing[:]:
                process(world, subtask).stored()
    world.settle_store(ok=True)
    assert sum(len(part.blocked) for part in world.completed[-1][2]) == subtasks
    return world


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 2), (2, 3), (3, 1)])
def test_scenarios_43_and_44_blocked_events_are_sent_again_first_and_once_whoever_is_there(
    before: int, after: int
) -> None:
    """The world checks each event's place and origin; the first subtask to register sends the finishes of all."""
    world = resume(with_blocked_finishes(before))
    assert len(world.pending) == before
    assert world.finished == set()
    for subtask in range(after):
        world.register(subtask)
        world.exchange(subtask)
    assert len(world.finished) == before
    world.finish()


def test_a_restored_event_that_is_blocked_again_keeps_its_origin_over_a_second_restore() -> None:
    world = resume(with_blocked_finishes(2))
    origins = {one.origin for one in world.pending.values()}
    world.register(0)
    world.start_checkpoint()
    world.register(1)
    world.crash(0)
    world.register(0)
    world.start_checkpoint()
    world.rest()
    kept = {one.origin for part in world.completed[-1][2] for one in part.blocked}
    assert kept <= origins
    resume(world)
    world.finish()


def split_returned(world: World) -> None:
    """The last split is returned from subtask 0, and goes to subtask 1, which waits."""
    world.unassigned.append(LAST)
    del world.assigned[LAST]
    process(world, 0).work.clear()
    world.serve()
    assert world.assigned[LAST][0] == 1


def test_scenario_45_an_abort_sends_what_both_sides_held_in_order() -> None:
    world = triggered(World)
    split_returned(world)
    for _ in range(2):
        process(world, 0).request()
    held = (len(process(world, 0).gateway.held), len(world.peers[1].gateway.held))
    assert held == (2, 1)
    world.tick(POLICY.timeout_s)
    assert world.aborted
    for subtask in (0, 1):
        world.exchange(subtask)
    assert process(world, 1).work == [LAST]
    world.finish()


def test_scenario_29_what_was_held_for_an_attempt_that_is_gone_does_not_reach_the_next_one() -> None:
    """The split is returned and read once; the next attempt's gateway holds nothing."""
    world = triggered(World)
    split_returned(world)
    assert world.peers[1].gateway.held != ()
    world.crash(1)
    world.register(1)
    assert world.peers[1].gateway.held == ()
    world.exchange(1)
    assert process(world, 1).work == []
    world.finish()


def test_scenario_47_an_abort_while_closing_reaches_every_subtask() -> None:
    driven = Driven(3)
    driven.start()
    driven.close(1)
    commands = driven.send(Declined, 1, checkpoint=1, reason="no")
    assert [one.subtask for one in commands if isinstance(one, SendAborted)] == [0, 1, 2]


# --- transport --------------------------------------------------------------------------------------------------


def test_scenario_48_a_living_subtask_that_never_acknowledges_is_failed_over_and_nobody_else() -> None:
    driven = Driven().until(CheckpointPhase.DRAINING)
    driven.send(DataAcked, 0, number=2)
    commands = driven.step(TimePassed(now=10))
    assert [one.subtask for one in commands if isinstance(one, FailAttempt)] == [0]
    assert kinds(commands).index("Abort") < kinds(commands).index("FailAttempt")
    assert driven.machine.phase_of((0, 1)) is ParticipantPhase.NOT_PARTICIPATING
    assert kinds(driven.send(SubtaskLost, 0)) == ["ReturnSplits"]


def test_scenario_50_a_lost_acknowledgement_of_what_arrived_has_no_effect_twice() -> None:
    """The split arrived and is being read; its reader is failed over, and it is finished once."""
    world = World()
    for subtask in (0, 1):
        world.register(subtask)
        world.exchange(subtask)
    process(world, 0).request()
    world.deliver_up(0)
    while world.peers[0].down:
        world.deliver_down(0)
    world.peers[0].up.clear()
    assert process(world, 0).work
    world.start_checkpoint()
    for subtask in (0, 1):
        while world.peers[subtask].down:
            world.deliver_down(subtask)
        process(world, subtask).send(RequestSplit())
        while world.peers[subtask].up:
            world.deliver_up(subtask)
    assert world.checkpoints.phase is CheckpointPhase.DRAINING
    world.tick(POLICY.timeout_s)
    assert world.failed_over == [0]
    world.finish()


def test_scenario_51_an_acknowledgement_may_be_late_over_several_checkpoints() -> None:
    driven = Driven()
    for number in (1, 2):
        driven.until(CheckpointPhase.DRAINING)
        driven.send(Declined, 1, checkpoint=number, reason="no")
    driven.until(CheckpointPhase.DRAINING)
    assert driven.send(DataAcked, 0, number=3) == ()
    assert driven.send(DataAcked, 0, number=6) == ()
    assert kinds(driven.send(DataAcked, 0, number=9)) == ["SendTrigger", "SendTrigger"]


@pytest.mark.parametrize("phase", PHASES)
def test_scenario_52_messages_of_another_attempt_are_rejected(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    driven.send(SubtaskRegistered, 0, attempt=9)
    driven.start()
    messages: dict[Callable[..., CheckpointsEvent], dict[str, object]] = {
        CloseAcked: {"checkpoint": 2, "sent": 0},
        GatewayOpened: {"checkpoint": 2},
        DataReceived: {"number": 9},
        DataAcked: {"number": 9},
        SubtaskFinished: {},
        SubtaskReconnected: {},
    }
    for message, more in messages.items():
        commands = driven.step(message(now=0, subtask=0, attempt=1, **more))
        assert commands == (RejectMessage(0, 1, "attempt 1 of subtask 0 was lost or replaced"),)
    commands = driven.send(PartStored, 0, checkpoint=2, part="p", snapshot="s")
    assert kinds(commands) == ["DiscardPart", "RejectMessage"]
    assert driven.machine.phase_of((0, 9)) is ParticipantPhase.CLOSE_SENT


def test_scenario_53_a_gap_in_the_numbers_is_an_error_and_a_duplicate_is_dropped() -> None:
    key = ChannelKey("r", 1, 0, 1)
    sender, receiver = Channel(key, "up"), Channel(key, "down")
    first, second = sender.send(RequestSplit()), sender.send(RequestSplit())
    with pytest.raises(ProtocolError, match="expected data event 1, found 2"):
        receiver.receive(second)
    assert receiver.receive(first) == RequestSplit()
    assert receiver.receive(first) is None
    assert receiver.receive(second) == RequestSplit()


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_broken_connection_may_have_lost_is_sent_again(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    expected = {CheckpointPhase.CLOSING: (SendClose(0, 1, 1),), CheckpointPhase.COLLECTING: (SendTrigger(0, 1, 1),)}
    assert driven.send(SubtaskReconnected, 0) == expected.get(phase, ())


def test_after_the_end_of_a_checkpoint_its_end_is_sent_again() -> None:
    driven = Driven().complete()
    assert driven.send(SubtaskReconnected, 0) == (SendComplete(0, 1, 1),)
    driven.start()
    driven.send(Declined, 0, checkpoint=2, reason="no")
    assert driven.send(SubtaskReconnected, 0) == (SendAborted(0, 1, 2),)
    assert Driven().send(SubtaskReconnected, 0) == ()


# --- end to end -------------------------------------------------------------------------------------------------


def some_turns(world: World, turns: int) -> None:
    for _ in range(turns):
        world.turn(checkpoints=True)
        world.check()


@pytest.mark.parametrize("turns", range(1, 20, 2))
def test_scenarios_54_and_57_a_subtask_fails_at_any_time_and_every_split_is_finished_once(turns: int) -> None:
    world = World()
    world.register(0)
    world.register(1)
    some_turns(world, turns)
    world.crash(0) if 0 in world.peers else None
    world.register(0)
    world.finish()


def test_scenarios_55_and_64_what_is_sent_between_both_snapshots_waits_and_is_in_neither() -> None:
    """A split is returned after the cut and goes to a subtask that has not taken its snapshot."""
    world = last_split(World)
    world.start_checkpoint()
    while world.checkpoints.phase is not CheckpointPhase.COLLECTING:
        for subtask in (0, 1):
            world.heartbeat(subtask)
            world.deliver_down(subtask)
            world.deliver_up(subtask)
    split_returned(world)
    assert world.peers[1].gateway.held != ()
    assert world.peers[1].gateway.phase is GatewayPhase.CLOSED
    world.exchange(1)
    assert process(world, 1).work == [LAST]
    assert process(world, 1).writing[0][1].progress == ()


@pytest.mark.parametrize("phase", [*PHASES, CheckpointPhase.STORING])
def test_scenario_61_the_coordinator_dies_in_any_phase(phase: CheckpointPhase) -> None:
    """The round is restored from the checkpoint before, whatever was on its way."""
    world = World()
    world.register(0)
    world.register(1)
    some_turns(world, 2)
    world.one_more()
    assert len(world.completed) == 1
    process(world, 0).go_on()
    world.start_checkpoint()
    world.deliver_down(0)
    world.break_connection(0, overtaking=True)
    for _ in range(400):
        if world.checkpoints.phase is phase:
            break
        one_delivery(world, store=phase is CheckpointPhase.STORING)
    assert world.checkpoints.phase is phase
    world.restore()
    assert world.finished == world.completed[-1][1].finished
    world.finish()
    assert world.finished == set(SPLITS)


def one_delivery(world: World, *, store: bool) -> None:
    """Deliver one envelope, of subtask 1 where there is one."""
    for subtask in (1, 0):
        peer, writer = world.peers[subtask], process(world, subtask)
        if peer.down:
            world.deliver_down(subtask)
            return
        if peer.up:
            world.deliver_up(subtask)
            return
        if store and writer.writing:
            writer.stored()
            return
    world.heartbeat(0)
    world.heartbeat(1)


# --- whose splits come back, and how far ------------------------------------------------------------------------


def test_scenarios_62_and_65_splits_of_a_lost_attempt_are_returned_with_its_newest_completed_part() -> None:
    driven = Driven().complete()
    driven.until(CheckpointPhase.COLLECTING)
    driven.store_part(0, "newer")
    driven.store_part(1, "newer")
    driven.step(CheckpointStored(now=0, checkpoint=2))
    assert driven.send(SubtaskLost, 0) == (ReturnSplits(0, 1, 2, "newer"),)


def test_scenario_63_a_part_of_an_aborted_checkpoint_does_not_count() -> None:
    driven = Driven().complete()
    driven.until(CheckpointPhase.COLLECTING)
    driven.store_part(0, "newer")
    assert driven.send(SubtaskLost, 0)[-1] == ReturnSplits(0, 1, 1, "old")


def test_a_part_that_is_being_stored_counts_for_who_is_lost_meanwhile() -> None:
    """Else its files would be deleted, and the checkpoint that names them completed."""
    driven = Driven().until(CheckpointPhase.STORING)
    assert driven.send(SubtaskLost, 0) == (ReturnSplits(0, 1, 1, "old"),)
    assert driven.step(LaunchEnded(now=0)) == (ReturnSplits(1, 2, 1, "old"),)
    assert driven.step(CheckpointStored(now=0, checkpoint=1)) == (Complete(1),)


def test_scenario_66_splits_are_returned_once_also_where_no_part_is_known() -> None:
    driven = Driven()
    assert driven.send(SubtaskLost, 0) == (ReturnSplits(0, 1, None, None),)
    assert driven.send(SubtaskLost, 0) == ()
    assert driven.step(LaunchEnded(now=0)) == (ReturnSplits(1, 2, None, None),)


def test_scenario_68_the_same_attempt_cannot_register_twice() -> None:
    driven = Driven()
    for attempt in (1, 0):
        with pytest.raises(IllegalEventError):
            driven.send(SubtaskRegistered, 0, attempt=attempt)


# --- time -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_starts_an_interval_after_the_last_start_but_not_sooner_than_the_pause() -> None:
    driven = Driven(first_due=30)
    assert driven.due() == 30
    assert driven.step(TimePassed(now=29)) == ()
    assert kinds(driven.step(TimePassed(now=30))) == ["SendClose", "SendClose"]
    driven.now = 39
    driven.send(Declined, 0, checkpoint=1, reason="no")
    assert driven.due() == 60
    driven.now = 60
    driven.step(TimePassed(now=60))
    driven.close(0)
    driven.close(1)
    driven.snap()
    driven.store_part(0)
    driven.store_part(1)
    assert driven.due() is None
    driven.step(CheckpointStored(now=88, checkpoint=2))
    assert driven.due() == 93


def test_an_interval_of_zero_takes_none() -> None:
    driven = Driven(policy=CheckpointSettings(interval_s=0))
    assert driven.due() is None
    assert driven.step(TimePassed(now=1e9)) == ()


def test_one_at_a_time() -> None:
    for phase in (*PHASES, CheckpointPhase.STORING):
        driven = Driven().until(phase)
        assert driven.start() == ()
        assert driven.machine.latest == 1


def test_a_store_that_fails_costs_a_checkpoint_and_nothing_is_blocked_meanwhile() -> None:
    driven = Driven().until(CheckpointPhase.STORING)
    assert driven.step(TimePassed(now=999)) == ()
    commands = driven.step(StoreFailed(now=999, checkpoint=1, reason="full"))
    assert kinds(commands) == ["SendAborted", "SendAborted", "Abort"]
    assert driven.machine.failures == 1


def test_a_checkpoint_that_completes_after_its_round_had_ended_counts() -> None:
    driven = Driven().until(CheckpointPhase.STORING)
    assert driven.step(RoundEnded(now=0)) == ()
    assert driven.step(CheckpointStored(now=0, checkpoint=1)) == (Complete(1),)
    assert driven.machine.phase is CheckpointPhase.ENDED


@pytest.mark.parametrize("ended_before", [False, True])
def test_a_checkpoint_that_completes_after_its_round_has_committed_is_deleted(*, ended_before: bool) -> None:
    driven = Driven().until(CheckpointPhase.STORING)
    if ended_before:  # all splits are done, the commit is still to come
        driven.step(RoundEnded(now=0))
    assert driven.step(RoundEnded(now=0, superseded=True)) == ()
    assert driven.step(CheckpointStored(now=0, checkpoint=1)) == (DiscardCheckpoint(1),)
    assert driven.machine.phase is CheckpointPhase.ENDED


def test_a_checkpoint_that_fails_after_its_round_had_ended_is_deleted() -> None:
    driven = Driven().until(CheckpointPhase.STORING)
    driven.step(RoundEnded(now=0))
    assert driven.step(StoreFailed(now=0, checkpoint=1, reason="full")) == (DiscardCheckpoint(1),)
    assert driven.machine.phase is CheckpointPhase.ENDED


@pytest.mark.parametrize("phase", PHASES)
def test_the_end_of_a_round_opens_both_sides(phase: CheckpointPhase) -> None:
    driven = Driven().until(phase)
    commands = driven.step(RoundEnded(now=0))
    assert [one.subtask for one in commands if isinstance(one, SendAborted)] == [0, 1]
    assert driven.machine.phase is CheckpointPhase.ENDED
    assert driven.step(TimePassed(now=999)) == ()


# --- what is illegal ------------------------------------------------------------------------------------------------


def after(*story: CheckpointsEvent) -> CheckpointCoordinator:
    machine = stories.new()
    for event in story:
        machine.step(event)
    return machine


def test_what_no_row_allows_is_illegal() -> None:
    """While the snapshot is taken nothing else happens, and nobody is heard who never registered."""
    for event in stories.TRIED:
        if not isinstance(event, SnapshotTaken | SnapshotFailed):
            with pytest.raises(IllegalEventError, match="machine 'checkpoints' in state snapping"):
                after(*stories.SNAPPING).step(event)
    for kind in (
        stories.again,
        stories.finished,
        stories.received,
        stories.acked,
        stories.acked_close,
        stories.opened,
        stories.stored,
        stories.declined,
    ):
        with pytest.raises(IllegalEventError, match="machine 'attempts' in state unknown, checkpoint 1"):
            after(*stories.CLOSING).step(kind(2))


@pytest.mark.parametrize("story", [stories.DRAINING, stories.COLLECTING], ids=["draining", "collecting"])
def test_a_snapshot_that_comes_unasked_is_illegal(story: tuple[CheckpointsEvent, ...]) -> None:
    with pytest.raises(IllegalEventError):
        after(*story).step(stories.TAKEN)


def test_all_of_a_running_checkpoint_participate() -> None:
    machine = after(*stories.COLLECTING, stories.opened(0))
    assert {machine.phase_of((subtask, 1)) for subtask in (0, 1)} <= set(PARTICIPATING)


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(UsageError, match="timeout above 0"):
        CheckpointCoordinator(CheckpointSettings(timeout_s=0), now=0)


# --- recoveries and commits -----------------------------------------------------------------------------------------


def recovers(driven: Driven) -> Commands:
    """Time passes in a launch that recovers; the interval is not over."""
    return driven.step(TimePassed(now=driven.now, recovers=True))


def test_the_first_checkpoint_of_a_launch_that_recovers_starts_at_once_and_no_other_one_does() -> None:
    driven = Driven(first_due=30)
    assert kinds(driven.step(TimePassed(now=0))) == []
    assert kinds(recovers(driven)) == ["SendClose", "SendClose"]
    driven.send(Declined, 0, checkpoint=1, reason="full")
    assert recovers(driven) == ()
    driven.step(LaunchEnded(now=0))
    driven.send(SubtaskRegistered, 0, 9)
    assert kinds(recovers(driven)) == ["SendClose"]


def triggers(driven: Driven, *, step_due: bool = True) -> set[bool]:
    """Start a checkpoint up to its triggers; return whether they close files."""
    driven.start()
    driven.close(0)
    driven.close(1)
    sent = {(0, 1): 0, (1, 2): 0}
    number = driven.machine.latest
    taken = SnapshotTaken(now=driven.now, checkpoint=number, snapshot="c", sent=sent, step_due=step_due)
    return {one.close_files for one in driven.step(taken) if isinstance(one, SendTrigger)}


def test_a_checkpoint_of_which_a_commit_is_made_closes_all_files_also_if_it_is_triggered_again() -> None:
    driven = Driven()
    assert triggers(driven) == {True}
    assert driven.send(SubtaskReconnected, 0) == (SendTrigger(0, 1, 1, close_files=True),)


def test_a_checkpoint_of_which_no_commit_is_made_closes_none() -> None:
    assert triggers(Driven(), step_due=False) == {False}


def test_the_one_after_an_aborted_one_that_was_to_close_all_files_does_not_so_that_it_completes() -> None:
    driven = Driven()
    triggers(driven)
    driven.send(Declined, 0, checkpoint=1, reason="full")
    assert triggers(driven) == {False}
    driven.store_part(0)
    driven.store_part(1)
    driven.step(CheckpointStored(now=driven.now, checkpoint=2))
    assert triggers(driven) == {True}


def test_one_that_is_aborted_before_it_was_to_close_files_is_not_missed() -> None:
    driven = Driven()
    driven.until(CheckpointPhase.CUTTING)
    driven.send(Declined, 0, checkpoint=1, reason="full")
    assert triggers(driven, step_due=False) == {False}
    driven.send(Declined, 0, checkpoint=2, reason=NOT_READY)
    driven.send(DataReceived, 0, number=2)
    assert triggers(driven) == {True}


def test_a_subtask_that_is_not_ready_declines_a_checkpoint_and_counts_as_no_failure() -> None:
    driven = Driven()
    driven.start()
    commands = driven.send(Declined, 0, checkpoint=1, reason=NOT_READY)
    assert commands[-1] == Abort(1, f"subtask 0 declined: {NOT_READY}")
    assert driven.machine.failures == 0
    driven.start()
    driven.send(Declined, 0, checkpoint=2, reason="full")
    assert driven.machine.failures == 1
