"""What each event does to a table in hand: the body of the machine `rounds`, but for its heartbeat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines import heartbeats
from lakeward.machines.hand import Hand, RoundsPolicy, TableInHand, Target
from lakeward.machines.round_phases import Phase, Service
from lakeward.machines.round_protocol import (
    AcquireLeases,
    CommitRound,
    CutRound,
    EndRound,
    Forget,
    LaunchJob,
    Opened,
    OpenRound,
    RoundsCommand,
    SendBeat,
    Stopped,
)
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.tables import TablePath
    from lakeward.model.tiering import Offer

STALE_MOST = 5
"""So many rounds in a row that lose their snapshots are a failure: the source cleans up faster than we lease."""


class Moves:
    """One step under way: a copy of the hand to change, and the commands so far."""

    def __init__(self, policy: RoundsPolicy, hand: Hand, now: float) -> None:
        """Start a step.

        Args:
            policy: periods and limits.
            hand: a copy that this step may change.
            now: seconds, the event's.
        """
        self.policy = policy
        self.hand = hand
        self.now = now
        self.commands: list[RoundsCommand] = []

    def put(self, table: TableInHand) -> TableInHand:
        """Keep a table's new state."""
        self.hand.tables[table.offer.table_id] = table
        return table

    def leave(self, table: TableInHand, reason: str) -> None:
        """Let a table out of the hand."""
        del self.hand.tables[table.offer.table_id]
        self.commands.append(Forget(table.offer.table_id, reason))

    def start(self) -> None:
        """Begin to serve with the first tick."""
        if self.hand.service is Service.STARTING:
            self.hand.service = Service.SERVING

    def resumed(self, offers: Iterable[Offer]) -> None:
        """Take a predecessor's tables, which have just been renewed."""
        for offer in offers:
            self.adopt(offer, self.now)

    def adopt(self, offer: Offer, renewed_at: float) -> None:
        """Take an offer. A newer epoch of a table in hand ends its round; a back-off or a pause goes on."""
        table = self.hand.tables.get(offer.table_id)
        deadline = self.now - offer.waited_s + offer.freshness_s
        if table is None:
            self.put(TableInHand(offer, self._at_rest(offer.path, Phase.WAITING), deadline, renewed_at))
            return
        if (offer.coordinator_epoch, offer.epoch) <= (table.offer.coordinator_epoch, table.offer.epoch):
            return
        if table.active or table.phase is Phase.REPORTING:
            self._end(table, "fenced", f"handed out again under epoch {offer.epoch}")
            table = table.at(self._at_rest(offer.path, Phase.WAITING))
        self.put(replace(table, offer=offer, deadline=deadline, renewed_at=renewed_at, report_failures=0))

    def opened(self, table: TableInHand, event: Opened) -> None:
        """Go on to leases, to the job, to the commit, or finish an idle table at once."""
        if event.splits and event.leases:
            self.put(replace(table, phase=Phase.LEASING))
            self.commands.append(AcquireLeases(table.offer.table_id))
        elif event.splits:
            self.launch(table)
        elif event.offsets_moved:
            self.drained(table)
        else:
            self._end(table, "idle")
            self._succeeded(table, forced=False)

    def launch(self, table: TableInHand) -> None:
        """Start the job; its maximum duration counts from here."""
        self.put(replace(table, phase=Phase.RUNNING, cut_at=self.now + self.policy.max_round_s))
        self.commands.append(LaunchJob(table.offer.table_id))

    def drained(self, table: TableInHand) -> None:
        """Commit, or wait for a renewal that is fresh enough."""
        table = self.put(replace(table, phase=Phase.SETTLING, cut_at=None, stale=0))
        if self.may_commit(table):
            self.commit(table)

    def may_commit(self, table: TableInHand) -> bool:
        """True while the newest renewal is younger than the fence time."""
        return self.now - table.renewed_at < self.policy.fence_s

    def commit(self, table: TableInHand) -> None:
        """Start the commit."""
        self.put(replace(table, phase=Phase.COMMITTING))
        self.commands.append(CommitRound(table.offer.table_id))

    def committed(self, table: TableInHand, *, caught_up: bool) -> None:
        """Report it, as to be handed out again at once where more is waiting."""
        self._end(table, "committed")
        self._succeeded(table, forced=table.overran or not caught_up)

    def failed(self, table: TableInHand, reason: str, *, permanent: bool = False, again_soon: bool = False) -> None:
        """End the round and wait out a pause that grows with the tries, or wait for a person."""
        self._end(table, "failed", reason)
        tries = 1 if again_soon else max(table.attempt, 1)
        pause = min(self.policy.backoff_most_s, self.policy.backoff_first_s * 2.0 ** min(tries - 1, 60))
        phase = self._at_rest(table.offer.path, Phase.SUSPENDED if permanent else Phase.BACKOFF)
        retry_at = self.now + pause if phase is Phase.BACKOFF else None
        self.put(replace(table.at(phase, reason=reason, retry_at=retry_at), stale=0))
        self._miss(table.offer.path, reason, final=permanent or table.attempt >= self.policy.once_attempts)

    def snapshots_gone(self, table: TableInHand, reason: str) -> None:
        """Enumerate afresh without counting a failure, but not for ever."""
        stale = table.stale + 1
        if stale >= STALE_MOST:
            self.failed(table, f"its snapshots vanished {stale} times in a row before they were read: {reason}")
            return
        self._end(table, "stale", reason)
        table = self.put(replace(table.at(self._at_rest(table.offer.path, Phase.OPENING)), stale=stale))
        if table.phase is Phase.OPENING:
            self.commands.append(OpenRound(table.offer, table.attempt))

    def gone(self, table: TableInHand) -> None:
        """The table was dropped: it leaves, and `once` waits for it no more."""
        self._abandon(table, "dropped", "the table was dropped", "dropped")

    def fenced(self, table: TableInHand, reason: str, *, lost: bool) -> None:
        """Leave silently where another service has the table; else try again soon."""
        if lost:
            self._abandon(table, "fenced", reason, "fenced")
        elif table.active:
            self.failed(table, reason, again_soon=True)

    def refused(self, table: TableInHand, refusal: Refusal) -> None:
        """The source renewed every table but this."""
        outcome = "dropped" if refusal is Refusal.GONE else "fenced"
        self._abandon(table, outcome, f"the source refused to renew it: {refusal.value}", refusal.value)

    def pause(self, path: TablePath) -> None:
        """Hold a table back; what runs is cut and commits first, a report under way is not called back."""
        self.hand.paused.add(path)
        for table in self.hand.of_path(path):
            if table.phase is Phase.RUNNING:
                self.cut(table, "paused")
            elif table.phase in (Phase.OPENING, Phase.LEASING):
                self._end(table, "stopped", "paused")
                self.put(table.at(Phase.PAUSED))
            elif table.phase in (Phase.WAITING, Phase.BACKOFF, Phase.SUSPENDED) or (
                table.phase is Phase.REPORTING and not self.hand.stopping and not self.hand.under_report(table)
            ):
                self.put(table.at(Phase.PAUSED, reason=table.reason))

    def resume(self, path: TablePath) -> None:
        """Let a paused or suspended table wait for its turn again."""
        self.hand.paused.discard(path)
        for table in self.hand.of_path(path):
            if table.phase in (Phase.PAUSED, Phase.SUSPENDED):
                self.put(table.at(Phase.WAITING, reason=table.reason))
                self._hope(path)

    def cut(self, table: TableInHand, reason: str, *, overran: bool = False) -> None:
        """End a round early, once."""
        if not table.cut:
            self.put(replace(table, cut=True, cut_at=None, overran=overran))
            self.commands.append(CutRound(table.offer.table_id, reason))

    def reached(self, path: TablePath) -> None:
        """`once` waits for this one no more."""
        if self.hand.targets is not None and path in self.hand.targets:
            self.hand.targets[path] = Target(reached=True)

    def settled(self) -> bool:
        """True if `once` waits for nothing: each target is reached, failed for good, or paused."""
        targets = self.hand.targets
        if targets is None or self.hand.stopping:
            return False
        return all(target.reached or target.failed or self._held(path) for path, target in targets.items())

    def stop(self) -> None:
        """Give back what has no round, cut what runs, let commits end."""
        if self.hand.service is Service.STOPPED:
            return
        self.hand.service = Service.STOPPING
        for table in list(self.hand.tables.values()):
            if table.phase in (Phase.OPENING, Phase.LEASING):
                self._give_up(table)
            elif table.phase is Phase.RUNNING:
                self.cut(table, "the service stops")
            elif table.phase in (Phase.WAITING, Phase.BACKOFF, Phase.SUSPENDED, Phase.PAUSED):
                self.put(table.at(Phase.RETURNING, reason=table.reason))

    def stop_timed_out(self) -> None:
        """Give up what is not committed; a commit that is under way only the second time."""
        for table in list(self.hand.tables.values()):
            if table.active and (table.phase is not Phase.COMMITTING or self.hand.timed_out):
                self._give_up(table)
        self.hand.timed_out = True

    def due(self) -> None:
        """Do what is due now: cuts, back-offs, free slots, the heartbeat, the end."""
        for table in list(self.hand.tables.values()):
            if table.cut_at is not None and table.cut_at <= self.now:
                self.cut(table, "the maximum duration is over", overran=True)
            elif table.retry_at is not None and table.retry_at <= self.now:
                self.put(table.at(Phase.WAITING, reason=table.reason))
        self._fill_slots()
        beat = heartbeats.send_if_due(self.hand, self.policy, self.now)
        if beat is not None:
            self.commands.append(SendBeat(beat))
        if self.hand.service is Service.STOPPING and not self.hand.tables and self.hand.sent is None:
            self.hand.service = Service.STOPPED
            self.commands.append(Stopped(self._missed()))

    def _fill_slots(self) -> None:
        """Open waiting tables, the earliest deadline first."""
        tables = self.hand.tables.values()
        free = self.policy.slots - sum(table.active for table in tables)
        waiting = [table for table in tables if table.phase is Phase.WAITING]
        waiting.sort(key=lambda table: (table.deadline, table.offer.table_id))
        for table in waiting[: max(free, 0)]:
            opening = self.put(replace(table, phase=Phase.OPENING, attempt=table.attempt + 1))
            self.commands.append(OpenRound(opening.offer, opening.attempt))

    def _at_rest(self, path: TablePath, phase: Phase) -> Phase:
        """Return where a table goes that would go to `phase`: a stop comes first, then a pause."""
        if self.hand.stopping:
            return Phase.RETURNING
        return Phase.PAUSED if path in self.hand.paused and phase is not Phase.SUSPENDED else phase

    def _succeeded(self, table: TableInHand, *, forced: bool) -> None:
        held_back = table.offer.path in self.hand.paused and not self.hand.stopping
        at = table.at(Phase.PAUSED if held_back else Phase.REPORTING)
        self.put(replace(at, attempt=0, stale=0, forced=forced, report_failures=0))

    def _give_up(self, table: TableInHand) -> None:
        self._end(table, "stopped", "the service stops")
        self.put(table.at(Phase.RETURNING, reason=table.reason))

    def _abandon(self, table: TableInHand, outcome: str, reason: str, word: str) -> None:
        """Leave a table that is no longer ours, without a report."""
        self._end(table, outcome, reason)
        self.leave(table, word)
        if outcome == "dropped":
            self._miss(table.offer.path, "dropped", final=True)

    def _end(self, table: TableInHand, outcome: str, reason: str = "") -> None:
        if table.active:
            self.commands.append(EndRound(table.offer.table_id, outcome, reason))

    def _miss(self, path: TablePath, reason: str, *, final: bool) -> None:
        """Note for `once` why a target was missed; one that was reached stays reached."""
        targets = self.hand.targets or {}
        if path in targets and not targets[path].reached:
            targets[path] = Target(failed=targets[path].failed or final, reason=reason)

    def _hope(self, path: TablePath) -> None:
        targets = self.hand.targets or {}
        if path in targets:
            targets[path] = replace(targets[path], failed=False)

    def _held(self, path: TablePath) -> bool:
        return path in self.hand.paused and not any(table.active for table in self.hand.of_path(path))

    def _missed(self) -> tuple[tuple[TablePath, str], ...]:
        targets = self.hand.targets or {}
        missed = sorted((path, target.reason) for path, target in targets.items() if not target.reached)
        return tuple((path, reason or self._why(path)) for path, reason in missed)

    def _why(self, path: TablePath) -> str:
        return "paused" if path in self.hand.paused else "the service stopped before it was reached"
