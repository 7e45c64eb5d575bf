"""Commits rounds and steps of rounds, and starts what follows a commit. Blocking, but for what follows."""

from __future__ import annotations

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


class Committing:
    """Commits rounds."""

    def __init__(
        self,
        *,
        clock: Clock,
        committer: RoundCommitter,
        fence: CommitFence,
        upkeep: Upkeep,
        lag: LagAfterCommit,
        targets: TargetOffsets,
        loop: EventLoop,
        policy: RoundPolicy,
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._fence = fence
        self._upkeep = upkeep
        self._lag = lag
        self._targets = targets
        self._loop = loop
        self._policy = policy

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        limit_s = self._policy.commit_limit_s
        commit = Work(
            self._begin, what="commit", purpose="the commit", wait_s=limit_s, limit_s=limit_s, also_when_ended=False
        )
        return Handlers({Commit: commit}, {KeepUp: self._keep_up, CheckTarget: self._check_target})

    def _begin(self, _: Round, effect: Commit) -> Callable[[], CommittedRound] | None:
        if effect.step and not self._fence.allows(effect.commit.round_id):
            return None  # the wait for the table's lock took longer than the fence time
        return partial(self._committer.commit, effect.commit)

    def _keep_up(self, one: Round, effect: KeepUp) -> None:
        if effect.landed:
            ask = partial(self._lag.ask, effect.table, effect.offsets)
            self._loop.spawn(with_log_fields(one.facts.log_fields, ask))
        self._upkeep.after_round(one.facts.round_id, effect.table.path, effect.snapshot_id, landed=effect.landed)

    def _check_target(self, _: Round, effect: CheckTarget) -> None:
        if self._policy.once and self._targets.reached(effect.path, effect.offsets, effect.buckets):
            self._loop.put(TargetReached(now=self._clock.now(), path=effect.path))
