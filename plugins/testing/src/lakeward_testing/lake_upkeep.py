"""What a lake must do that offers upkeep of its tables (`lakeward.ports.UpkeepLake` and `UpkeepLakePlugin`).

Fixtures: `plugin` (an `UpkeepLakePlugin`), `options` (an instance of its options, on a fresh warehouse, with which
upkeep is due after a few commits), and `read_table` (a function from `TablePath` to a `pa.Table` of the table's live
rows, by an independent reader). `upkept` may be overridden: the table whose upkeep is tested, with the columns `id` and
`name`.
"""

# ruff: noqa: S101, D102, PLR2004 - these are tests: they assert, and a name states its fact
from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import FencedError, LakeError
from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, mismatch
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    check_landed,
    head_of,
    incarnation,
    key_table,
    log_split,
    source_batch,
)
from lakeward_testing.levels import Conformance, chaos, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakeward.hooks.plugins import UpkeepLakePlugin
    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.model.upkeep import UpkeepPlan, UpkeepResult

    ReadTable = Callable[[TablePath], pa.Table]

MOST_ROUNDS = 40
"""After so many commits upkeep is due at the latest."""
_MOST_TASKS = 4


@dataclass(slots=True)
class UpkeptTable:
    """A lake table, what its rows have to be, and the upkeep of it, as a service would do it."""

    plugin: UpkeepLakePlugin
    lake: Any
    """A `Lake` that is an `UpkeepLake`."""
    table: TableSpec
    who: Incarnation
    rows: dict[int, str] = field(default_factory=dict)
    rounds: int = 0
    offset: int = 0
    jobs: int = 0

    def tier(self, rows: Mapping[int, str | None], bucket: int = 0) -> None:
        """Commit a round that sets these keys; None deletes one."""
        tiering = self.begin(rows, bucket)
        check_landed(self.lake.commit(tiering.request()))

    def begin(self, rows: Mapping[int, str | None], bucket: int = 0) -> TieringRound:
        """Write a round that is not committed yet."""
        self.rounds += 1
        tiering = TieringRound(self.plugin, self.lake, self.table, self.who, number=self.rounds)
        changes = [Change.DELETE if name is None else Change.UPDATE_AFTER for name in rows.values()]
        values = [{"id": key, "name": name if name is not None else self.rows.get(key)} for key, name in rows.items()]
        batch = source_batch(self.table.schema, values, changes=changes, start=self.offset)
        self.offset += len(values)
        tiering.write(log_split(self.table, bucket), [batch])
        for key, name in rows.items():
            if name is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = name
        return tiering

    def plan(self, most: int = _MOST_TASKS) -> UpkeepPlan | None:
        """Ask what is due."""
        self.jobs += 1
        found: UpkeepPlan | None = self.lake.plan_upkeep(
            self.table.path, RoundId(self.who, self.table.table_id, UPKEEP, self.jobs), most
        )
        return found

    def due(self) -> UpkeepPlan:
        """Tier rounds, each with keys of its own in both buckets, until upkeep is due."""
        __tracebackhide__ = True
        for _ in range(MOST_ROUNDS):
            plan = self.plan()
            if plan is not None and plan.tasks:
                return plan
            first = 2 * len(self.rows)
            self.tier({first: f"a{first}", first + 2: f"b{first}"}, bucket=0)
            self.tier({first + 1: f"c{first}", first + 3: f"d{first}"}, bucket=1)
        message = mismatch(f"plan_upkeep after {MOST_ROUNDS} rounds", "a plan", None)
        raise AssertionError(message)

    def work(self, plan: UpkeepPlan, attempt: int = 0) -> list[UpkeepResult]:
        """Do all tasks of a plan."""
        return [self.plugin.upkeep(task, attempt, _go_on) for task in plan.tasks]

    def commit(self, plan: UpkeepPlan, results: Sequence[UpkeepResult], base: int | None = None) -> UpkeepOutcome:
        """Commit what tasks have done, on the head or on another base."""
        planned = {task.number: task for task in plan.tasks}
        tasks = tuple(planned[one.number] for one in results)
        path = plan.path
        ids, head = self.lake.new_ids(path), head_of(self.lake, path).snapshot_id
        commit = UpkeepCommit(path, plan.upkeep_id, ids, head if base is None else base, tasks, tuple(results))
        outcome: UpkeepOutcome = self.lake.commit_upkeep(commit)
        return outcome

    def written(self, plan: UpkeepPlan) -> tuple[str, ...]:
        """List the files of a plan."""
        found: tuple[str, ...] = self.lake.list_prefix(plan.path, self.lake.file_prefix(plan.path, plan.upkeep_id))
        return found

    def check(self, read_table: ReadTable, where: str) -> None:
        """Assert that a reader sees the rows that there have to be."""
        __tracebackhide__ = True
        read = read_table(self.table.path).sort_by("id")
        found = list(zip(read.column("id").to_pylist(), read.column("name").to_pylist(), strict=True))
        expected = sorted(self.rows.items())
        assert found == expected, mismatch(f"{where}: rows of the table as a reader sees it", expected, found)


