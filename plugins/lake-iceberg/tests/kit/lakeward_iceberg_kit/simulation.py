"""Runs the real Iceberg lake behind a faulty gateway, with starts that are killed, overtaken and paused.

One seed is one run: a service tiers one table round by round, and compacts it meanwhile, through the real `Committer`
and the real REST client.
Requests and answers are lost, repeated, late and refused; somebody else commits, expires and tags; a start is killed at
any request or deletion, or paused while its successor works; the table is dropped and created anew. Nothing runs side
by side: what happens meanwhile happens inside a request, so that a seed tells the same story each time.
"""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lakeward.coordinator.commits.committer import Committer, CommitWork
from lakeward.errors import FencedError, LakewardError
from lakeward.model.identity import UPKEEP, Incarnation, RoundId
from lakeward.model.results import CommitIds
from lakeward.model.tables import TableBucket
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward_iceberg_kit.checks import Shelf, check_tables, orphans_of
from lakeward_iceberg_kit.gateway import Fate, Gateway, Request
from lakeward_lake_iceberg import manifests
from lakeward_lake_iceberg.commit import SnapshotBuilder
from lakeward_lake_iceberg.entries import NEWEST
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.storage import Storage
from lakeward_testing.clock import FakeClock
from lakeward_testing.interruptions import Changelog
from lakeward_testing.lake_tables import PATH, incarnation, key_table, log_split, log_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.table import Table

    from lakeward.model.tables import TablePath, TableSpec

_ROWS = 60
_STEPS = 45
_LAST_ROUNDS = 5
_UPKEEP = 0.3
"""Share of a start's steps that are of upkeep."""
_VERSIONS = {"iceberg.write.metadata.previous-versions-max": "3"}
"""So that a metadata file falls out of the log soon."""
_FATES = tuple(fate for fate in Fate if fate not in {Fate.PASSED, Fate.THROTTLED})


class KilledError(BaseException):
    """The process that made a request is gone; nothing may catch this."""


class BrokenError(BaseException):
    """The simulation itself has a mistake; nothing may take it for an answer of the catalog."""


@dataclass(slots=True)
class Journal:
    """What is written down of a round: it outlives the start that made it."""

    round_id: RoundId
    table: TableSpec
    prefix: str
    commits: list[CommitIds] = field(default_factory=list)
    open: bool = True
    base: int | None = None
    """The head that a commit of upkeep was built on, while that may land."""


class _Source:
    """The two calls that a committer makes to a source."""

    def prepare(self, *_: object) -> str:
        return ""

    def commit(self, *_: object) -> None:
        return None


