"""What breaks the protocol of an alignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import IllegalEventError
from lakeward_machine_stories.alignment import DRAINED, arrives, barrier, ends, new, overtaken, taken

if TYPE_CHECKING:
    from lakeward.machines.exchange.messages import AlignmentEvent


@pytest.mark.parametrize(
    ("story", "event"),
    [
        ((), arrives(0, 1)),
        ((arrives(0, 0),), arrives(0, 0)),
        ((), taken(0, 0)),
        ((arrives(0, 0), barrier(0, 0)), taken(0, 0)),
        ((ends(0, 0),), arrives(0, 0)),
        ((ends(0, 0),), ends(0, 0)),
        ((ends(0, 0),), barrier(0, 1)),
        ((barrier(0, 1),), barrier(0, 0)),
        ((barrier(0, 1),), ends(0, 0)),
        ((barrier(0, 0),), overtaken(0, 1)),
        ((overtaken(0, 0),), overtaken(0, 1)),
        (DRAINED, arrives(0, 1)),
        (DRAINED, ends(0, 1)),
        ((), arrives(2, 0)),
        ((), barrier(-1, 0)),
    ],
    ids=repr,
)
def test_what_does_not_fit_to_what_came_before_is_illegal(
    story: tuple[AlignmentEvent, ...], event: AlignmentEvent
) -> None:
    machine = new()
    for earlier in story:
        machine.step(earlier)
    with pytest.raises(IllegalEventError):
        machine.step(event)
