"""What the simulator found in the product, each told once as a case of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.testing.sim.case import TABLE

if TYPE_CHECKING:
    from lakeward.testing.sim.case import Case


def test_adopted_files_stay_when_their_table_was_committed_and_is_created_anew(case: Case) -> None:
    case.table(rows=40)
    first = case.world.start()
    case.until(lambda: len(case.metadata) > 0 and case.step(first) == "read")
    first.crash()
    second = case.world.start()
    case.until(lambda: TABLE in case.world.lake.tables and bool(case.commits()) and case.step(second) == "idle")
    named = case.world.lake.tables[TABLE].named()
    assert any(str(first.incarnation) in file for file in named)
    case.world.source.drop(TABLE)
    case.table(rows=10)
    case.rest()
    assert named <= case.world.lake.files.keys()
