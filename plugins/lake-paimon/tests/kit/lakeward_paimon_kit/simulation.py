"""Runs the real Paimon lake behind a faulty store, with starts that are killed, overtaken and paused.

One seed is one run: a service tiers one table round by round, compacts it and expires its snapshots, through the real
committers, cleaner and journals. The disk refuses, answers of a store or a catalog are lost, repeated and late; another
engine appends, compacts and expires; a start is killed before or after any call of the storage, or paused in it while
its successor works; the table is dropped and created anew. Nothing runs side by side: what happens meanwhile happens
inside a call, so that a seed tells the same story each time.
"""

from __future__ import annotations

import random
import re
import secrets
import tempfile
import time
import traceback
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.storage.round_journal import JournalStore
from lakeward.storage.small_files import SmallFiles
from lakeward_lake_paimon import commit as commits
from lakeward_lake_paimon import compaction, expire
from lakeward_paimon_kit.checks import Checker
from lakeward_paimon_kit.engine import Engine
from lakeward_paimon_kit.gateway import connected
from lakeward_paimon_kit.kills import KilledError
from lakeward_paimon_kit.places import KINDS, Warehouse
from lakeward_paimon_kit.replaced import replaced
from lakeward_paimon_kit.source_tables import Shape, SourceTable
from lakeward_paimon_kit.starts import FENCE_S, Start
from lakeward_paimon_kit.troubles import BrokenError, Fortune, around
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, incarnation

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping

    from lakeward.model.identity import RoundId
    from lakeward.model.tables import TableBucket

_RECORDS = 40
_STEPS = (5, 10, 10, 20, 40)
"""How long runs are: short ones find most mistakes as soon, and what takes long to come about needs a long one."""
_MOST_LAST = 60
_MOST_TAGS = 2
_A_DAY = 100_000
"""Seeds from one day's first to the next day's."""
_OF_ROUND = re.compile(r"/(?:data|changelog)-[^/]*-[0-9a-f]{16}-(\d+)-")
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of each seed's own


