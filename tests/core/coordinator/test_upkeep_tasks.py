"""A task of upkeep in an executor: it finds the lake by its name, and stops once its time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import LakeError
from lakeward.model.identity import UPKEEP, Incarnation, RoundId
from lakeward.model.upkeep import UpkeepOrder, UpkeepPlan, UpkeepResult
from lakeward.subtask.upkeep import do_upkeep
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, log_split, log_table, source_batch

if TYPE_CHECKING:
    from pathlib import Path

WHO = Incarnation("svc", 1000, "00000000000000aa")


@pytest.fixture
def plan(tmp_path: Path) -> UpkeepPlan:
    """What is due of a table with three files."""
    lake = FolderLake(tmp_path, merge_from=3)
    for number in range(3):
        tiering = TieringRound(FolderLakePlugin(), lake, log_table(), WHO, number=number)
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": number}], start=number)])
        lake.commit(tiering.request())
    found = lake.plan_upkeep(PATH, RoundId(WHO, 7, UPKEEP, 1), 4)
    assert found is not None
    return found


def order(plan: UpkeepPlan, limit_s: float) -> bytes:
    """What the first task of a plan is sent."""
    return msgspec.msgpack.encode(UpkeepOrder("folder", plan.tasks[0], limit_s))


def test_a_task_is_done_by_the_lake_that_its_order_names_and_says_which_try_it_was(plan: UpkeepPlan) -> None:
    done = msgspec.json.decode(do_upkeep(order(plan, 60.0), 2), type=UpkeepResult)
    assert (done.number, done.files, done.attempt) == (0, 1, 2)


def test_a_task_stops_once_its_time_is_over_and_says_so(plan: UpkeepPlan) -> None:
    with pytest.raises(LakeError, match="a task of upkeep has not ended within 0 s"):
        do_upkeep(order(plan, 0.0), 0)