class Start:
    """One start of the service: a lake of its own, one round after the other."""

    def __init__(self, world: World, who: Incarnation) -> None:
        """Open the lake."""
        self._world = world
        self.who = who
        options = msgspec.structs.replace(
            world.gateway.options, keep_snapshots=3, compaction_files=2, compaction_quiet_s=0, compaction_deletes=0.2
        )
        lake = IcebergLakePlugin().open(options, world.clock)
        assert isinstance(lake, IcebergLake)
        self.lake = lake
        self.lake.new_ids = world.new_ids  # type: ignore[method-assign]
        self._number = self._jobs = 0
        self._landed = 0
        self._round: Iterator[None] = iter(())
        self._journal: Journal | None = None
        self._job: Iterator[None] = iter(())
        self._merging: Journal | None = None

    def step(self) -> None:
        """Do the next thing of a round, or of a job of upkeep; an error of ours ends it."""
        if self._landed and self._world.source.random() < _UPKEEP:
            self._step_job()
            return
        try:
            if next(self._round, self) is self:
                self._close()
                self._number += 1
                self._round = self._run_round()
        except FencedError as fenced:
            self._fail(fenced)
            if fenced.by and Incarnation.parse(fenced.by).succeeds(self.who):
                self._world.end(self)
        except LakewardError as error:
            self._fail(error)

    def _step_job(self) -> None:
        try:
            if next(self._job, self) is self:
                self._end_job()
                self._jobs += 1
                self._job = self._run_job()
        except LakewardError as error:
            self._world.tell(f"{self.who.started_ms}: upkeep: {type(error).__name__}")
            self._job = iter(())
            self._end_job()

    def _end_job(self) -> None:
        if self._merging is not None:
            self._merging.open = False
            self._merging = None

    def _run_job(self) -> Iterator[None]:
        """Plan, merge and commit; a round may do anything in between."""
        world, lake, table = self._world, self.lake, self._world.table
        upkeep_id = RoundId(self.who, table.table_id, UPKEEP, self._jobs)
        yield
        self.sweep_jobs()
        plan = lake.plan_upkeep(PATH, upkeep_id, 2)
        if plan is None:
            return
        journal = self._merging = Journal(upkeep_id, table, lake.file_prefix(PATH, upkeep_id))
        world.journals.append(journal)
        yield
        results = []
        for task in plan.tasks:
            results.append(IcebergLakePlugin().upkeep(task, 0, world.killed))
            yield
        outcome = UpkeepOutcome.CONFLICT
        while outcome is UpkeepOutcome.CONFLICT:
            head, ids = lake.head(PATH), lake.new_ids(PATH)
            journal.base = base = None if head is None else head.snapshot_id
            journal.commits.append(ids)
            outcome = lake.commit_upkeep(UpkeepCommit(PATH, upkeep_id, ids, base, plan.tasks, tuple(results)))
        journal.base = None
        world.tell(f"{self.who.started_ms}: upkeep {outcome.value}")
        world.faults[f"upkeep {outcome.value}"] += 1

    def close(self) -> None:
        """The process ends; what it has on disk stays."""
        self._close()
        self._end_job()
        self.lake.close()

    def tier(self) -> None:
        """Do a whole round."""
        self._round = iter(())
        self.step()
        number = self._number
        while self._number == number:
            self.step()

    def compact(self) -> None:
        """Do a whole job of upkeep."""
        self._job = iter(())
        self._step_job()
        number = self._jobs
        while self._jobs == number:
            self._step_job()
        self._end_job()

    def _fail(self, error: LakewardError) -> None:
        said = str(error).replace(self._world.gateway.host, "gateway")  # each world's has a name of its own
        self._world.tell(f"{self.who.started_ms}: {type(error).__name__}: {said}")
        self._round = iter(())
        self._close()

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.open = False
            self._journal = None

    def _run_round(self) -> Iterator[None]:
        world, lake, table = self._world, self.lake, self._world.table
        round_id = RoundId(self.who, table.table_id, 1, self._number)
        bucket = TableBucket(table.table_id, None, 0)
        yield
        lake.open_table(table, self.who)
        yield
        head = lake.stamp(PATH, self.who)
        offsets = {} if head.commit is None else head.commit.offsets or {}
        start = offsets.get(bucket, 0)
        stop = min(_ROWS, start + world.source.randrange(1, 9))
        if stop == start:
            return
        task = lake.writer_task(table, head, round_id)
        journal = self._journal = Journal(round_id, table, lake.file_prefix(PATH, round_id))
        world.journals.append(journal)
        yield
        writer = IcebergLakePlugin().writer(task, table, log_split(table), 1)
        writer.write(world.logs[table.table_id].batch(start, stop, snapshot=False))
        files = writer.close()
        yield
        work = CommitWork(
            round_id=round_id,
            step=1,
            base_commit=None if head.commit is None else head.commit.snapshot_id,
            incarnation=self.who,
            table=table,
            files=files,
            offsets={bucket: stop},
            journal=journal.commits.append,
            may_commit=lambda: None,
        )
        done = Committer(_Source(), lake, world.clock).commit(work)  # type: ignore[arg-type]
        world.tell(f"{self.who.started_ms}: committed up to {stop} as {done.snapshot_id}")
        world.acknowledged[table.table_id] = max(stop, world.acknowledged.get(table.table_id, 0))
        self._landed += 1
        yield
        journal.open = False
        # A commit of ours has landed: none of the others can.
        self._sweep([*world.journals])
        yield
        if self._landed % 3 == 0:
            expired = lake.expire(PATH, frozenset({done.snapshot_id}))
            world.tell(f"{self.who.started_ms}: expired {expired}")

    def sweep_jobs(self) -> None:
        """Delete what jobs of upkeep left that are over, and whose commits cannot land any more."""
        head = self.lake.head(PATH)
        jobs = [one for one in self._world.journals if one.round_id.is_upkeep and not one.open]
        self._sweep([one for one in jobs if one.base is None or head is None or one.base != head.snapshot_id])

    def _sweep(self, journals: Sequence[Journal]) -> None:
        """Delete what rounds and jobs left that did not commit, and cannot any more."""
        for journal in journals:
            if journal is self._merging or journal.round_id.incarnation.succeeds(self.who):
                continue
            if not self._is_ours(journal):
                continue
            tries = [file for ids in journal.commits for file in self.lake.commit_leftovers(PATH, ids)]
            found = (*self.lake.list_prefix(PATH, journal.prefix), *tries)
            spared = self.lake.referenced(PATH, found)
            if not self._is_ours(journal):
                continue  # or the gateway said that there is no table: the next sweep will see
            self.lake.delete(frozenset(found) - spared)
            if not journal.open and journal in self._world.journals:
                self._world.journals.remove(journal)

    def _is_ours(self, journal: Journal) -> bool:
        head = self.lake.head(PATH)
        return head is not None and head.table_id == journal.table.table_id


