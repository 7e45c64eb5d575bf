"""One start of the service at one table: rounds, what follows a commit, and jobs of upkeep, one call after another.

What it does is done by the parts of the service: the committers, the cleaner and the journals are the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.committer import Committer, CommitWork
from lakeward.coordinator.commits.upkeep import UpkeepCommitter
from lakeward.errors import FencedError, LakeError, LakewardError, OutcomeUnknownError
from lakeward.model.identity import UPKEEP, Incarnation, RoundId
from lakeward.model.settings import ServiceSettings, TableSettings
from lakeward.model.splits import LogSplit
from lakeward.storage.round_journal import RoundJournal
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import FanOutLimits, SplitFanOut
from lakeward_lake_paimon.lake import PaimonLake
from lakeward_lake_paimon.merge_task import unpack_task
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.troubles import Process
from lakeward_testing.lake_tables import PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward.model.results import CommitIds, LakeFile, LakeHead
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.model.upkeep import UpkeepPlan, UpkeepResult
    from lakeward.ports import LakeWriter
    from lakeward_paimon_kit.simulation import World
    from lakeward_paimon_kit.source_tables import SourceTable

FENCE_S = 45.0
_LIMIT_S = 100.0
_EXPIRE_EVERY = 2
_MOST_TASKS = 2
_MEMORY = 1 << 20


class _Source:
    """The two calls that a committer makes to a source; `prepared` are the offsets that it stored, by their path."""

    def __init__(self, prepared: dict[str, Mapping[TableBucket, int]]) -> None:
        self._prepared = prepared

    def prepare(self, _: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        path = f"/offsets/{len(self._prepared)}"
        self._prepared[path] = dict(offsets)
        return path

    def commit(self, *_: object) -> None:
        return None


class Start:
    """See the module."""

    def __init__(self, world: World, who: Incarnation) -> None:
        """Open the lake."""
        self._world = world
        self.who = who
        self.process = Process(str(who.started_ms))
        self.overtaken_at: float | None = None
        self.plugin = PaimonLakePlugin()
        lake = self.plugin.open(world.options, world.clock)
        assert isinstance(lake, PaimonLake)
        self.lake = lake
        settings = ServiceSettings(fence_s=FENCE_S)
        journals, clock = world.journals, world.clock
        self.cleaner = Cleaner(lake, journals, clock, who, settings=settings, checkpointed=lambda _: frozenset())
        self.committer = Committer(_Source(world.prepared), lake, clock)  # type: ignore[arg-type]
        self._upkeep = UpkeepCommitter(lake, journals, self.cleaner, lambda _: TableSettings(), _LIMIT_S)
        self.planned: frozenset[str] = frozenset()
        """Files that a job of upkeep merges."""
        self._work = {"round": self._begin(), "upkeep": iter(())}
        self._rounds = self._jobs = self._commits = 0
        self.has_work = True
        """Whether the last round found records, or the last plan something due."""

    def step(self, what: str = "") -> None:
        """Do the next call of a round or of a job of upkeep; an error of ours ends it."""
        what = what or self._world.source.choice(("round", "round", "upkeep") if self._commits else ("round",))
        try:
            if next(self._work[what], self) is self:
                self._work[what] = self._run_round() if what == "round" else self._run_job()
        except FencedError as fenced:
            self._fail(what, fenced)
            if self.overtaken_at is not None:
                self._world.fortune.count("stale start fenced")
            if fenced.by and Incarnation.parse(fenced.by).succeeds(self.who):
                self._world.end(self)
        except LakewardError as error:
            self._fail(what, error)

    def finish(self, what: str) -> None:
        """Do the rest of what is under way."""
        for _ in self._work[what]:
            pass

    def run(self, what: str) -> bool:
        """Do one round, or one job of upkeep; return whether there was anything to do."""
        self.has_work = False
        self._work[what] = self._run_round() if what == "round" else self._run_job()
        self.finish(what)
        return self.has_work

    def sweep(self) -> None:
        """Delete what is due to be looked for again."""
        self.cleaner.again()
        if PATH in self.cleaner.due():
            self.cleaner.sweep_due(PATH)

    def _begin(self) -> Iterator[None]:
        yield
        self.cleaner.again()

    def _fail(self, what: str, error: LakewardError) -> None:
        self._world.tell(f"{self.who.started_ms}: {what}: {type(error).__name__}")
        self._world.fortune.count(f"{what} failed: {type(error).__name__}")
        self._work[what] = iter(())

    # --- rounds ---------------------------------------------------------------------------------------------------

    def _run_round(self) -> Iterator[None]:
        world, lake, table = self._world, self.lake, self._world.table
        spec = table.spec
        self._rounds += 1
        round_id = RoundId(self.who, spec.table_id, 1, self._rounds)
        yield
        lake.open_table(spec, self.who)
        yield
        head = lake.stamp(PATH, self.who)
        yield
        newest = None if head.commit is None else head.commit.snapshot_id
        self.cleaner.before_round(PATH, newest)
        ranges = self._ranges(table, head)
        if not ranges:
            return
        self.has_work = True
        yield
        task = lake.writer_task(spec, head, round_id)
        journal = RoundJournal.begun(round_id, PATH, head.snapshot_id, newest, lake.file_prefix(PATH, round_id))
        world.journals.write(journal)
        self.cleaner.begin(round_id)
        try:
            files: list[LakeFile] = []
            for bucket, (start, stop) in ranges.items():
                yield
                files += self._write(task, table, bucket, start, stop)
            offsets = self._offsets(table, head) | {bucket: stop for bucket, (_, stop) in ranges.items()}
            yield
            journal = self._commit(table, round_id, newest, tuple(files), offsets, journal)
        except LakewardError as error:
            self.cleaner.end(round_id, may_write=False)
            if not isinstance(error, FencedError):
                self._tolerate(lambda: self.cleaner.end_round(round_id), "clean-up")
            raise
        self.cleaner.end(round_id, may_write=False)
        yield
        self._tolerate(lambda: self.cleaner.sweep_prefix(journal, may_have_orphans=True), "clean-up")
        yield
        self._tolerate(lambda: self.cleaner.after_commit(PATH, round_id), "clean-up")
        if self._commits % _EXPIRE_EVERY == 0:
            yield
            self._tolerate(self._expire, "expiry")

    def _ranges(self, table: SourceTable, head: LakeHead) -> dict[TableBucket, tuple[int, int]]:
        tiered, source = self._offsets(table, head), self._world.source
        found = {}
        for bucket, log in table.logs.items():
            start = tiered.get(bucket, 0)
            stop = log.cut(start + source.randrange(0, 9)) if not self._world.fortune.is_quiet else len(log.rows)
            if stop > start:
                found[bucket] = start, stop
        return found

    @staticmethod
    def _offsets(table: SourceTable, head: LakeHead) -> dict[TableBucket, int]:
        known = {} if head.commit is None else dict(head.commit.offsets or {})
        return dict.fromkeys(table.logs, 0) | known

    def _write(
        self, task: bytes, table: SourceTable, bucket: TableBucket, start: int, stop: int
    ) -> tuple[LakeFile, ...]:
        """Write some records, in batches."""
        if self._world.is_late(self):
            message = "the subtasks of a start that was overtaken have ended"
            raise LakeError(message)
        region = table.logs[bucket].region
        split = LogSplit(f"log-{bucket}", bucket, (region,) if region else (), start, stop)
        writer = self._writer(task, table, split)
        while start < stop:
            following = min(stop, table.logs[bucket].cut(start + self._world.source.randrange(1, 9)))
            writer.write(table.batch(bucket, start, following))
            start = following
        return writer.close()

    def _writer(self, task: bytes, table: SourceTable, split: LogSplit) -> LakeWriter:
        spec, attempt = table.spec, 1
        if not table.shape.is_own:
            return self.plugin.writer(task, spec, split, attempt)
        partitioner = self.plugin.partitioner(task, spec)
        files = PartitionFiles(
            lambda partition, name, before, memory: self.plugin.partition_writer(
                task, spec, partition, name, attempt, before, memory
            ),
            split.split_id,
            partitioner,
        )
        moves = bool(spec.outside_key(spec.lake_partition))
        divider = RowDivider(partitioner, spec, bucket=split.bucket.bucket, deletes_old_row=moves)
        return SplitFanOut(divider, files, FanOutLimits(2, _MEMORY, _MEMORY))

    def _commit(  # noqa: PLR0917 - what is committed, and for whom
        self,
        table: SourceTable,
        round_id: RoundId,
        base: int | None,
        files: tuple[LakeFile, ...],
        offsets: Mapping[TableBucket, int],
        journal: RoundJournal,
    ) -> RoundJournal:
        """Commit; return the journal as it is then."""
        world = self._world

        def add_ids(ids: CommitIds) -> None:
            nonlocal journal
            journal = structs.replace(journal, commits=(*journal.commits, (ids.uuid, ids.snapshot_id)))
            world.journals.write(journal)

        work = CommitWork(
            round_id=round_id,
            step=1,
            base_commit=base,
            incarnation=self.who,
            table=table.spec,
            files=files,
            offsets=offsets,
            journal=add_ids,
            may_commit=lambda: None,
            registered=table.spec.union_read,
        )
        done = self.committer.commit(work)
        self._commits += 1
        world.acknowledge(self, round_id, offsets, done.snapshot_id)
        if len(journal.commits) > 1:
            world.fortune.count("commit landed at a later try")
        return journal

    def _expire(self) -> None:
        expired = self.lake.expire(PATH, frozenset())
        self._world.tell(f"{self.who.started_ms}: expired {expired}")
        self._world.fortune.count("expired" if expired else "nothing to expire")

    def _tolerate(self, work: Callable[[], object], what: str) -> None:
        """Do what follows a commit: its failure is no failure of the round."""
        try:
            work()
        except LakewardError as error:
            self._world.tell(f"{self.who.started_ms}: {what}: {type(error).__name__}")
            self._world.fortune.count(f"{what} failed: {type(error).__name__}")

    # --- jobs of upkeep -------------------------------------------------------------------------------------------

    def _run_job(self) -> Iterator[None]:
        self._jobs += 1
        table_id = self._world.table.spec.table_id
        yield
        plan = self._upkeep.plan(PATH, RoundId(self.who, table_id, UPKEEP, self._jobs), _MOST_TASKS)
        if plan is None:
            return
        self.has_work = True
        details = [unpack_task(task.detail) for task in plan.tasks]
        self.planned = frozenset(file.name for one in details for file in one.files)
        self._world.tell(f"{self.who.started_ms}: plans to merge {len(self.planned)} files")
        self._upkeep.begin(plan)
        results: list[UpkeepResult] = []
        began = self._world.clock.now()
        try:
            for task in plan.tasks:
                yield
                if self._world.clock.now() - began >= _LIMIT_S:
                    message = "the tasks of a job have ended, each after its limit"
                    raise LakeError(message)
                results.append(self.plugin.upkeep(task, 0, lambda: None))
        except LakewardError:
            yield from self._discard(plan)
            raise
        yield
        try:
            landed = self._upkeep.commit(plan, results)
        except LakewardError as error:
            self._upkeep.end(plan)
            if isinstance(error, OutcomeUnknownError):
                self._world.fortune.count("upkeep of unknown outcome")
            raise
        finally:
            self.planned = frozenset()
        self._world.tell(f"{self.who.started_ms}: merged" if landed else f"{self.who.started_ms}: the merge is void")
        self._world.fortune.count("upkeep landed" if landed else "upkeep void")
        if not landed:
            yield from self._discard(plan)

    def _discard(self, plan: UpkeepPlan) -> Iterator[None]:
        self.planned = frozenset()
        self._upkeep.end(plan)
        yield
        self._tolerate(lambda: self._upkeep.discard(plan), "discard")
