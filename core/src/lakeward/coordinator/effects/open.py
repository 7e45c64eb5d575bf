"""Finds what a round starts from: source, lake, and the checkpoint that it may go on from. Blocking.

The lake's head is the truth about offsets; the source's own record is repaired when it lags, contradicts or cannot
answer (exactly-once.md).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.checkpoints.restorer import is_gone
from lakeward.coordinator.effects.work import Handlers, Work
from lakeward.coordinator.rounds.alike_columns import AlikeColumns
from lakeward.coordinator.rounds.context import RoundContext, tiered_offsets
from lakeward.coordinator.rounds.contract import under_contract
from lakeward.coordinator.rounds.effects import LookForTable, OpenTable
from lakeward.coordinator.rounds.gathering import layout_of
from lakeward.coordinator.rounds.lake_tables import LakeTables
from lakeward.coordinator.rounds.layout import check_late_rows, check_splits, resolve_layout, with_bucket_counts
from lakeward.coordinator.rounds.mirroring import MIRROR, as_configured
from lakeward.errors import LakeTableGoneError, LakewardError, OffsetsWentBackError, SourceError, TableGoneError
from lakeward.machines.splits import enumerate_splits
from lakeward.model.column_ids import lake_columns
from lakeward.model.identity import REPLAY, RoundId
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.status import ReplayReport
from lakeward.storage.commit_records import CommitRecord, lost_commits, stored_offsets
from lakeward.storage.late_commits import is_accepted, went_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.checkpoints.contents import RestoredRound
    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.effects.policy import RoundPolicy
    from lakeward.coordinator.effects.replay import LetterReplayer
    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.dead_letters import LetterFilter
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import OffsetCommit
    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import Lake, Source
    from lakeward.storage.commit_records import CommitRecords

_log = structlog.get_logger("lakeward.rounds")


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
        replayer: LetterReplayer,
    ) -> None:
        self._incarnation = incarnation
        self._source = source
        self._lake = lake
        self._committed = committed
        self._restorer = restorer
        self._cleaner = cleaner
        self._policy = policy
        self._replayer = replayer
        self._alike = AlikeColumns()
        self._lake_tables = LakeTables(source, policy.rules) if policy.names_lake_tables else None

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        policy = self._policy
        work = Work(
            lambda one, effect: partial(self.open, effect, policy.rules(effect.assignment.path), one.facts.round_id),
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

    def open(
        self, effect: OpenTable, rules: TableSettings, round_id: RoundId
    ) -> tuple[RoundContext, RestoredRound | None]:
        """Return what a round starts from; raises as `start_round`.

        Dead letters are replayed first where somebody asks for it, but not before a round that goes on from a
        checkpoint: it could not, with another commit before its own.
        """
        assignment, us = effect.assignment, self._incarnation
        path = assignment.path
        if self._lake_tables is not None:
            self._lake_tables.check(path)
        may_go_on = self._restorer.known.has(assignment.table_id)
        before = self._lake.head(rules.lake_path(path)) if may_go_on else None
        start = partial(
            start_round, self._source, self._lake, assignment, us, self._committed, rules, gangs=self._policy.gangs
        )
        context = start()
        self._alike.look(context.table)
        self._replayer.finish(context.table, context.head)
        # The stamp as it was before this start's; the newest commit as of now, for one may have landed since.
        head = None if before is None else replace(before, commit=context.head.commit)
        exchange = context.layout.exchange is ExchangeMode.HASH
        restored = self._restorer.find(context.table, head, exchange=exchange) if may_go_on else None
        newest = context.head.commit
        newest_id = None if newest is None else newest.snapshot_id
        self._cleaner.before_round(path, newest_id, context.table.lake_path)
        if restored is None and (wanted := self._replayer.take(path)) is not None:
            replay = self._replay(round_id, context, wanted)
            context = replace(start(), replay=replay)
        if restored is not None:
            # The round reads the checkpoint's splits, not what the buckets contain now.
            context = replace(context, enumeration=restored.state.enumeration())
        layout = layout_of(context, None if restored is None else restored.state.round)
        return replace(context, layout=layout), restored

    def _replay(self, round_id: RoundId, context: RoundContext, wanted: LetterFilter) -> ReplayReport:
        """Replay dead letters; what goes wrong before a commit is for whoever asked, and the round goes on.

        Raises as `LetterReplayer.commit`: another round settles first what has landed.
        """
        path, replay_id = context.table.path, RoundId(round_id.incarnation, round_id.table_id, REPLAY, round_id.number)
        try:
            written = self._replayer.write(replay_id, context, wanted)
        except LakewardError as error:
            _log.error("dead letters were not replayed; ask again", table=str(path), reason=str(error))
            self._cleaner.end_round(replay_id)
            return ReplayReport(reason=str(error))
        if written is None:
            return ReplayReport()
        journal = self._replayer.commit(written, round_id)
        try:
            self._cleaner.sweep_prefix(journal, may_have_orphans=True)
        except LakewardError as error:  # the replay is done; the rest is deleted after the next commit
            _log.warning("left-over files stay for now", round=str(replay_id), reason=str(error))
        return ReplayReport(len(written.found.applied), len(written.found.stay))


def start_round(  # noqa: PLR0917 - the two sides, whose round it is, and its rules
    source: Source,
    lake: Lake,
    assignment: TableAssignment,
    incarnation: Incarnation,
    committed: CommitRecords,
    rules: TableSettings,
    *,
    gangs: bool = True,
) -> RoundContext:
    """Return what a round on a table starts from.

    The lake table is stamped with `incarnation`, this start's, unless it already is. A mirrored table has no record in
    the source. `gangs`: see `resolve_layout`.

    Raises:
        ConfigError: the table cannot have the lake layout that is configured; nothing was created.
        TableGoneError: dropped, or another table of that name.
        LakeTableGoneError: the lake table that held commits is not there; nothing was created.
        OffsetsWentBackError: another service's late commit is behind our own newest one.
        FencedError: a later start of our own service holds the stamp.
        SchemaMismatchError: source and lake do not fit; nothing was created if the source has another lake.
        LogTruncatedError: records that were never tiered are gone.
        OffsetsBeyondLogError: the lake's offsets are beyond the end of the source's log.
    """
    table = as_configured(_same_table(source, assignment), rules)
    layout = resolve_layout(table, rules, gangs=gangs)
    if rules.mode != MIRROR:
        table.check_lake(lake.name)
    record = committed.read(table.table_id)
    in_lake = table.in_lake.path
    before = lake.head(in_lake)
    if lost := lost_commits(source, table, record, before):
        raise LakeTableGoneError(lost)
    check_late_rows(table, lake)
    table = under_contract(table, rules, before)
    lake.open_table(table.in_lake, incarnation)
    head = lake.stamp(in_lake, incarnation)
    table = replace(table, lake_columns=lake_columns(table.schema, head.by_id))
    buckets = source.buckets(table)
    table = with_bucket_counts(table, buckets, lake)
    tiered = tiered_offsets(source, table, head)
    if wrong := went_back(table.path, record, head, tiered, buckets):
        raise OffsetsWentBackError(wrong)
    if record is not None and is_accepted(record, head):
        tiered = record.offsets
    if head.commit is not None:
        _remember(committed, table, record, head.commit, tiered)
    # With an exchange a file mixes splits, so a later range could not be left out of a commit.
    most = 0 if layout.exchange is ExchangeMode.HASH else rules.max_split_rows
    enumeration = enumerate_splits(
        buckets, tiered, primary_key=table.has_primary_key, max_split_rows=most, late_rows=table.late_rows
    )
    check_splits(table, layout, enumeration.splits)
    if head.commit is not None and rules.mode != MIRROR:
        # Only after this check: a source that was re-created must not be given offsets that it never had.
        _repair(source, table, head.commit, tiered)
    return RoundContext(table, head, tiered, buckets, enumeration, layout, rules.bad_rows_most)


def _remember(
    committed: CommitRecords,
    table: TableSpec,
    record: CommitRecord | None,
    commit: OffsetCommit,
    tiered: Mapping[TableBucket, int],
) -> None:
    """Update this service's record of the lake's newest commit; a failure is logged and does not stop the round."""
    if record is not None and record.snapshot_id == commit.snapshot_id:
        return
    try:
        stored, at_ms = stored_offsets(tiered), commit.timestamp_ms
        committed.write(CommitRecord(table.path, table.table_id, commit.snapshot_id, stored, at_ms))
    except LakewardError as error:
        _log.warning("the record of the newest commit was not written", table=str(table.path), reason=str(error))


def _same_table(source: Source, assignment: TableAssignment) -> TableSpec:
    table = source.table(assignment.path)
    if table.table_id != assignment.table_id:
        expected, found = assignment.table_id, table.table_id
        message = f"table {assignment.path}: expected id {expected}, found {found}; it was created anew"
        raise TableGoneError(message)
    return table


def _repair(source: Source, table: TableSpec, commit: OffsetCommit, tiered: Mapping[TableBucket, int]) -> None:
    try:
        record = source.lake_record(table)
    except SourceError as error:
        _log.warning("the source cannot read its lake record; repairing it", table=str(table.path), reason=str(error))
        record = None
    if record is not None and record.snapshot_id == commit.snapshot_id and dict(record.offsets) == dict(tiered):
        return
    _log.info("repairing the source's lake record", table=str(table.path), snapshot_id=commit.snapshot_id)
    source.commit(table, commit.snapshot_id, source.prepare(table, tiered), tiered)