class LakeUpkeepConformance(Conformance):
    """The contract of `lakeward.ports.UpkeepLake` and `UpkeepLakePlugin`, as tests."""

    __test__ = False

    @pytest.fixture
    def upkept(self) -> TableSpec:
        """The table whose upkeep is tested."""
        return key_table()

    @pytest.fixture
    def opened(self, plugin: UpkeepLakePlugin, options: Any) -> Iterator[Any]:  # noqa: ANN401 - the plugin's own
        """The lake."""
        lake = plugin.open(options, FakeClock())
        yield lake
        lake.close()

    @pytest.fixture
    def table(self, plugin: UpkeepLakePlugin, opened: Any, upkept: TableSpec) -> UpkeptTable:  # noqa: ANN401 - a `Lake`
        """The table, made and stamped."""
        opened.open_table(upkept, incarnation())
        opened.stamp(upkept.path, incarnation())
        return UpkeptTable(plugin, opened, upkept, incarnation())

    def test_upkeep_keeps_rows_offsets_and_stamp_and_comes_to_an_end(
        self, table: UpkeptTable, read_table: ReadTable
    ) -> None:
        plan: UpkeepPlan | None = table.due()
        before = head_of(table.lake)
        for _ in range(MOST_ROUNDS):
            if plan is None or not plan.tasks:
                break
            outcome = table.commit(plan, table.work(plan))
            assert outcome is UpkeepOutcome.LANDED, mismatch("commit_upkeep", UpkeepOutcome.LANDED, outcome)
            plan = table.plan()
        assert plan is None, mismatch(f"plan_upkeep after {MOST_ROUNDS} commits of upkeep", None, plan)
        head, where = head_of(table.lake), "head after upkeep"
        for name in ("table_id", "stamp", "commit", "own"):
            expected, found = getattr(before, name), getattr(head, name)
            assert found == expected, mismatch(f"{where}: {name}", expected, found)
        if before.files is not None and head.files is not None:
            assert head.files < before.files, mismatch(f"{where}: files", f"less than {before.files}", head.files)
        table.check(read_table, "commit_upkeep")

    def test_a_plan_writes_nothing_and_has_no_more_tasks_than_asked_for(self, table: UpkeptTable) -> None:
        table.due()
        head = head_of(table.lake)
        plan = table.plan(most=1)
        assert plan is not None, mismatch("plan_upkeep where it is due", "a plan", plan)
        found = len(plan.tasks)
        assert found == 1, mismatch("plan_upkeep, of which one task is asked: tasks", 1, found)
        assert table.written(plan) == (), mismatch("plan_upkeep: files", (), table.written(plan))
        assert head_of(table.lake) == head, mismatch("head after plan_upkeep", head, head_of(table.lake))

    def test_files_of_each_try_lie_under_the_prefix_and_only_those_that_are_committed_are_referenced(
        self, table: UpkeptTable
    ) -> None:
        plan = table.due()
        first = table.work(plan)
        before = frozenset(table.written(plan))
        second = table.work(plan, attempt=1)
        after = frozenset(table.written(plan))
        for results, files in ((first, before), (second, after - before)):
            found, expected = len(files), sum(one.files for one in results)
            assert found == expected, mismatch("list_prefix: files that one try of each task adds", expected, found)
        table.commit(plan, second)
        named = table.lake.referenced(PATH, after)
        said = mismatch("referenced of the files of two tries, of which the second is committed", after - before, named)
        assert named == after - before, said

    def test_some_tasks_of_a_plan_can_be_committed_without_the_rest(
        self, table: UpkeptTable, read_table: ReadTable
    ) -> None:
        plan = table.due()
        for result in reversed(table.work(plan)):
            outcome = table.commit(plan, [result])
            where = "commit_upkeep of one task of a plan after the other"
            assert outcome is UpkeepOutcome.LANDED, mismatch(where, UpkeepOutcome.LANDED, outcome)
            table.check(read_table, where)

    @upsert
    def test_a_round_that_commits_while_tasks_work_replaces_what_they_have_merged(
        self, table: UpkeptTable, read_table: ReadTable
    ) -> None:
        plan = table.due()
        kept, gone, *_ = sorted(key for key in table.rows if key % 4 == 0)
        results = table.work(plan)
        table.tier({kept: "newer", gone: None})
        outcome = table.commit(plan, results)
        where = "commit_upkeep after a round that came meanwhile"
        assert outcome is UpkeepOutcome.LANDED, mismatch(where, UpkeepOutcome.LANDED, outcome)
        table.check(read_table, where)

    @pytest.mark.parametrize("seed", range(3))
    @upsert
    def test_changes_of_keys_leave_the_rows_of_a_model_whatever_is_merged_when(
        self, table: UpkeptTable, read_table: ReadTable, seed: int
    ) -> None:
        chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        waiting: list[tuple[UpkeepPlan, list[UpkeepResult]]] = []
        for number in range(MOST_ROUNDS):
            keys = chance.sample(range(0, 20, 2), 3)
            table.tier({key: chance.choice((f"n{number}", None)) for key in keys})
            plan = table.plan() if chance.random() < 0.5 else None
            if plan is not None and plan.tasks:
                waiting.append((plan, table.work(plan)))
            if waiting and chance.random() < 0.5:
                table.commit(*waiting.pop(chance.randrange(len(waiting))))
                table.check(read_table, f"commit_upkeep after round {number}")
        for plan, results in waiting:
            table.commit(plan, results)
        table.check(read_table, "commit_upkeep of what was planned long ago")

    @upsert
    def test_expiry_after_upkeep_keeps_every_row(self, table: UpkeptTable, read_table: ReadTable) -> None:
        plan = table.due()
        table.tier(dict.fromkeys(sorted(key for key in table.rows if key % 2 == 0)[:2]))
        table.commit(plan, table.work(plan))
        for _ in range(MOST_ROUNDS):
            table.tier({0: f"round {table.rounds}"})
        table.lake.expire(PATH, frozenset())
        table.check(read_table, "expire after upkeep")

    @chaos
    def test_a_start_that_was_overtaken_is_fenced(self, table: UpkeptTable, read_table: ReadTable) -> None:
        plan = table.due()
        results = table.work(plan)
        table.lake.stamp(PATH, incarnation(2000))
        where = "commit_upkeep by a start whose successor has stamped"
        with expect_error(FencedError, where):
            table.commit(plan, results)
        table.check(read_table, where)

    @chaos
    def test_upkeep_of_a_table_that_was_made_anew_is_fenced(self, table: UpkeptTable, upkept: TableSpec) -> None:
        plan = table.due()
        results = table.work(plan)
        anew = replace(upkept, table_id=upkept.table_id + 1)
        table.lake.open_table(anew, table.who)
        table.lake.stamp(PATH, table.who)
        with expect_error(FencedError, "commit_upkeep for the table before it was made anew"):
            table.commit(plan, results)

    @chaos
    def test_a_commit_on_another_base_than_the_head_is_a_conflict_and_can_be_built_anew(
        self, table: UpkeptTable, read_table: ReadTable
    ) -> None:
        plan = table.due()
        results = table.work(plan)
        base = head_of(table.lake).snapshot_id
        table.tier({0: "meanwhile"})
        outcome = table.commit(plan, results, base)
        where = "commit_upkeep on a base that is no longer the head"
        assert outcome is UpkeepOutcome.CONFLICT, mismatch(where, UpkeepOutcome.CONFLICT, outcome)
        table.check(read_table, where)
        outcome = table.commit(plan, results)
        where = "commit_upkeep, built anew after a conflict"
        assert outcome is UpkeepOutcome.LANDED, mismatch(where, UpkeepOutcome.LANDED, outcome)
        table.check(read_table, where)

    @chaos
    def test_what_has_landed_is_void_if_it_is_committed_again(self, table: UpkeptTable, read_table: ReadTable) -> None:
        plan = table.due()
        results = table.work(plan)
        table.commit(plan, results)
        outcome, where = table.commit(plan, results), "commit_upkeep of what has landed already"
        assert outcome is UpkeepOutcome.VOID, mismatch(where, UpkeepOutcome.VOID, outcome)
        table.check(read_table, where)

    @chaos
    def test_a_round_and_upkeep_that_commit_at_once_lose_no_row(
        self, table: UpkeptTable, read_table: ReadTable
    ) -> None:
        for _ in range(5):
            plan = table.due()
            results = table.work(plan)
            tiering = table.begin({0: f"round {table.rounds}", 2: None})

            def upkeep(plan: UpkeepPlan = plan, results: list[UpkeepResult] = results) -> object:
                return table.commit(plan, results)

            def tier(tiering: TieringRound = tiering) -> object:
                return table.lake.commit(tiering.request())

            with ThreadPoolExecutor(2) as pool:
                first, second = pool.submit(upkeep), pool.submit(tier)
                merged, committed = first.result(), second.result()
            if merged is UpkeepOutcome.CONFLICT:
                merged = upkeep()
            if committed is CommitOutcome.CONFLICT:
                check_landed(table.lake.commit(tiering.request()))
            where = "commit_upkeep while a round commits"
            assert merged is UpkeepOutcome.LANDED, mismatch(where, UpkeepOutcome.LANDED, merged)
            table.check(read_table, where)

    @chaos
    def test_a_task_that_has_to_stop_leaves_no_file(self, table: UpkeptTable) -> None:
        plan = table.due()
        where = "upkeep whose check raises"
        for task in plan.tasks:
            with expect_error(LakeError, where, match="out of time"):
                table.plugin.upkeep(task, 0, _stop)
        assert table.written(plan) == (), mismatch(f"{where}: files", (), table.written(plan))


def _go_on() -> None:
    """Let a task go on."""


def _stop() -> None:
    message = "out of time"
    raise LakeError(message)
