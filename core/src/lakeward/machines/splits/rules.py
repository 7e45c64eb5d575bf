"""Which subtask reads which split, and which results count: one machine for each round.

* An accepted result stays accepted; a new attempt gets only unfinished splits.
* A split is read by one attempt at a time. A subtask's newer attempt replaces the older one; what the older one sends
  afterwards is late, not illegal: it is rejected and changes nothing.
* An idle attempt (it requested a split and got none) is served when a split is returned; it is sent `NoMore` only when
  all splits are finished or skipped.
* A round that finishes early assigns no more splits. Log splits stop where they are, started snapshot splits run to
  their end; a log split that stopped is finished at the offset it reached. A split that is returned later is skipped.
  A restored split of `begun` is not skipped then: it is assigned as before. If its attempt is lost after that, it ends
  like the others; with an exchange the launch ends with it, and a new machine begins from the checkpoint.
* A bucket's offset after the round is the end of its contiguous finished prefix.
* An attempt whose connection closed may reconnect. After `reconnect_s` it is given up: its job takes over what it did
  and reports it as lost. The connections of one executor's subtasks close one after the other, so those that closed
  within a moment of one another are given up together. A connection that closes moves neither its attempt nor a split.
* A split whose attempts were lost again and again rests before its next try, longer each time; others are read
  meanwhile. No split rests beyond the end of its job, whose next launch waits by itself.
* After a restore, a finished split whose result had not reached the coordinator is withheld: it is not read again, the
  first attempt to register sends its result once more. If that attempt is gone before, the restored result counts: no
  other attempt may ever register, and those that wait would wait for ever.

`ROUND` takes each event, and steps the splits, attempts and connections that it concerns by the tables of theirs.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from lakeward.machines.machine import Rule, Rules
from lakeward.machines.splits import messages as m
from lakeward.machines.splits.state import (
    RESTORED,
    AttemptPhase,
    ConnectionPhase,
    ReadingPhase,
    RoundSplits,
    SplitPhase,
    end_of,
)
from lakeward.model.splits import SnapshotSplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNASSIGNED, ASSIGNED, WITHHELD = SplitPhase.UNASSIGNED, SplitPhase.ASSIGNED, SplitPhase.WITHHELD
FINISHED, SKIPPED = SplitPhase.FINISHED, SplitPhase.SKIPPED
UNKNOWN, GONE, DISMISSED = AttemptPhase.UNKNOWN, AttemptPhase.GONE, AttemptPhase.DISMISSED
READY, BUSY, IDLE = AttemptPhase.READY, AttemptPhase.READING, AttemptPhase.IDLE
ALIVE = (READY, BUSY, IDLE, DISMISSED)
CONNECTED, DISCONNECTED = ConnectionPhase.CONNECTED, ConnectionPhase.DISCONNECTED
GIVEN_UP = ConnectionPhase.GIVEN_UP
READING, EARLY, DONE = ReadingPhase.READING, ReadingPhase.FINISHING_EARLY, ReadingPhase.DONE
MOMENT_S = 1.0
"""Longest time in seconds in which the connections of one lost executor are seen to close."""
MOMENT_SHARE = 0.2
"""It is at most this share of the time in which an attempt may reconnect."""
Commands = tuple[m.SplitsCommand, ...]
ConnectionEvent = m.AttemptDisconnected | m.AttemptReconnected

# --- splits ---------------------------------------------------------------------------------------------------------


def is_withheld(held: RoundSplits, event: m.SplitReturned) -> bool:
    """Only its result has to be sent again."""
    return event.split_id in held.restored_withheld


def give(held: RoundSplits, event: m.SplitAssigned) -> Commands:
    """Note who has it; a result that was withheld is sent without being asked for."""
    attempt = (event.subtask, event.attempt)
    held.holders[event.split_id] = attempt
    held.held[attempt] |= {event.split_id}
    return held.step_attempt(event)


def assign(held: RoundSplits, event: m.SplitAssigned) -> Commands:
    """Have it read."""
    return (*give(held, event), m.Assign(event.subtask, event.attempt, held.splits[event.split_id]))


def release(held: RoundSplits, event: m.SplitReturned | m.SplitDone) -> Commands:
    """Nobody has it any more."""
    attempt = held.holders[event.split_id]
    del held.holders[event.split_id]
    held.held[attempt] -= {event.split_id}
    return ()


def put_back(held: RoundSplits, event: m.SplitReturned) -> Commands:
    """Let it be assigned again, once it has rested; the end of a job says nothing against its splits."""
    release(held, event)
    pause_s = 0.0
    if event.failed:
        held.failures[event.split_id] = held.failures.get(event.split_id, 0) + 1
        pause_s = held.retries.after(held.failures[event.split_id])
    if pause_s > 0:
        held.resting[event.split_id] = event.now + pause_s
    else:
        held.put_back(event.split_id)
    return ()


def skip(held: RoundSplits, _: m.SplitLeftOut | m.SplitReturned) -> Commands:
    """Leave it to the next round."""
    held.incomplete = True
    held.open -= 1
    return ()


def skip_returned(held: RoundSplits, event: m.SplitReturned) -> Commands:
    """Leave it to the next round; nobody has it any more."""
    return (*release(held, event), *skip(held, event))


def accept(held: RoundSplits, event: m.SplitDone) -> Commands:
    """Keep its result."""
    release(held, event)
    held.finish(event.split_id, (event.subtask, event.attempt), event.end_offset)
    return (m.Accept(event.split_id),)


def accept_restored(held: RoundSplits, event: m.SplitReturned) -> Commands:
    """Keep the result that was to be sent again."""
    release(held, event)
    held.finish(event.split_id, RESTORED, held.restored_withheld[event.split_id])
    return (m.AcceptRestored(event.split_id),)


SPLITS: Rules[RoundSplits, m.SplitsCommand] = Rules(
    "splits",
    SplitPhase,
    Rule(UNASSIGNED, m.SplitAssigned, to=ASSIGNED, do=assign),
    Rule(UNASSIGNED, m.SplitLeftOut, to=SKIPPED, do=skip),
    Rule(WITHHELD, m.SplitAssigned, to=ASSIGNED, do=give),
    Rule(ASSIGNED, m.SplitReturned, when=is_withheld, to=FINISHED, do=accept_restored),
    Rule(ASSIGNED, m.SplitReturned, when=lambda held, _: held.finishing_early, to=SKIPPED, do=skip_returned),
    Rule(ASSIGNED, m.SplitReturned, to=UNASSIGNED, do=put_back),
    Rule(ASSIGNED, m.SplitDone, to=FINISHED, do=accept),
)

# --- attempts -------------------------------------------------------------------------------------------------------


def restores_withheld(held: RoundSplits, event: m.AttemptRegistered) -> bool:
    """It sends no result again but those that nobody else sends."""
    return all(held.phases.get(split_id) is WITHHELD for split_id in event.restored)


def was_accepted(held: RoundSplits, event: m.SplitDone) -> bool:
    """It says the same again: its files count, and must not be rejected."""
    return held.finishes.get(event.split_id) == ((event.subtask, event.attempt), event.end_offset)


def finishes(held: RoundSplits, event: m.SplitDone) -> bool:
    """It has the split and read all of it, or as much as a round that finishes early needs."""
    if held.holders.get(event.split_id) != (event.subtask, event.attempt):
        return False
    split = held.splits[event.split_id]
    if event.end_offset == end_of(split):
        return True
    if isinstance(split, SnapshotSplit):
        return split.live and event.end_offset > split.log_offset
    return held.finishing_early and split.start <= event.end_offset < split.stop


def finishes_last(held: RoundSplits, event: m.SplitDone) -> bool:
    """It has no other split, and did not ask for one."""
    return finishes(held, event) and len(held.held[event.subtask, event.attempt]) == 1


def finishes_last_and_waits(held: RoundSplits, event: m.SplitDone) -> bool:
    """It has no other split, and none was free when it asked for one."""
    return finishes_last(held, event) and (event.subtask, event.attempt) in held.waiting


def register(held: RoundSplits, event: m.AttemptRegistered) -> Commands:
    """Let it replace the older attempt of its subtask, and send again what is withheld."""
    commands: Commands = ()
    older = held.newest.get(event.subtask)
    if older is not None and held.attempts[event.subtask, older] is not GONE:
        commands = held.step_attempt(m.AttemptReplaced(event.now, event.subtask, older, event.attempt))
    attempt = (event.subtask, event.attempt)
    held.newest[event.subtask] = event.attempt
    held.held[attempt] = frozenset()
    held.connections[attempt] = CONNECTED
    for split_id in sorted(event.restored, key=held.rank.__getitem__):
        held.step_split(m.SplitAssigned(split_id, *attempt))
    return commands


def wait(held: RoundSplits, event: m.SplitRequested) -> Commands:
    """Serve it in its turn."""
    attempt = (event.subtask, event.attempt)
    held.waiting = held.waiting if attempt in held.waiting else (*held.waiting, attempt)
    return ()


def dismiss(_: RoundSplits, event: m.SplitRequested | m.AttemptDismissed) -> Commands:
    """Tell it that nothing is left."""
    return (m.NoMore(event.subtask, event.attempt),)


def reject(_: RoundSplits, event: m.AttemptRegistered | m.SplitRequested | m.SplitDone) -> Commands:
    """Tell it that it does not count."""
    reason = f"attempt {event.attempt} of subtask {event.subtask} was lost or replaced"
    return (m.Reject(event.subtask, event.attempt, reason),)


def leave(held: RoundSplits, event: m.AttemptLost | m.AttemptReplaced | m.AttemptEnded) -> Commands:
    """Wait for it no more."""
    attempt = (event.subtask, event.attempt)
    held.waiting = tuple(one for one in held.waiting if one != attempt)
    del held.connections[attempt]
    held.disconnected_at.drop(attempt)
    return ()


def lose(held: RoundSplits, event: m.AttemptLost | m.AttemptReplaced) -> Commands:
    """Return what it was reading."""
    leave(held, event)
    return return_splits(held, held.held[event.subtask, event.attempt], event.now, failed=True)


def lose_replaced(held: RoundSplits, event: m.AttemptReplaced) -> Commands:
    """Return what it was reading, and cancel it."""
    return (*lose(held, event), m.Reject(event.subtask, event.attempt, f"replaced by attempt {event.by}"))


def return_splits(held: RoundSplits, split_ids: Iterable[str], now: float, *, failed: bool) -> Commands:
    """Have splits read again, or skipped if the round finishes early."""
    returned = sorted(split_ids, key=held.rank.__getitem__)
    commands = tuple(one for split_id in returned for one in held.step_split(m.SplitReturned(now, split_id, failed)))
    unread = tuple(held.splits[split_id] for split_id in returned if split_id not in held.restored_withheld)
    return (*commands, m.SplitsReturned(unread)) if unread and not held.finishing_early else commands


ATTEMPTS: Rules[RoundSplits, m.SplitsCommand] = Rules(
    "split_attempts",
    AttemptPhase,
    Rule(UNKNOWN, m.AttemptRegistered, when=restores_withheld, to=READY, do=register),
    Rule(ALIVE, m.AttemptRegistered),
    Rule(READY, m.SplitRequested, when=lambda held, _: held.done, to=DISMISSED, do=dismiss),
    Rule(READY, m.SplitRequested, when=lambda held, _: not held.has_free, to=IDLE, do=wait),
    Rule((READY, BUSY), m.SplitRequested, do=wait),
    Rule(IDLE, m.SplitRequested),
    Rule(DISMISSED, m.SplitRequested, do=dismiss),
    Rule((READY, BUSY, IDLE), m.SplitAssigned, to=BUSY),
    Rule((*ALIVE, GONE), m.SplitDone, when=was_accepted),
    Rule(BUSY, m.SplitDone, when=finishes_last_and_waits, to=IDLE, do=RoundSplits.step_split),
    Rule(BUSY, m.SplitDone, when=finishes_last, to=READY, do=RoundSplits.step_split),
    Rule(BUSY, m.SplitDone, when=finishes, do=RoundSplits.step_split),
    Rule(IDLE, m.AttemptDismissed, to=DISMISSED, do=dismiss),
    Rule(ALIVE, m.AttemptLost, to=GONE, do=lose),
    Rule(ALIVE, m.AttemptReplaced, to=GONE, do=lose_replaced),
    Rule(ALIVE, m.AttemptEnded, to=GONE, do=leave),
    Rule(GONE, m.SplitDone, when=lambda held, event: event.split_id in held.splits, do=reject),
    Rule(GONE, (m.AttemptRegistered, m.SplitRequested), do=reject),
    Rule((UNKNOWN, GONE), m.AttemptLost),
)

# --- connections ----------------------------------------------------------------------------------------------------


def note_closed(held: RoundSplits, event: m.AttemptDisconnected) -> Commands:
    """Count the time from here."""
    held.disconnected_at[event.subtask, event.attempt] = event.now
    return ()


def note_open(held: RoundSplits, event: m.AttemptReconnected | m.ConnectionOverdue) -> Commands:
    """Count the time no more."""
    del held.disconnected_at[event.subtask, event.attempt]
    return ()


CONNECTIONS: Rules[RoundSplits, m.SplitsCommand] = Rules(
    "split_connections",
    ConnectionPhase,
    Rule(CONNECTED, m.AttemptDisconnected, to=DISCONNECTED, do=note_closed),
    Rule(DISCONNECTED, m.AttemptReconnected, to=CONNECTED, do=note_open),
    Rule(DISCONNECTED, m.ConnectionOverdue, to=GIVEN_UP, do=note_open),
    Rule((DISCONNECTED, GIVEN_UP), m.AttemptDisconnected),
    Rule((CONNECTED, GIVEN_UP), m.AttemptReconnected),
)

# --- the round ------------------------------------------------------------------------------------------------------


def has_connection(held: RoundSplits, event: ConnectionEvent) -> bool:
    """The attempt registered, and is not gone."""
    return (event.subtask, event.attempt) in held.connections


def give_up(held: RoundSplits, event: m.ConnectionsChecked) -> Commands:
    """Give up who is overdue, and with it those whose connection closed within a moment of it."""
    moment_s = min(MOMENT_S, MOMENT_SHARE * held.reconnect_s)
    overdue = max(held.reconnect_by - held.reconnect_s + moment_s, event.now - held.reconnect_s)
    found = sorted(attempt for attempt, at in held.disconnected_at.items() if at <= overdue)
    for attempt in found:
        held.step_connection(m.ConnectionOverdue(*attempt))
    return (m.GiveUp(tuple(found)),)


def wake(held: RoundSplits, event: m.SplitsRested) -> Commands:
    """Let the splits that have rested be assigned again."""
    for split_id in [split_id for split_id, at in held.resting.items() if at <= event.now]:
        del held.resting[split_id]
        held.put_back(split_id)
    return ()


def end_attempts(held: RoundSplits, event: m.JobEnded) -> Commands:
    """Return what all of them were reading; nothing rests any more."""
    wake(held, m.SplitsRested(now=inf))
    alive = [attempt for attempt, phase in held.attempts.items() if phase is not GONE]
    for attempt in alive:
        held.step_attempt(m.AttemptEnded(*attempt))
    returned = [split_id for attempt in alive for split_id in held.held[attempt]]
    return return_splits(held, returned, event.now, failed=False)


def finish_early(held: RoundSplits, event: m.FinishEarlyRequested) -> Commands:
    """Assign nothing more, but what was begun; a split that rests is left out, too."""
    note_early(held, event)
    wake(held, m.SplitsRested(now=inf))
    free = held.free
    for split_id in free:
        if split_id not in held.begun:
            held.step_split(m.SplitLeftOut(split_id))
    held.keep_free(split_id for split_id in free if split_id in held.begun)
    return tuple(m.SendFinishEarly(*attempt) for attempt, splits in held.held.items() if splits)


def note_early(held: RoundSplits, _: m.FinishEarlyRequested) -> Commands:
    """Remember it."""
    held.finishing_early = True
    return ()


def end(held: RoundSplits, _: m.SplitsEnded) -> Commands:
    """Dismiss those that wait."""
    waiting, held.waiting = held.waiting, ()
    dismissed = [one for attempt in waiting for one in held.step_attempt(m.AttemptDismissed(*attempt))]
    return (*dismissed, m.AllDone(held.incomplete))


ANY = (READING, EARLY, DONE)
ROUND: Rules[RoundSplits, m.SplitsCommand] = Rules(
    "round_splits",
    ReadingPhase,
    Rule(ANY, (m.AttemptRegistered, m.SplitRequested, m.SplitDone, m.AttemptLost), do=RoundSplits.step_attempt),
    Rule(ANY, (m.AttemptDisconnected, m.AttemptReconnected), when=has_connection, do=RoundSplits.step_connection),
    Rule(ANY, (m.AttemptDisconnected, m.AttemptReconnected)),
    Rule(ANY, m.ConnectionsChecked, when=lambda held, event: event.now >= held.reconnect_by, do=give_up),
    Rule(ANY, m.ConnectionsChecked),
    Rule(ANY, m.SplitsRested, do=wake),
    Rule(ANY, m.JobEnded, do=end_attempts),
    Rule(READING, m.FinishEarlyRequested, to=EARLY, do=finish_early),
    Rule(EARLY, m.FinishEarlyRequested),
    Rule(DONE, m.FinishEarlyRequested, do=note_early),
    Rule((READING, EARLY), m.SplitsEnded, to=DONE, do=end),
)


class Splits(RoundSplits):
    """The machine of one round."""

    rules, split_rules, attempt_rules, connection_rules = ROUND, SPLITS, ATTEMPTS, CONNECTIONS

    def take(self, event: m.SplitsEvent) -> Commands:
        """Execute the rule of an event, and serve those that wait."""
        commands = (*super().take(event), *self._serve())
        return commands if self.open or self.done else (*commands, *self.follow(m.SplitsEnded()))

    def _serve(self) -> Iterator[m.SplitsCommand]:
        """Assign free splits to the attempts that wait, first come first served."""
        while self.waiting and self.has_free:
            attempt, *rest = self.waiting
            self.waiting = tuple(rest)
            yield from self.step_split(m.SplitAssigned(self.take_free(), *attempt))
