"""What of the catalogue's scenarios a gateway alone shows."""

from __future__ import annotations

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.checkpoints.gateway import (
    AbortFor,
    CloseFor,
    Gateway,
    GatewayClosed,
    GatewayCommand,
    GatewayEvent,
    GatewayPhase,
    MessageReceived,
    OpenFor,
    Origins,
    Pass,
    Started,
)
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import AnyEvent, RequestSplit
from lakeward_machine_stories.gateway import CONTROL, OLD, RESTORED, A, B, C, finish

ME = Origin(2, 0, 5, 0)


def passed(commands: tuple[GatewayCommand, ...]) -> list[AnyEvent]:
    """What may be sent."""
    return [command.event for command in commands if isinstance(command, Pass)]


def after(*story: GatewayEvent, restored: tuple[BlockedEvent, ...] = ()) -> Gateway:
    """A gateway after a story."""
    gateway = Gateway(restored=restored)
    for event in story:
        gateway.step(event)
    return gateway


def test_scenario_1_an_open_gateway_passes_events_in_order() -> None:
    gateway = Gateway()
    assert [passed(gateway.step(MessageReceived(event))) for event in (A, CONTROL, B)] == [[A], [CONTROL], [B]]


def test_scenario_2_a_closed_one_holds_data_events_and_lets_control_events_pass() -> None:
    gateway = after(CloseFor(5))
    assert [passed(gateway.step(MessageReceived(event))) for event in (A, CONTROL, B)] == [[], [CONTROL], []]
    assert gateway.held == (A, B)
    assert gateway.closed_for == 5


def test_scenarios_4_and_6_only_the_checkpoint_that_it_is_closed_for_opens_it() -> None:
    gateway = after(CloseFor(5), MessageReceived(A))
    assert gateway.step(OpenFor(4)) == ()
    assert gateway.phase is GatewayPhase.CLOSED
    assert passed(gateway.step(OpenFor(5))) == [A]


def test_scenarios_7_and_9_an_abort_opens_it_and_a_late_message_changes_nothing() -> None:
    gateway = after(CloseFor(5), MessageReceived(A))
    assert passed(gateway.step(AbortFor(5))) == [A]
    assert gateway.step(OpenFor(5)) == ()
    assert gateway.step(CloseFor(5)) == ()
    assert gateway.phase is GatewayPhase.OPEN


def test_scenario_10_an_id_that_was_never_seen_opens_nothing() -> None:
    with pytest.raises(IllegalEventError, match="newest checkpoint 5"):
        after(CloseFor(5), MessageReceived(A)).step(OpenFor(6))


def test_scenario_11_opened_twice_it_sends_once() -> None:
    gateway = after(CloseFor(5), MessageReceived(A), OpenFor(5))
    assert gateway.step(OpenFor(5)) == ()


def test_scenario_12_equal_and_smaller_ids_close_nothing() -> None:
    gateway = after(CloseFor(5), OpenFor(5))
    assert gateway.step(CloseFor(5)) == ()
    assert gateway.step(CloseFor(4)) == ()
    assert gateway.step(CloseFor(6)) == (GatewayClosed(6),)


@pytest.mark.parametrize("order", [(5, 6), (6, 5)], ids=["older first", "newer first"])
def test_scenarios_13_and_14_overlapping_ids_keep_the_order(order: tuple[int, int]) -> None:
    """A second one can only come where the message of the first one's end was lost: it takes over."""
    gateway = after(CloseFor(5), MessageReceived(A), CloseFor(6), MessageReceived(B))
    sent = [event for number in order for event in passed(gateway.step(AbortFor(number)))]
    assert sent == [A, B]


def test_scenario_15_of_three_ids_the_middle_one_opens_nothing() -> None:
    gateway = after(CloseFor(5), MessageReceived(A), CloseFor(6), MessageReceived(B), CloseFor(7), MessageReceived(C))
    assert gateway.step(OpenFor(6)) == ()
    assert passed(gateway.step(OpenFor(7))) == [A, B, C]


def test_scenario_35_it_reports_that_it_is_closed_after_the_last_event_and_again_for_a_repeated_close() -> None:
    gateway = Gateway(restored=[RESTORED])
    assert gateway.step(CloseFor(5)) == (Pass(finish("restored", OLD)), GatewayClosed(5))
    assert gateway.step(CloseFor(5)) == (GatewayClosed(5),)


def test_scenario_43_restored_events_go_first_exactly_once_under_their_origin() -> None:
    gateway = Gateway(restored=[RESTORED])
    assert passed(gateway.step(Started())) == [finish("restored", OLD)]
    assert gateway.step(Started()) == ()
    assert passed(gateway.step(MessageReceived(A))) == [A]


def test_restored_events_go_first_even_without_a_start() -> None:
    assert passed(Gateway(restored=[RESTORED]).step(MessageReceived(A))) == [finish("restored", OLD), A]


def test_one_that_starts_closed_keeps_restored_events_for_its_snapshot_under_their_origin() -> None:
    gateway = Gateway(restored=[RESTORED], closed_for=5)
    assert gateway.step(Started()) == ()
    gateway.step(MessageReceived(A))
    assert gateway.held_as(ME) == (RESTORED, BlockedEvent(Origin(2, 0, 5, 2), A.result))
    assert passed(gateway.step(OpenFor(5))) == [finish("restored", OLD), A]


def test_scenario_43_a_held_finish_is_kept_under_the_number_that_it_will_be_sent_with() -> None:
    channel = Channel(ChannelKey("r", 2, 0, 5), "up")
    channel.send(C)
    gateway = after(CloseFor(5), MessageReceived(A), MessageReceived(RequestSplit()), MessageReceived(B))
    kept = gateway.held_as(Origin(2, 0, 5, channel.sent))
    assert [(one.result, one.origin.sequence) for one in kept] == [(A.result, 2), (B.result, 4)]
    sent = [(event, channel.send(event).sequence) for event in passed(gateway.step(OpenFor(5)))]
    assert sent == [(A, 2), (RequestSplit(), 3), (B, 4)]


def test_an_abort_of_an_id_that_never_came_keeps_it_from_closing_later() -> None:
    gateway = after(AbortFor(5))
    assert gateway.step(CloseFor(5)) == ()
    assert gateway.latest == 5


def test_a_gateway_of_a_later_attempt_knows_what_is_over() -> None:
    assert Gateway(latest=5).step(CloseFor(5)) == ()


def test_an_origin_counts_once() -> None:
    origins = Origins()
    assert [origins.first(origin) for origin in (OLD, ME, OLD)] == [True, True, False]