class World:
    """One run."""

    def __init__(self, seed: int, place: Path) -> None:
        """Start with nothing."""
        self._seed = seed
        self.source = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.clock = FakeClock()
        self.gateway = Gateway(place)
        self.gateway.fate = self._fate
        self.gateway.before = self._before
        self.journals: list[Journal] = []
        self.acknowledged: dict[int, int] = {}
        self.logs: dict[int, Changelog] = {}
        self.shelf = Shelf()
        self.story: list[str] = []
        self.faults: Counter[str] = Counter()
        self.abandoned: set[str] = set()
        """Files that somebody else's expiry left lying: theirs to delete."""
        self._keyed = self.source.random() < 0.7
        self._first_kind = self.source.randrange(2)
        self._trouble = self.source.choice((0.03, 0.08, 0.15))
        self._kills = self.source.choice((0.0, 0.02, 0.04))
        self._quiet = False
        self._depth = 0
        self._now: list[Start] = []
        self._started_ms = 1000
        self._ids = 0
        self._create(7)
        self.current = self._start()
        self._paused: list[Start] = []

    def close(self) -> None:
        """End the processes that are left."""
        for start in (self.current, *self._paused):
            start.close()
        self.gateway.close()

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(line)

    def new_ids(self, path: TablePath) -> CommitIds:
        """Choose ids as a lake does, but the same ones each time."""
        del path
        self._ids += 1
        return CommitIds(f"{self.source.getrandbits(64):016x}-{self._ids}", self.source.getrandbits(62) + 1)

    def end(self, start: Start) -> None:
        """A start has learnt that it was overtaken, or was killed."""
        if start in self._paused:
            self._paused.remove(start)
        elif start is self.current:
            self.current = self._start()
        else:
            return
        start.close()

    def run(self) -> None:
        """Make trouble for a while, then none, and look what is left."""
        for _ in range(_STEPS):
            self._step_of(self.source.choice([self.current, self.current, *self._paused]))
            self._check("after a step")
            if self.source.random() < 0.05:
                self._overtake()
            if self.source.random() < 0.05:
                self._drop_and_create()
        self._quiet = True
        self.gateway.deliver()
        self._paused, paused = [], self._paused
        for start in paused:
            start.close()
        self._overtake()
        for start in self._paused:
            start.close()
        self._paused = []
        for _ in range(_LAST_ROUNDS):
            self.current.tier()
            self.current.compact()
        self.current.sweep_jobs()
        self.current.lake.expire(PATH, frozenset())
        self._check("at the end")
        table = self.gateway.catalog.load_table(("shop", "orders"))
        assert table.metadata.properties["lakeward.table-id"] == str(self.table.table_id), "the live table is another's"
        left = orphans_of(table) - self.abandoned
        assert not left, f"{len(left)} files are left that nobody names: {sorted(left)[:4]}"

    @property
    def table(self) -> TableSpec:
        """The source's table as it is now; each second lake table has no system columns, or another format version."""
        table_id = max(self.logs)
        make = key_table if self._keyed else log_table
        version = "3" if (table_id + self._seed) % 2 else "2"
        return make(
            table_id=table_id,
            properties=_VERSIONS,
            system_columns=bool((table_id + self._first_kind) % 2),
            lake_properties={"format-version": version},
        )

    def killed(self) -> None:
        """The process may be killed now."""
        self._maybe_kill()

    def deleted(self, delete: object) -> None:
        """A file is about to be deleted: the process may be killed right before."""
        del delete
        self._maybe_kill()

    def _create(self, table_id: int) -> None:
        log = Changelog.of_changes(self.source, {}, _ROWS) if self._keyed else Changelog.of_appends(_ROWS)
        self.logs[table_id] = log

    def _start(self) -> Start:
        self._started_ms += 1000
        return Start(self, incarnation(self._started_ms))

    def _step_of(self, start: Start) -> None:
        self._now.append(start)
        try:
            start.step()
        except KilledError:
            self.tell(f"{start.who.started_ms}: killed")
            self.end(start)
        finally:
            self._now.pop()

    def _overtake(self) -> None:
        """Another start takes over; the one before is paused and may wake up."""
        self._paused.append(self.current)
        self.current = self._start()
        self.tell(f"{self.current.who.started_ms}: starts")

    def _drop_and_create(self) -> None:
        self._create(max(self.logs) + 1)
        self.tell(f"source: the table is dropped and created anew as {max(self.logs)}")

    def _fate(self, request: Request) -> Fate:
        likely = self._trouble * (3 if request.changes else 1)
        if self._quiet or not self._now or self.source.random() >= likely:
            return Fate.PASSED
        fate = self.source.choice(_FATES)
        if not request.changes and fate not in {Fate.REQUEST_LOST, Fate.UNAVAILABLE, Fate.MISSING}:
            return Fate.PASSED
        self.tell(f"gateway: {fate.value}: {request.method} {request.path[-1]}")
        self.faults[fate.value] += 1
        return fate

    def _before(self, request: Request) -> None:
        """Let something happen before a request arrives."""
        del request
        if self._quiet or not self._now:
            return
        self._maybe_kill()
        if self._depth == 0 and self.source.random() < 2 * self._trouble:
            self._depth += 1
            try:
                self.source.choice((self._deliver, self._commit, self._expire, self._tag, self._set, self._meanwhile))()
            except Exception as error:
                raise BrokenError from error
            finally:
                self._depth -= 1

    def _maybe_kill(self) -> None:
        if not self._quiet and self._now and self.source.random() < self._kills:
            self.faults["killed"] += 1
            raise KilledError

    def _deliver(self) -> None:
        if self.gateway.late:
            self.tell("gateway: a late request arrives")
            self.gateway.deliver(1)

    def _meanwhile(self) -> None:
        """Whoever is at work is paused in the middle of a request: a successor does some steps."""
        if self._now[-1] is self.current:
            self._overtake()
        for _ in range(self.source.randrange(1, 6)):
            self._step_of(self.current)

    def _commit(self) -> None:
        table = self._somebody()
        if table is not None:
            self.tell("somebody else: commits")
            if table.metadata.format_version == NEWEST:  # pyiceberg cannot
                prepared = SnapshotBuilder(table, self.new_ids(PATH), self.clock.wall_ms()).empty({})
                table.catalog.commit_table(table, prepared.requirements, prepared.updates)
                return
            with table.transaction() as change:
                change.update_snapshot().fast_append().commit()

    def _set(self) -> None:
        table = self._somebody()
        if table is not None:
            with table.transaction() as change:
                change.set_properties(somebody=str(self.source.random()))

    def _tag(self) -> None:
        table = self._somebody()
        if table is not None and table.metadata.snapshots:
            chosen = self.source.choice(table.metadata.snapshots)
            self.tell("somebody else: tags a snapshot")
            table.manage_snapshots().create_tag(chosen.snapshot_id, f"tag{self.source.randrange(3)}").commit()

    def _expire(self) -> None:
        """Expire as pyiceberg does: metadata alone, no file is deleted."""
        table = self._somebody()
        if table is None:
            return
        named = {one.snapshot_id for one in table.metadata.refs.values()}
        free = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in named]
        chosen = [one for one in free if self.source.random() < 0.5]
        if chosen:
            self.tell(f"somebody else: expires {len(chosen)}")
            gone = [one for one in table.metadata.snapshots if one.snapshot_id in chosen]
            self.abandoned |= self.shelf.named_by(table, gone)
            table.maintenance.expire_snapshots().by_ids(chosen).commit()

    def _somebody(self) -> Table | None:
        """Load the live table as somebody else does."""
        identifier = ("shop", "orders")
        return self.gateway.catalog.load_table(identifier) if self.gateway.catalog.table_exists(identifier) else None

    def _check(self, when: str) -> None:
        try:
            check_tables(self.gateway.catalog, self.logs, self.acknowledged, self.shelf)
        except AssertionError as wrong:
            message = f"{when}: {wrong}"
            raise AssertionError(message) from wrong


