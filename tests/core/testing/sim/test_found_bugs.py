"""What the simulator found in the product, each told once as a case of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.testing.sim.case import TABLE

if TYPE_CHECKING:
    from lakeward.testing.sim.case import Case
    from lakeward.testing.sim.scheduler import Process


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


def test_a_checkpoint_that_completes_after_its_round_was_swept_is_not_gone_on_from(case: Case) -> None:
    case.world.slots = 3
    case.table(rows=40)
    first = case.world.start()
    late: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if (service, name[-9:]) == ("store", "_metadata") and name.startswith("write") and not late:
            late.append(name)
            case.world.start()
            case.world.block(caller, 4.0)  # the second start sweeps meanwhile, and finds no checkpoint
        return None

    case.world.before_call = before
    case.until(lambda: first.end is not None)
    assert late
    case.world.coordinators[1].crash()
    case.world.start()
    case.rest()
