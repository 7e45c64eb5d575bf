"""Every cell of state x event of the machine `rounds`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.hand import Hand, SentBeat, TableInHand
from lakeward.machines.rounds import (
    TRANSITIONS,
    BeatAnswered,
    BeatFailed,
    Committed,
    Drained,
    Leased,
    Opened,
    PauseAsked,
    Phase,
    Pulse,
    ResumeAsked,
    Resumed,
    RoundFailed,
    RoundFenced,
    Rounds,
    RoundsEvent,
    RoundsPolicy,
    SendBeat,
    Service,
    SnapshotsGone,
    StopAsked,
    Stopped,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
)
from lakeward.model.tables import TablePath
from lakeward.model.tiering import Beat, BeatAnswer, Claim, Offer, Refusal

NOW = 100.0
PATH = TablePath("db", "t7")
OFFER = Offer(PATH, 7, 3, 1, 180.0)
BUSY = Offer(TablePath("db", "t8"), 8, 1, 1, 10.0)
BEAT = Beat(renewed=(Claim(7, 3, 1),), request=True)
REPORT = Beat(finished=(Claim(7, 3, 1),), request=True)
NEWER = replace(OFFER, epoch=4)

EVENTS: dict[type[RoundsEvent], tuple[RoundsEvent, ...]] = {
    Tick: (Tick(now=NOW),),
    Resumed: (Resumed(now=NOW, offers=()), Resumed(now=NOW, offers=(OFFER,)), Resumed(now=NOW, offers=(NEWER,))),
    BeatAnswered: tuple(
        BeatAnswered(now=NOW, beat=beat, answer=BeatAnswer(1, offer, refused))
        for beat in (BEAT, REPORT)
        for offer in (None, NEWER)
        for refused in ({}, {7: Refusal.GONE}, {7: Refusal.FENCED})
    ),
    BeatFailed: (BeatFailed(now=NOW, cause="no answer"),),
    Opened: tuple(
        Opened(now=NOW, table_id=7, splits=splits, leases=leases, offsets_moved=moved)
        for splits, leases, moved in ((0, False, False), (0, False, True), (2, False, False), (2, True, False))
    ),
    Leased: (Leased(now=NOW, table_id=7),),
    SnapshotsGone: (SnapshotsGone(now=NOW, table_id=7, reason="gone"),),
    Drained: (Drained(now=NOW, table_id=7, cut=False), Drained(now=NOW, table_id=7, cut=True)),
    Committed: (Committed(now=NOW, table_id=7, caught_up=True), Committed(now=NOW, table_id=7, caught_up=False)),
    RoundFailed: tuple(RoundFailed(now=NOW, table_id=7, reason="x", permanent=final) for final in (False, True)),
    TableGone: (TableGone(now=NOW, table_id=7),),
    RoundFenced: tuple(RoundFenced(now=NOW, table_id=7, reason="x", lost=lost) for lost in (False, True)),
    TargetReached: (TargetReached(now=NOW, path=PATH),),
    Targets: (Targets(now=NOW, paths=frozenset({BUSY.path})),),
    PauseAsked: (PauseAsked(now=NOW, path=PATH),),
    ResumeAsked: (ResumeAsked(now=NOW, path=PATH),),
    StopAsked: (StopAsked(now=NOW),),
    StopTimedOut: (StopTimedOut(now=NOW),),
}


def hand_of(phase: Phase, service: Service, pulse: Pulse, beat: Beat = BEAT) -> Hand:
    """Hold table 7 in a phase; table 8 keeps the only slot busy."""
    hand = Hand(service=service)
    if phase is not Phase.ABSENT:
        hand.tables[7] = TableInHand(OFFER, phase, deadline=200.0, renewed_at=90.0, attempt=1)
    if service in (Service.SERVING, Service.STOPPING):
        hand.tables[8] = TableInHand(BUSY, Phase.COMMITTING, deadline=20.0, renewed_at=90.0, attempt=1)
    if phase is Phase.PAUSED:
        hand.paused.add(PATH)
    if pulse is Pulse.UNDER_WAY:
        hand.sent = SentBeat(beat, 99.0)
    return hand


def machine_of(hand: Hand) -> Rounds:
    """Make a machine that stands there."""
    rounds = Rounds(RoundsPolicy(slots=1, once=True))
    rounds._hand = hand
    return rounds


def cells() -> list[tuple[Phase, Service, Pulse, RoundsEvent]]:
    """List each phase x service x heartbeat x event that can stand together."""
    return [
        (phase, service, pulse, event)
        for phase in Phase
        for service in Service
        for pulse in Pulse
        for events in EVENTS.values()
        for event in events
        if can_stand(phase, service, pulse)
    ]


def can_stand(phase: Phase, service: Service, pulse: Pulse) -> bool:
    """Before the first tick nothing is open or sent; a stopped service holds nothing."""
    if service is Service.STARTING:
        return pulse is Pulse.RESTING and phase in (Phase.ABSENT, Phase.WAITING, Phase.PAUSED)
    if service is Service.STOPPED:
        return pulse is Pulse.RESTING and phase is Phase.ABSENT
    if service is Service.SERVING:
        return phase is not Phase.RETURNING
    return phase in (Phase.ABSENT, Phase.RUNNING, Phase.SETTLING, Phase.COMMITTING, Phase.REPORTING, Phase.RETURNING)


def legal(phase: Phase, service: Service, pulse: Pulse, event: RoundsEvent) -> bool:
    """True if each of the three has a row."""
    return all((state, type(event)) in TRANSITIONS for state in (phase, service, pulse))


def phase_of(rounds: Rounds) -> Phase:
    """Where table 7 stands."""
    return next((status.phase for status in rounds.in_hand if status.offer.table_id == 7), Phase.ABSENT)


def test_each_event_type_is_tried_and_has_a_row_for_a_table_somewhere() -> None:
    """Nothing is left out of the tests below, and nothing of the table."""
    tried = {kind for kind, events in EVENTS.items() if all(type(event) is kind for event in events)}
    assert tried == {event for state, event in TRANSITIONS if isinstance(state, Phase)}
    assert len(tried) == 18


@pytest.mark.parametrize("kind", list(EVENTS), ids=lambda kind: kind.__name__)
def test_a_legal_cell_moves_within_its_row(kind: type[RoundsEvent]) -> None:
    """Wherever service, heartbeat and table have a row, the table ends within its own."""
    for phase, service, pulse, event in cells():
        if type(event) is not kind or not legal(phase, service, pulse, event):
            continue
        hand = hand_of(phase, service, pulse, getattr(event, "beat", BEAT))
        rounds = machine_of(hand)
        rounds.step(event)
        # What the closing tick adds is in the tick's row of the same phase.
        after_event = TRANSITIONS[phase, kind]
        reachable = after_event.union(*(TRANSITIONS[state, Tick] for state in after_event))
        assert phase_of(rounds) in reachable, (phase, service, pulse, event)


@pytest.mark.parametrize("kind", list(EVENTS), ids=lambda kind: kind.__name__)
def test_an_illegal_cell_raises_and_changes_nothing(kind: type[RoundsEvent]) -> None:
    """The error names machine, state and event; the state is equal to a deep copy taken before."""
    for phase, service, pulse, event in cells():
        if type(event) is not kind or legal(phase, service, pulse, event):
            continue
        rounds = machine_of(hand_of(phase, service, pulse))
        before = copy.deepcopy(rounds._hand)
        with pytest.raises(IllegalEventError, match=r"machine 'rounds' in state .* has no row for " + kind.__name__):
            rounds.step(event)
        assert rounds._hand == before, (phase, service, pulse, event)


def test_targets_that_come_after_a_stop_are_named_as_missed() -> None:
    """The end offsets are looked at while somebody asks the service to stop: that is no mistake of ours."""
    rounds = machine_of(hand_of(Phase.RETURNING, Service.STOPPING, Pulse.RESTING))
    rounds._hand.tables.pop(8)
    commands = rounds.step(Targets(now=NOW, paths=frozenset({BUSY.path})))
    sent = next(command.beat for command in commands if isinstance(command, SendBeat))
    ended = rounds.step(BeatAnswered(now=NOW, beat=sent, answer=BeatAnswer(1, None, {})))
    assert Stopped(((BUSY.path, "the service stopped before it was reached"),)) in ended


def test_every_target_of_a_tables_row_is_reached_by_some_cell() -> None:
    """A row that promises more than the machine does would hide a mistake."""
    seen: dict[tuple[Phase, type[RoundsEvent]], set[Phase]] = {}
    for phase, service, pulse, event in cells():
        if not legal(phase, service, pulse, event):
            continue
        for variant in variants(hand_of(phase, service, pulse, getattr(event, "beat", BEAT))):
            if isinstance(event, BeatAnswered) and variant.sent != SentBeat(event.beat, 99.0):
                continue
            rounds = machine_of(variant)
            rounds.step(event)
            seen.setdefault((phase, type(event)), set()).add(phase_of(rounds))
    missing = {
        (state.value, event.__name__): after
        for (state, event), row in TRANSITIONS.items()
        if isinstance(state, Phase) and (after := {to for to in row if to not in seen.get((state, event), set())})
    }
    assert missing == {}


def variants(hand: Hand) -> list[Hand]:
    """The same, also: long renewed, stale before, overdue, unreported once, with a free slot, paused, timed out."""
    changes: list[dict[str, float]] = [{}, {"renewed_at": 1.0}, {"stale": 4}, {"report_failures": 1}]
    if 7 in hand.tables and hand.tables[7].phase is Phase.BACKOFF:
        changes.append({"retry_at": 50.0})
    found = [changed(hand, change, free=free) for change in changes for free in (False, True)]
    if 7 not in hand.tables or hand.tables[7].phase not in UNPAUSED:
        found += [replace(made.copy(), paused={PATH}) for made in found]
    if hand.sent is not None:
        found += [replace(made.copy(), sent=SentBeat(REPORT, 99.0)) for made in found if hand.sent.beat == BEAT]
    return [*found, replace(hand.copy(), timed_out=True)]


def changed(hand: Hand, change: dict[str, float], *, free: bool) -> Hand:
    """Change table 7, and let table 8 go if its slot is to be free."""
    made = hand.copy()
    if 7 in made.tables:
        made.tables[7] = replace(made.tables[7], **change)  # type: ignore[arg-type]  # fields of several types
    if free:
        made.tables.pop(8, None)
    return made


UNPAUSED = (Phase.WAITING, Phase.BACKOFF, Phase.SUSPENDED, Phase.OPENING, Phase.LEASING)
"""A table whose path is paused never stands here."""