class World:
    """One run."""

    def __init__(self, seed: int, place: Path) -> None:
        """Start with nothing."""
        self.source = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.clock = FakeClock()
        self.fortune = Fortune(self.source, self._happen)
        self.shape = Shape.chosen(self.source)
        self.warehouse = Warehouse(self.source.choice(KINDS), place / "warehouse")
        self.warehouse.meet(self.fortune)
        self.options = self.warehouse.options(self.source.randrange(1, 5))
        self.limits = self.source.random() < 0.5
        self.journals = JournalStore(SmallFiles(str(place / "state")), incarnation().service)
        self.prepared: dict[str, Mapping[TableBucket, int]] = {}
        self.acknowledged: dict[RoundId, int] = {}
        self.tables: dict[int, SourceTable] = {}
        self.checker = Checker(self.tables, self.prepared)
        self.abandoned: set[str] = set()
        """Files that somebody else's expiry left lying: theirs to delete."""
        self.steps = self.source.choice(_STEPS)
        self._engines = self.source.choice((0.0, 0.5, 1.0))
        self._started_ms = 1000
        self._foreign = self._tags = 0
        self._checked = -1
        for what in self.shape.words:
            self.fortune.count(what)
        self.fortune.count(f"store: {self.warehouse.kind}")
        self.fortune.count("mirror" if self.shape.is_mirror else "tier")
        self.fortune.count("clean" if self.shape.is_clean else "legacy")
        self._create(7)
        self.paused: list[Start] = []

    def begin(self) -> None:
        """Start the service."""
        self.current = self._start()

    def close(self) -> None:
        """End what is left."""
        self.warehouse.close()

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.fortune.tell(line)

    @property
    def table(self) -> SourceTable:
        """The source's table as it is now."""
        return self.tables[max(self.tables)]

    def acknowledge(self, start: Start, round_id: RoundId, offsets: Mapping[TableBucket, int], snapshot: int) -> None:
        """Note that a commit was said to have landed."""
        self.tell(f"{start.who.started_ms}: committed up to {sum(offsets.values())} as {snapshot}")
        self.fortune.count("committed")
        self.acknowledged[round_id] = snapshot

    def is_late(self, start: Start) -> bool:
        """Return whether the subtasks of a start have ended because it was overtaken long ago."""
        return start.overtaken_at is not None and self.clock.now() - start.overtaken_at >= FENCE_S

    def end(self, start: Start) -> None:
        """A start has learnt that it was overtaken, or was killed."""
        start.process.is_dead = True
        if start in self.paused:
            self.paused.remove(start)
        elif start is self.current:
            self.current = self._start()

    def run(self) -> None:
        """Make trouble for a while, then none, and look what is left."""
        self.begin()
        for _ in range(self.steps):
            self._step_of(self.source.choice([self.current, self.current, self.current, *self.paused]))
            self.clock.advance(self.source.choice((0, 1, 10, 40)))
            if self.source.random() < 0.02:
                self._overtake()
            if self.warehouse.renames and self.source.random() < 0.008:
                self._drop_and_create()
            if self.source.random() < 0.06:
                self._happen(can_pause=False)
        self._end_well()

    def _end_well(self) -> None:
        self.fortune.is_quiet = True
        self.warehouse.deliver()
        self.paused = []
        self.current = self._start()
        self._act(self.current, lambda: self._last(self.current))
        self._check("at the end")
        live = self.warehouse.live
        assert live is not None
        story = self.checker.story_at(live)
        assert story is not None
        assert story.table_id == self.table.spec.table_id, "the live table is another's"
        assert story.reached == self.table.ends, f"the table is at {story.reached} of {self.table.ends}"
        left = {path for path in self.checker.orphans(live) - self.abandoned if not self._is_of_another(path)}
        assert not left, f"{len(left)} files are left that nobody needs: {sorted(left)[:4]}"

    def _is_of_another(self, path: str) -> bool:
        """Return whether a file is of a round of an earlier table.

        A writer that is late writes by the path of its table, which another one may have by then.
        """
        named = _OF_ROUND.search(path)
        return named is not None and int(named[1]) != self.table.spec.table_id

    def _last(self, start: Start) -> None:
        """Do all that is due, without trouble."""
        for what in ("round", "upkeep"):
            for _ in range(_MOST_LAST):
                has_work = start.run(what)
                self._check("at the end")
                if not has_work:
                    break
            else:
                message = f"there is a {what} to do after {_MOST_LAST} of them"
                raise AssertionError(message)
        for _ in range(3):
            self.clock.advance(4000)
            start.sweep()
        for _ in range(_MOST_LAST):
            if not start.lake.expire(PATH, frozenset()):
                break
        self._check("after the last expiry")
        head = start.lake.head(PATH)
        assert head is not None
        assert head.snapshot_id is not None
        batches = start.lake.read_rows(PATH, head.snapshot_id)
        rows = sum(batch.num_rows for batch in batches)
        story = self.checker.story_at(Path(self._live()))
        assert story is not None
        foreign = sum(map(len, story.foreign.values()))
        expected = len(self.table.rows_at(self.table.ends)) + foreign
        assert rows == expected, f"the lake's own reader finds {rows} rows, expected {expected}"

    def _live(self) -> Path:
        live = self.warehouse.live
        assert live is not None
        return live

    def _create(self, table_id: int) -> None:
        self.tables[table_id] = SourceTable(self.source, self.shape, table_id, self.source.randrange(10, _RECORDS))

    def _start(self) -> Start:
        self._started_ms += 1000
        self.fortune.acting.append(None)
        try:
            return Start(self, incarnation(self._started_ms))
        finally:
            self.fortune.acting.pop()

    def _step_of(self, start: Start) -> None:
        self._act(start, start.step)
        self._check("after a step")

    def _act(self, start: Start, work: object) -> None:
        assert callable(work)
        self.fortune.acting.append(start.process)
        try:
            work()
        except KilledError:
            self.tell(f"{start.who.started_ms}: killed")
            self.end(start)
        finally:
            self.fortune.acting.pop()

    def _overtake(self) -> None:
        """Another start takes over; the one before is paused and may wake up."""
        self.current.overtaken_at = self.clock.now()
        self.paused.append(self.current)
        self.current = self._start()
        self.fortune.count("overtaken")
        self.tell(f"{self.current.who.started_ms}: starts")

    def _drop_and_create(self) -> None:
        self._create(max(self.tables) + 1)
        self.fortune.count("dropped and created")
        self.tell(f"source: the table is dropped and created anew as {max(self.tables)}")

    def _happen(self, *, can_pause: bool = True) -> None:
        """Let something happen while a process is in a call, or between two calls."""
        kinds = [self._deliver]
        if can_pause:
            kinds += [self._pause, self._pause]
        if self.source.random() < self._engines:
            kinds += [self._append, self._compact, self._compact, self._expire, self._tag]
        self.fortune.changes += 1
        self.fortune.acting.append(None)
        try:
            self.source.choice(kinds)()
        finally:
            self.fortune.acting.pop()

    def _deliver(self) -> None:
        if self.warehouse.deliver(1):
            self.tell("a late request arrives")

    def _pause(self) -> None:
        """Whoever is at work is paused in the middle of a call: a successor does some steps."""
        if self.fortune.acting[-2] is self.current.process:
            self._overtake()
            self.fortune.count("paused in a call")
        for _ in range(self.source.choice((1, 3, 8, 60))):
            self._step_of(self.current)

    def _engine(self) -> tuple[Engine, Path] | None:
        folder = self.warehouse.live
        there = folder is not None and any((folder / "snapshot").glob("snapshot-*"))
        return (Engine(self.source, folder, self.warehouse.publish), folder) if folder is not None and there else None

    def _append(self) -> None:
        found = self._engine()
        if found is None:
            return
        engine, folder = found
        self._foreign += 1
        story = self.checker.story_at(folder)
        rows = engine.append(self._foreign)
        if story is not None:
            story.foreign[engine.head + 1] = rows
        self.tell(f"somebody else: appends {len(rows)} rows as {engine.head + 1}")
        self.fortune.count("foreign append of a row" if rows else "foreign empty commit")

    def _compact(self) -> None:
        found = self._engine()
        if found is None:
            return
        engine, _ = found
        gone = engine.compact()
        if gone:
            self.tell(f"somebody else: compacts {len(gone)} files as {engine.head + 1}")
            self.fortune.count("foreign compaction")
            if any(gone & start.planned for start in (self.current, *self.paused)):
                self.fortune.count("foreign compaction of planned files")

    def _expire(self) -> None:
        self._check("before somebody else's expiry")
        found = self._engine()
        if found is None:
            return
        engine, folder = found
        count = self.source.randrange(1, 5)
        if not self.checker.has_copy(folder):
            # A commit whose start died before it was copied, and which somebody expires before the next one comes, is
            # in no file any more.
            self.fortune.count("foreign expiry that would take an only copy")
            return
        self.abandoned |= engine.expire(count)
        self.tell("somebody else: expires")
        self.fortune.count("foreign expiry")

    def _tag(self) -> None:
        found = self._engine()
        if found is not None and self._tags < _MOST_TAGS:
            self._tags += 1
            found[0].tag(str(self._tags))
            self.tell(f"somebody else: tags {found[0].head}")
            self.fortune.count("foreign tag")

    def _check(self, when: str) -> None:
        """Check all, if anything was changed since the last time."""
        if self._checked == (changes := self.fortune.changes):
            return
        self._checked = changes
        try:
            self.checker.check(self.warehouse.folders, self.acknowledged)
        except AssertionError as wrong:
            message = f"{when}: {wrong}"
            raise AssertionError(message) from wrong


