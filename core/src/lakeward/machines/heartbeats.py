"""What the machine `rounds` says in a heartbeat, and what an answer or a failure does to the tables in hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines.hand import Hand, RoundsPolicy, SentBeat, TableInHand
from lakeward.machines.round_phases import REPORTED, Phase
from lakeward.model.tiering import Beat, Claim, Refusal

if TYPE_CHECKING:
    from lakeward.machines.round_moves import Moves
    from lakeward.machines.round_protocol import BeatAnswered, BeatFailed

_GIVE_UP_AFTER = 2
"""A report that failed so often is given up when the service stops: the source's timeout hands the table on."""


def send_if_due(hand: Hand, policy: RoundsPolicy, now: float) -> Beat | None:
    """Put a heartbeat under way if one is wanted and none is.

    Args:
        hand: what is known; the heartbeat is noted in it.
        policy: periods.
        now: seconds.

    Returns:
        The heartbeat to send, None if nothing is due.
    """
    if hand.sent is not None or now < hand.beat_after or min(hand.beat_dues(policy), default=now + 1) > now:
        return None
    beat = compose(hand, policy)
    hand.sent = SentBeat(beat, now)
    return beat


def compose(hand: Hand, policy: RoundsPolicy) -> Beat:
    """Say something of every table in hand: it is reported, or else renewed.

    Args:
        hand: what is known.
        policy: for the room in hand.

    Returns:
        The heartbeat.
    """
    tables = [hand.tables[table_id] for table_id in sorted(hand.tables)]
    finished = [table for table in tables if table.phase is Phase.REPORTING]
    return Beat(
        renewed=tuple(table.claim for table in tables if table.phase not in REPORTED),
        finished=tuple(table.claim for table in finished),
        forced=frozenset(table.offer.table_id for table in finished if table.forced and not hand.stopping),
        failed=tuple(table.claim for table in tables if table.phase is Phase.RETURNING),
        request=hand.wants_table(policy.slots),
    )


def answered(moves: Moves, event: BeatAnswered) -> None:
    """Take an answer: reports leave the hand, refusals leave it, the rest is renewed, an offer enters.

    Args:
        moves: the step under way.
        event: the answer to the heartbeat under way.
    """
    hand, beat, answer = moves.hand, event.beat, event.answer
    sent_at = moves.now if hand.sent is None else hand.sent.at
    hand.sent, hand.beat_failures, hand.beat_after = None, 0, 0.0
    for claim in (*beat.finished, *beat.failed):
        _reported(moves, claim)
    for claim in beat.renewed:
        _renewed(moves, claim, answer.refused.get(claim.table_id), sent_at)
    if answer.offer is not None:
        hand.poll_at = moves.now
        moves.adopt(answer.offer, sent_at)
    elif beat.request:
        hand.poll_at = moves.now + moves.policy.poll_every_s


def failed(moves: Moves, event: BeatFailed) -> None:
    """Take a failure: nothing is renewed; what was reported is reported again after a pause that grows.

    Args:
        moves: the step under way.
        event: the failure of the heartbeat under way.
    """
    hand, policy = moves.hand, moves.policy
    sent, hand.sent = hand.sent, None
    pause = policy.backoff_first_s * 2.0 ** min(hand.beat_failures, 60)
    hand.beat_failures += 1
    hand.beat_after = moves.now + min(policy.renew_every_s / 3, pause)
    for claim in () if sent is None else (*sent.beat.finished, *sent.beat.failed):
        table = _known(hand, claim)
        if table is None or table.phase not in REPORTED:
            continue
        table = moves.put(replace(table, report_failures=table.report_failures + 1))
        if hand.stopping and table.report_failures >= _GIVE_UP_AFTER:
            moves.leave(table, f"not reported: {event.cause}")


def _reported(moves: Moves, claim: Claim) -> None:
    """Accepted or refused, it was said: the table leaves."""
    table = _known(moves.hand, claim)
    if table is not None and table.phase in REPORTED:
        moves.leave(table, "finished" if table.phase is Phase.REPORTING else "returned")


def _renewed(moves: Moves, claim: Claim, refusal: Refusal | None, sent_at: float) -> None:
    table = _known(moves.hand, claim)
    if table is None:
        return
    if refusal is not None:
        moves.refused(table, refusal)
        return
    table = moves.put(replace(table, renewed_at=max(table.renewed_at, sent_at)))
    if table.phase is Phase.SETTLING and moves.may_commit(table):
        moves.commit(table)


def _known(hand: Hand, claim: Claim) -> TableInHand | None:
    """Return the table only if the heartbeat spoke of the epoch that is in hand now."""
    table = hand.tables.get(claim.table_id)
    return table if table is not None and table.claim == claim else None
