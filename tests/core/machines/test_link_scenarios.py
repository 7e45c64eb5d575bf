"""What a link to the coordinator commands."""

from __future__ import annotations

from lakeward.machines.link import (
    RECONNECT_S,
    Connect,
    Deliver,
    Disconnect,
    HeartbeatRequested,
    LinkCommand,
    LinkEvent,
    LinkMachine,
    LinkPhase,
    ReportLost,
    ReportRejected,
    ReportSettled,
    Transmit,
)
from lakeward.machines.transport.channel import Channel
from lakeward.model.events import (
    AnyEvent,
    Cancel,
    Heartbeat,
    NoMoreSplits,
    Open,
    Register,
    RequestSplit,
    SubtaskDone,
)
from lakeward_machine_stories.link import DEPLOY, DEPLOYED, FENCE_S, KEY, REJECTED, START, lost, new, received, sends


def after(*story: LinkEvent) -> LinkMachine:
    machine = new()
    for event in story:
        machine.step(event)
    return machine


def registers(attempt: int | None, after_s: float) -> Connect:
    key = KEY._replace(task_attempt=attempt or 0)
    register = Register(subtask=0, host="here", pid=1, attempt=attempt)
    return Connect(Channel(key, "up").send(register), after_s)


def transmitted(commands: tuple[LinkCommand, ...]) -> list[tuple[AnyEvent, int]]:
    return [(one.envelope.event, one.envelope.sequence) for one in commands if isinstance(one, Transmit)]


def test_a_link_registers_at_once_and_again_after_a_while() -> None:
    machine = new()
    assert machine.step(START) == (registers(None, 0.0),)
    assert machine.step(lost()) == (registers(None, RECONNECT_S),)
    assert machine.step(received(DEPLOY)) == (Deliver(DEPLOY),)


def test_a_lost_connection_is_replaced_at_once_and_registers_the_same_attempt() -> None:
    machine = after(*DEPLOYED)
    assert machine.step(lost()) == (registers(3, 0.0),)
    assert machine.step(lost()) == (registers(3, RECONNECT_S),)


def test_data_that_is_not_acknowledged_is_sent_again_in_order_before_anything_new() -> None:
    machine = after(*DEPLOYED, sends(RequestSplit()), lost(), sends(RequestSplit()))
    again = transmitted(machine.step(received(Heartbeat(acked=0))))
    assert again == [(RequestSplit(), 1), (RequestSplit(), 2)]
    assert transmitted(machine.step(sends(RequestSplit()))) == [(RequestSplit(), 3)]


def test_what_is_acknowledged_is_not_sent_again() -> None:
    machine = after(*DEPLOYED, sends(RequestSplit()), sends(RequestSplit()), received(Heartbeat(acked=1)), lost())
    assert transmitted(machine.step(received(Heartbeat(acked=1)))) == [(RequestSplit(), 2)]


def test_a_control_event_is_dropped_while_the_connection_is_down_but_subtask_done_is_sent_again() -> None:
    machine = after(*DEPLOYED, lost(), sends(Open(checkpoint=1)), sends(SubtaskDone()))
    assert transmitted(machine.step(received(Heartbeat(acked=0)))) == [(SubtaskDone(), 0)]


def test_a_numbered_event_is_acknowledged_before_it_is_delivered_and_only_once_delivered() -> None:
    machine = after(*DEPLOYED)
    data = received(NoMoreSplits(), sequence=1)
    acknowledged, delivered = machine.step(data)
    assert transmitted((acknowledged,)) == [(Heartbeat(acked=1), 0)]
    assert delivered == Deliver(NoMoreSplits())
    assert transmitted(machine.step(data)) == [(Heartbeat(acked=1), 0)]


def test_a_gap_in_the_numbers_ends_the_connection_and_opens_another() -> None:
    machine = after(*DEPLOYED)
    assert machine.step(received(NoMoreSplits(), sequence=2)) == (Disconnect(), registers(3, 0.0))


def test_silence_is_measured_from_what_was_received_last() -> None:
    machine = after(START, received(DEPLOY, now=5.0))
    assert machine.step(lost(5.0 + FENCE_S)) == (registers(3, 0.0),)
    assert machine.step(lost(6.0 + FENCE_S)) == (ReportLost(FENCE_S + 1.0, "reset"),)
    assert machine.phase is LinkPhase.CLOSED


def test_heartbeats_are_unanswered_from_the_first_one_that_nothing_followed() -> None:
    machine = after(*DEPLOYED, HeartbeatRequested(now=2.0), HeartbeatRequested(now=4.0))
    assert machine.unanswered_s(7.0) == 5.0
    machine.step(received(Heartbeat(acked=0), now=7.0))
    assert machine.unanswered_s(9.0) == 0.0


def test_whoever_proves_no_secret_is_no_coordinator_to_register_with() -> None:
    assert after(START).step(REJECTED) == (ReportRejected("no proof"),)
    assert after(*DEPLOYED).step(REJECTED) == (registers(3, 0.0),)


def test_a_heartbeat_before_the_deployment_is_a_sign_of_life_and_nothing_else() -> None:
    machine = after(START)
    assert machine.step(received(Heartbeat(acked=0), now=FENCE_S)) == ()
    assert machine.phase is LinkPhase.REGISTERING
    assert machine.silent_s(FENCE_S + 2.0) == machine.unanswered_s(FENCE_S + 2.0) == 2.0
    assert machine.step(lost(2 * FENCE_S)) == (registers(None, RECONNECT_S),)
    assert machine.unanswered_s(2 * FENCE_S) == 0.0
    assert machine.step(received(DEPLOY)) == (Deliver(DEPLOY),)


def test_a_subtask_that_was_waited_for_gives_up_once_its_coordinator_is_gone() -> None:
    machine = after(START, received(Heartbeat(acked=0), now=5.0))
    assert machine.step(lost(6.0 + FENCE_S)) == (ReportLost(FENCE_S + 1.0, "reset"),)


def test_an_answer_that_is_none_ends_the_registration() -> None:
    commands = after(START).step(received(NoMoreSplits()))
    assert commands == (Disconnect(), ReportRejected("register: expected Deploy or Cancel, found NoMoreSplits"))


def test_an_attempt_that_no_longer_counts_is_told_so_at_either_registration() -> None:
    cancel = Cancel(reason="over")
    assert after(START).step(received(cancel)) == (Disconnect(), Deliver(cancel))
    assert after(*DEPLOYED, lost()).step(received(cancel)) == (Disconnect(), Deliver(cancel))


def test_a_subtask_that_is_done_is_settled_once_everything_is_acknowledged() -> None:
    assert after(*DEPLOYED).step(sends(SubtaskDone()))[-1] == ReportSettled()
    machine = after(*DEPLOYED, sends(RequestSplit()))
    assert ReportSettled() not in machine.step(sends(SubtaskDone()))
    assert machine.step(received(Heartbeat(acked=1))) == (ReportSettled(),)
