"""The suite for upkeep says what is wrong with a lake that breaks one promise of `UpkeepLake` or `UpkeepLakePlugin`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs

from lakeward.errors import FencedError, LakeError
from lakeward.model.upkeep import UpkeepOutcome, UpkeepPlan, UpkeepResult, UpkeepTask
from lakeward_service_kit.suites import failures, plain_part
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin, FolderOptions, write_file
from lakeward_testing.lake_tables import COLUMNS, head_of, incarnation, key_table
from lakeward_testing.lake_upkeep import LakeUpkeepConformance, UpkeptTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.identity import RoundId
    from lakeward.model.tables import TablePath
    from lakeward.model.upkeep import UpkeepCommit


class _Lake(FolderLakePlugin):
    """A right plugin of a lake that may be wrong."""

    lake: type[FolderLake] = FolderLake

    def open(self, options: FolderOptions, clock: object) -> FolderLake:
        del clock
        return self.lake(Path(options.path), merge_from=options.merge_from)


class LosesRows(FolderLakePlugin):
    """A task leaves out the rows of one file."""

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        folder, files = json.loads(task.detail)
        return super().upkeep(structs.replace(task, detail=json.dumps([folder, files[1:]]).encode()), attempt, check)


class MergesInTheWrongOrder(FolderLakePlugin):
    """A task takes the newest file first."""

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        folder, files = json.loads(task.detail)
        return super().upkeep(structs.replace(task, detail=json.dumps([folder, files[::-1]]).encode()), attempt, check)


class WritesOverTheFirstTry(FolderLakePlugin):
    """Each try of a task writes the same file."""

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        done = super().upkeep(task, attempt, check)
        written = Path(done.detail.decode())
        same = written.rename(written.with_name(f"{task.number}.arrow"))
        return structs.replace(done, detail=str(same).encode())


class LeavesWhatItHasBegun(FolderLakePlugin):
    """A task that has to stop leaves a file."""

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        folder, files = json.loads(task.detail)
        write_file(Path(folder), "begun", pa.ipc.open_file(files[0]).read_all().to_batches())
        return super().upkeep(task, attempt, check)


class NeverStops(FolderLakePlugin):
    """A task asks nobody whether its time is over."""

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        del check
        return super().upkeep(task, attempt, lambda: None)


class _NeverDue(FolderLake):
    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        del path, upkeep_id, most
        return None


class IsNeverDue(_Lake):
    """There is nothing to do, however many files there are."""

    lake = _NeverDue


class _PlansTwice(FolderLake):
    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        plan = super().plan_upkeep(path, upkeep_id, most)
        if plan is None or len(plan.tasks) >= 2:
            return plan
        return replace(plan, tasks=(*plan.tasks, structs.replace(plan.tasks[0], number=1)))


class PlansMoreThanIsAskedFor(_Lake):
    """A plan has a task too many."""

    lake = _PlansTwice


class _Stamps(FolderLake):
    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        plan = super().plan_upkeep(path, upkeep_id, most)
        if plan is not None:
            write_file(Path(self.file_prefix(path, upkeep_id)), "plan", [pa.record_batch({"id": [1]})])
        return plan


class WritesItsPlanDown(_Lake):
    """A plan leaves a file."""

    lake = _Stamps


class _Unfenced(FolderLake):
    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        try:
            return super().commit_upkeep(commit)
        except FencedError:
            return UpkeepOutcome.VOID


class IsNotFenced(_Lake):
    """A later start does not keep an earlier one from committing."""

    lake = _Unfenced


class _AnyBase(FolderLake):
    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        return super().commit_upkeep(replace(commit, base_snapshot=head_of(self).snapshot_id))


class BuildsOnAnyHead(_Lake):
    """A commit lands on another head than the one that it was given."""

    lake = _AnyBase


class _NeverVoid(FolderLake):
    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        outcome = super().commit_upkeep(commit)
        return UpkeepOutcome.CONFLICT if outcome is UpkeepOutcome.VOID else outcome


class TriesForEver(_Lake):
    """What can never be committed is a conflict."""

    lake = _NeverVoid


class _AllOrNothing(FolderLake):
    most = 0

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        plan = super().plan_upkeep(path, upkeep_id, most)
        self.most = 0 if plan is None else len(plan.tasks)
        return plan

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        if len(commit.tasks) < self.most + 1:
            message = "expected all tasks of the plan"
            raise LakeError(message)
        return super().commit_upkeep(commit)


class CommitsAllOrNothing(_Lake):
    """A part of a plan cannot be committed."""

    lake = _AllOrNothing


class _Forgets(FolderLake):
    def referenced(self, path: TablePath, files: Any) -> frozenset[str]:  # noqa: ANN401 - as the port
        return frozenset(file for file in super().referenced(path, files) if "upkeep" not in file)


class ForgetsWhatItHasMerged(_Lake):
    """Files that upkeep has committed are not referenced."""

    lake = _Forgets


KEEPS, MODEL = "test_upkeep_keeps_rows_offsets", "test_changes_of_keys_leave"
PLAN, FILES, SOME = "test_a_plan_writes_nothing", "test_files_of_each_try", "test_some_tasks"
FENCED, BASE, VOID = "test_a_start_that_was_overtaken", "test_a_commit_on_another_base", "test_what_has_landed_is_void"
STOP = "test_a_task_that_has_to_stop"
WRONG: list[tuple[type, str, str]] = [
    (LosesRows, KEEPS, r"commit_upkeep: rows of the table as a reader sees it: expected \[\(0, .*, found \["),
    (MergesInTheWrongOrder, MODEL, r"commit_upkeep .*: rows of the table as a reader sees it: expected .*, found "),
    (WritesOverTheFirstTry, FILES, r"list_prefix: files that one try of each task adds: expected \d+, found 0$"),
    (LeavesWhatItHasBegun, STOP, r"upkeep whose check raises: files: expected \(\), found \('.*begun"),
    (NeverStops, STOP, r"upkeep whose check raises: expected LakeError, found no error"),
    (IsNeverDue, KEEPS, r"plan_upkeep after 40 rounds: expected 'a plan', found None$"),
    (PlansMoreThanIsAskedFor, PLAN, r"plan_upkeep, of which one task is asked: tasks: expected 1, found 2$"),
    (WritesItsPlanDown, PLAN, r"plan_upkeep: files: expected \(\), found \('.*plan"),
    (
        IsNotFenced,
        FENCED,
        r"commit_upkeep by a start whose successor has stamped: expected FencedError, found no error",
    ),
    (BuildsOnAnyHead, BASE, r"on a base that is no longer the head: expected <UpkeepOutcome.CONFLICT.*LANDED"),
    (TriesForEver, VOID, r"commit_upkeep of what has landed already: expected <UpkeepOutcome.VOID.*CONFLICT"),
    (CommitsAllOrNothing, SOME, r"expected all tasks of the plan"),
    (
        ForgetsWhatItHasMerged,
        FILES,
        r"referenced of the files of two tries.*: expected frozenset\(\{.*, found frozenset",
    ),
]


def verdicts(wrong: type[FolderLakePlugin], wanted: str, place: Path) -> dict[str, str]:
    """Run tests of the suite on a plugin; each case in a folder of its own."""
    made = count()

    def fixtures() -> dict[str, Any]:
        folder = place / str(next(made))
        plugin, table = wrong(), key_table()
        lake = plugin.open(FolderOptions(path=str(folder), merge_from=3), FakeClock())
        lake.open_table(table, incarnation())
        lake.stamp(table.path, incarnation())

        def read(path: TablePath) -> pa.Table:
            rows = lake.read(path, "id")
            return pa.Table.from_pylist([{"id": row["id"], "name": row["name"]} for row in rows], COLUMNS)

        return {"table": UpkeptTable(plugin, lake, table, incarnation()), "read_table": read, "upkept": table}

    return failures(LakeUpkeepConformance, fixtures, wanted)


def test_the_suite_finds_nothing_wrong_with_a_right_lake(tmp_path: Path) -> None:
    assert verdicts(FolderLakePlugin, "", tmp_path) == {}


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_lake_that(
    wrong: type[FolderLakePlugin], test: str, message: str, tmp_path: Path
) -> None:
    (said,) = verdicts(wrong, test, tmp_path).values()
    assert re.search(message, plain_part(said)), said


def test_there_is_a_mistake_for_each_wrong_lake() -> None:
    known = {one for base in (FolderLakePlugin, _Lake) for one in base.__subclasses__() if one.__module__ == __name__}
    assert {wrong for wrong, _, _ in WRONG} == {one for one in known if not one.__name__.startswith("_")}