@contextmanager
def _interrupted_deletions(world: World) -> Iterator[None]:
    """Let a process be killed between any two deletions."""
    delete = Storage.delete

    def interrupted(self: Storage, uri: str) -> None:
        world.deleted(uri)
        delete(self, uri)

    Storage.delete = interrupted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Storage.delete = delete  # type: ignore[method-assign]


@contextmanager
def _merging_early() -> Iterator[None]:
    """Let manifests be merged in short runs as well."""
    before = manifests.MERGED_MANIFESTS
    manifests.MERGED_MANIFESTS = 3
    try:
        yield
    finally:
        manifests.MERGED_MANIFESTS = before


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed: the failure in words, empty where there is none."""

    seed: int
    failure: str
    story: tuple[str, ...]
    faults: Counter[str]


def run_seed(seed: int) -> Outcome:
    """Run one seed."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakeward-iceberg-")))
        world = World(seed, place)
        stack.enter_context(_merging_early())
        stack.enter_context(_interrupted_deletions(world))
        failure = ""
        try:
            world.run()
        except AssertionError as wrong:
            failure = str(wrong)
        except (Exception, BrokenError) as error:  # noqa: BLE001 - an error that is not ours is a finding
            failure = "".join(traceback.format_exception(error))
        world.close()
    return Outcome(seed, failure, tuple(world.story), world.faults)
