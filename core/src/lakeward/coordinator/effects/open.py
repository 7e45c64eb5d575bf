"""Finds what a round starts from: source, lake, and the checkpoint that it may go on from. Blocking."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakeward.coordinator.checkpoints.restorer import is_gone
from lakeward.coordinator.effects.work import Handlers, Work
from lakeward.coordinator.rounds.alike_columns import AlikeColumns
from lakeward.coordinator.rounds.context import start_round
from lakeward.coordinator.rounds.effects import LookForTable, OpenTable
from lakeward.model.partitioning import ExchangeMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.checkpoints.contents import RestoredRound
    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.effects.policy import RoundPolicy
    from lakeward.coordinator.rounds.context import RoundContext
    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import TableSettings
    from lakeward.ports import Lake, Source
    from lakeward.storage.commit_records import CommitRecords


class TableOpener:
    """Opens rounds."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        source: Source,
        lake: Lake,
        committed: CommitRecords,
        restorer: Restorer,
        cleaner: Cleaner,
        policy: RoundPolicy,
    ) -> None:
        self._incarnation = incarnation
        self._source = source
        self._lake = lake
        self._committed = committed
        self._restorer = restorer
        self._cleaner = cleaner
        self._policy = policy
        self._alike = AlikeColumns()

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        policy = self._policy
        work = Work(
            lambda _, effect: partial(self.open, effect, policy.rules(effect.assignment.path)),
            what="open",
            purpose="the opening",
            wait_s=policy.lake.commit_timeout_s,
            limit_s=policy.commit_limit_s,
            also_when_ended=False,
        )
        look = Work(self._look, what="look whether there is")
        return Handlers({OpenTable: work, LookForTable: look})

    def _look(self, _: Round, effect: LookForTable) -> Callable[[], bool]:
        return partial(is_gone, self._source, effect.path, effect.table_id)

    def open(self, effect: OpenTable, rules: TableSettings) -> tuple[RoundContext, RestoredRound | None]:
        """Return what a round starts from; raises as `start_round`."""
        assignment, us = effect.assignment, self._incarnation
        path = assignment.path
        may_go_on = self._restorer.known.has(assignment.table_id)
        before = self._lake.head(path) if may_go_on else None
        context = start_round(
            self._source, self._lake, assignment, us, self._committed, rules, gangs=self._policy.gangs
        )
        self._alike.look(context.table)
        # The stamp as it was before this start's; the newest commit as of now, for one may have landed since.
        head = None if before is None else replace(before, commit=context.head.commit)
        exchange = context.layout.exchange is ExchangeMode.HASH
        restored = self._restorer.find(context.table, head, exchange=exchange) if may_go_on else None
        newest = context.head.commit
        self._cleaner.before_round(path, None if newest is None else newest.snapshot_id)
        if restored is not None:
            # The round reads the checkpoint's splits, not what the buckets contain now.
            context = replace(context, enumeration=restored.state.enumeration())
        return context, restored
