"""Commits rounds and steps of rounds, and starts what follows a commit. Blocking, but for what follows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakeward.coordinator.effects.work import Handlers, Work
from lakeward.coordinator.rounds.effects import CheckTarget, Commit, KeepUp
from lakeward.coordinator.workers.log_fields import with_log_fields
from lakeward.machines.rounds import TargetReached

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.commits.round_committer import CommittedRound, RoundCommitter
    from lakeward.coordinator.effects.lag import LagAfterCommit
    from lakeward.coordinator.effects.policy import RoundPolicy
    from lakeward.coordinator.effects.upkeep import Upkeep
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.tables.targets import TargetOffsets
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.ports import Clock


@dataclass(frozen=True, eq=False, kw_only=True)
class Committing:
    """Commits rounds."""

    clock: Clock
    committer: RoundCommitter
    fence: CommitFence
    upkeep: Upkeep
    lag: LagAfterCommit
    targets: TargetOffsets
    loop: EventLoop
    policy: RoundPolicy

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        limit_s = self.policy.commit_limit_s
        commit = Work(
            self._begin, what="commit", purpose="the commit", wait_s=limit_s, limit_s=limit_s, also_when_ended=False
        )
        return Handlers({Commit: commit}, {KeepUp: self._keep_up, CheckTarget: self._check_target})

    def _begin(self, _: Round, effect: Commit) -> Callable[[], CommittedRound] | None:
        if effect.step and not self.fence.allows(effect.commit.round_id):
            return None  # the wait for the table's lock took longer than the fence time
        return partial(self.committer.commit, effect.commit)

    def _keep_up(self, one: Round, effect: KeepUp) -> None:
        if effect.landed:
            ask = partial(self.lag.ask, effect.table, effect.offsets)
            self.loop.spawn(with_log_fields(one.facts.log_fields, ask))
        self.upkeep.after_round(one.facts.round_id, effect.table, effect.snapshot_id, landed=effect.landed)

    def _check_target(self, _: Round, effect: CheckTarget) -> None:
        if self.policy.once and self.targets.reached(effect.path, effect.offsets, effect.buckets):
            self.loop.put(TargetReached(now=self.clock.now(), path=effect.path))
