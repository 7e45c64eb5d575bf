"""Upkeep in the simulator: a lake that merges its tables' files, and the jobs that do it, with tasks that die anywhere.

The lake is as a real one: a commit is built on the head as it is then, and one without an answer may land later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import FencedError, LakeError
from lakeward.model.jobs import UpkeepJobEnd
from lakeward.model.upkeep import UpkeepOrder, UpkeepOutcome, UpkeepPlan, UpkeepResult, UpkeepTask
from lakeward_simulator.lake import COMMIT, READ, LakeTable, SimLake, Snapshot
from lakeward_simulator.scheduler import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.model.identity import RoundId
    from lakeward.model.jobs import UpkeepJob
    from lakeward.model.tables import TablePath
    from lakeward.model.upkeep import UpkeepCommit
    from lakeward_simulator.loop import SimLoop
    from lakeward_simulator.world import World

_FROM = 3
"""So many files are merged."""
_TRIES = 3
_START_S = 0.5
_WORK_S = 4.0
Merged = tuple[tuple[str, ...], str]


@dataclass(eq=False, slots=True)
class _Late:
    """A commit of upkeep whose sender got no answer; `size` is that of the log that it was built on."""

    table: LakeTable
    number: int
    merged: tuple[Merged, ...]
    size: int

    @property
    def may_land(self) -> bool:
        """Whether the head is still the one that it was built on."""
        return len(self.table.log) == self.size


class UpkeptLake(SimLake):
    """See `lakeward.ports.UpkeepLake`."""

    def __init__(self, world: World) -> None:
        """Start empty."""
        super().__init__(world)
        self.merges = 0
        """Upkeep that has landed."""
        self._unanswered: list[_Late] = []

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        """See Protocol."""
        self._call("plan upkeep", READ, self._id(path))
        table = self.tables.get(path)
        live = [] if table is None else table.live()
        if len(live) < _FROM:
            return None
        prefix, size = self.file_prefix(path, upkeep_id), -(-len(live) // most)
        groups = [live[at : at + size] for at in range(0, len(live), size)]
        tasks = tuple(
            UpkeepTask(number, len(group), len(group), json.dumps([prefix, group]).encode())
            for number, group in enumerate(groups)
            if len(group) > 1
        )
        return UpkeepPlan(path, upkeep_id, "compaction", tasks) if tasks else None

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        """See Protocol."""
        path, who = commit.path, commit.upkeep_id
        how = self._call("commit upkeep", COMMIT, who.table_id)
        table = self.tables.get(path)
        if table is None or table.table_id != who.table_id or table.stamp != who.incarnation:
            message = f"{path}: expected the stamp {who.incarnation}"
            raise FencedError(message, "" if table is None else str(table.stamp))
        if how == "conflict":
            self._compact_elsewhere(table)
        size = len(table.log)
        if table.log[-1].number != commit.base_snapshot:
            return UpkeepOutcome.CONFLICT
        pairs = zip(commit.tasks, commit.results, strict=True)
        merged = tuple((tuple(json.loads(task.detail)[1]), result.detail.decode()) for task, result in pairs)
        live = frozenset(table.live())
        if not all(file in live for files, _ in merged for file in files):
            return UpkeepOutcome.VOID
        self._world.point("lake")
        late = _Late(table, commit.ids.snapshot_id, merged, size)
        if how == "unknown" and (chance := self._world.random.random()) < 0.75:
            self._unanswered.append(late)
            if chance < 0.5:
                self._world.scheduler.after(chance * 20, partial(self._land_upkeep, late))
            self._unknown(path)
        landed = self._land_upkeep(late)
        if how == "unknown":
            self._unknown(path)
        return UpkeepOutcome.LANDED if landed else UpkeepOutcome.CONFLICT

    def delete(self, files: Collection[str]) -> None:
        """See Protocol."""
        for late in self._unanswered:
            named = {path for _, path in late.merged}
            if late.may_land and not named.isdisjoint(files):
                self._world.checks.fail(f"files are deleted that upkeep names which may still land: {named}")
        super().delete(files)

    def do_task(self, task: UpkeepTask, attempt: int) -> UpkeepResult:
        """Merge files, in an executor.

        Raises:
            LakeError: one of them is gone.
        """
        prefix, files = json.loads(task.detail)
        if not all(file in self.files for file in files):
            message = "a file that is to be merged is gone"
            raise LakeError(message)
        path = f"{prefix}{task.number}-{attempt}"
        self.closing(path)
        self.files[path] = tuple(row for file in files for row in self.files[file])
        return UpkeepResult(task.number, 1, 1, path.encode())

    def _compact_elsewhere(self, table: LakeTable) -> None:
        """Somebody else merges the two oldest files, or makes a snapshot that merges none."""
        live = table.live()[:2]
        merged: tuple[Merged, ...] = ()
        if len(live) > 1 and self._world.random.random() < 0.5:
            path = f"{table.location}/elsewhere/nobody/x/{self._next()}"
            self.files[path] = tuple(row for file in live for row in self.files[file])
            merged = ((tuple(live), path),)
        table.log.append(Snapshot(self._next(), None, merged=merged))

    def _land_upkeep(self, late: _Late) -> bool:
        """Swap: only on the very head that was built on."""
        if late in self._unanswered:
            self._unanswered.remove(late)
        if not late.may_land:
            return False
        late.table.log.append(Snapshot(late.number, None, merged=late.merged))
        self.merges += 1
        self._world.story.note("lake", f"merges {sum(len(files) for files, _ in late.merged)} files")
        self._world.checks.merged(late.table)
        return True


class _Task(Process):
    """One task of upkeep."""


@dataclass(eq=False)
class SimUpkeepJob:
    """One job of upkeep."""

    world: World
    loop: SimLoop
    spec: UpkeepJob
    on_done: Callable[[UpkeepJobEnd], None]
    ended: bool = False
    tasks: dict[int, _Task] = field(default_factory=dict)
    _results: dict[int, str] = field(default_factory=dict)
    _tries: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start all tasks."""
        for number in range(len(self.spec.orders)):
            self._start(number)

    @property
    def occupied(self) -> int:
        """How many slots it has."""
        return 0 if self.ended else sum(task.alive for task in self.tasks.values())

    def end(self, reason: str | None) -> None:
        """The job is over; tasks of it that run live on for a while."""
        if self.ended:
            return
        self.ended = True
        for task in self.tasks.values():
            self.world.scheduler.after(self.world.random.random() * 10.0, task.kill)
        outcomes = () if reason else tuple(self._results[number] for number in sorted(self._results))
        self.loop.after(self.loop.random.random() * 0.2, partial(self.on_done, UpkeepJobEnd(outcomes, reason)))

    def die(self) -> None:
        """Its driver is dead."""
        self.ended = True
        for task in self.tasks.values():
            self.world.scheduler.after(self.world.random.random() * 10.0, task.kill)

    def lose_task(self) -> bool:
        """Lose the executor of a task, before or after it has written."""
        running = [number for number, task in self.tasks.items() if task.alive and number not in self._results]
        if not running or self.ended:
            return False
        number = self.world.random.choice(running)
        self.tasks[number].kill()
        self._again(number, "its executor was lost")
        return True

    def _start(self, number: int) -> None:
        if self.ended:
            return
        attempt = self._tries[number] = self._tries.get(number, -1) + 1
        task = self.tasks[number] = _Task(self.world.scheduler, f"{self.loop.name}/{self.spec.name}/{number}.{attempt}")
        chance = self.world.random
        task.after(chance.random() * (_START_S + _WORK_S), self._write, task, number, attempt)

    def _write(self, task: _Task, number: int, attempt: int) -> None:
        lake = self.world.lake
        assert isinstance(lake, UpkeptLake)
        order = msgspec.msgpack.decode(self.spec.orders[number], type=UpkeepOrder)
        try:
            result = lake.do_task(order.task, attempt)
        except LakeError as error:
            task.kill()
            self._again(number, str(error))
            return
        task.after(self.world.random.random() * _START_S, self._done, task, number, result)

    def _done(self, task: _Task, number: int, result: UpkeepResult) -> None:
        task.kill()
        if self.ended or self.tasks[number] is not task:
            return
        done = msgspec.structs.replace(result, attempt=self._tries[number])
        self._results[number] = msgspec.json.encode(done).decode()
        if len(self._results) == len(self.spec.orders):
            self.end(None)

    def _again(self, number: int, reason: str) -> None:
        if self.ended:
            return
        if self._tries[number] + 1 >= _TRIES:
            self.end(reason)
        else:
            self._start(number)
