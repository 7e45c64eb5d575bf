"""What the simulator's checks count, and what they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.checkpoints import CheckpointRef
from lakeward.model.identity import Incarnation

if TYPE_CHECKING:
    from lakeward_simulator.case import Case

_FIRST = CheckpointRef("svc", str(Incarnation("svc", 1000, "00000000000000aa")), 1, 1, 1)


def metadata(number: int) -> str:
    return f"svc/{_FIRST.incarnation}/1-1/chk-{number}/_metadata"


def test_a_round_may_not_go_on_from_a_checkpoint_while_a_later_one_is_there(case: Case) -> None:
    case.world.files.write(metadata(2), b"whole")
    case.world.checks.going_on(_FIRST, {metadata(1), metadata(2)})
    assert "although there is" in case.world.checks.failures.pop()


def test_a_later_checkpoint_that_was_torn_as_it_was_written_never_happened(case: Case) -> None:
    case.world.files.tear(metadata(2), b"half of it")
    case.world.checks.going_on(_FIRST, {metadata(1), metadata(2)})
    assert not case.world.checks.failures