@contextmanager
def _low_limits(world: World) -> Iterator[None]:
    """Let limits be met in short runs: of manifests, of offsets in a snapshot, of an expiry, and of a merge."""
    if not world.limits:
        yield
        return
    with (
        replaced(commits, "_MERGE_FROM", 3),
        replaced(commits, "INLINE_BYTES", 10),
        replaced(expire, "_AT_MOST", 2),
        replaced(compaction, "MOST_BYTES", 1),
    ):
        yield


@contextmanager
def _chosen_names(seed: int) -> Iterator[None]:
    """Let names of files be the same ones each time: what is sorted by them comes in the same order."""
    names = random.Random(seed)  # noqa: S311 - reproducible on purpose
    with (
        replaced(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4)),
        replaced(secrets, "token_hex", lambda count: names.randbytes(count).hex()),
    ):
        yield


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed: the failure in words, empty where there is none."""

    seed: int
    failure: str
    story: tuple[str, ...]
    faults: Counter[str]


def first_of_today() -> int:
    """Return the first seed of the day (UTC): nobody tunes the product to the same few."""
    return int(time.strftime("%Y%m%d", time.gmtime())) * _A_DAY


def run_seed(seed: int) -> Outcome:
    """Run one seed."""
    with ExitStack() as stack:
        folder = str(_IN_MEMORY) if _IN_MEMORY.is_dir() else None
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakeward-paimon-", dir=folder)))
        world = World(seed, place)
        stack.enter_context(connected(world.warehouse.store))
        stack.enter_context(_low_limits(world))
        stack.enter_context(_chosen_names(seed))
        failure = ""
        try:
            with around(world.fortune):
                world.run()
        except AssertionError as wrong:
            failure = str(wrong)
        except (Exception, BrokenError) as error:  # noqa: BLE001 - an error that is not ours is a finding
            failure = "".join(traceback.format_exception(error))
        world.close()
    return Outcome(seed, failure, tuple(world.fortune.story), world.fortune.faults)
