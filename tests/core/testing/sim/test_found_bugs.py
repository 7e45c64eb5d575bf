"""What the simulator found in the product, each told once as a case of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.testing.sim.case import TABLE

if TYPE_CHECKING:
    from lakeward.testing.sim.case import Case
    from lakeward.testing.sim.scheduler import Process


def test_a_commit_whose_journal_is_slow_names_no_file_that_the_next_round_swept(case: Case) -> None:
    """The source takes the table back meanwhile, and hands it out anew."""
    case.table()
    case.world.start()
    met: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        landing = TABLE in case.world.lake.tables and not case.commits() and case.step(first) == "commit"
        if service == "store" and name.startswith("write") and name.endswith("/journal") and landing and not met:
            met.append(name)
            case.world.source.restart()
            case.world.block(caller, 15.0)
        return None

    first = case.world.coordinators[0]
    case.world.before_call = before
    case.until(lambda: bool(met))
    case.rest()
    assert case.commits() == [str(first.incarnation)]


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
