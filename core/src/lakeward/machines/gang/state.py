"""What is known of the subtasks of one launch that exchange rows."""

from __future__ import annotations

from lakeward.errors import UsageError
from lakeward.machines.gang.messages import GangCommand, GangEvent
from lakeward.machines.machine import Machine, MachineState, UndoDict
from lakeward.model.partitioning import KEY_GROUPS


class GangPhase(MachineState):
    """The phase of a gang."""

    GATHERING = "gathering"
    """Not all tasks have registered; none of them is deployed."""
    CONNECTING = "connecting"
    """All are deployed; not all have every channel open and what was restored written. No checkpoint may start."""
    EXCHANGING = "exchanging"
    """All are connected."""
    WRITTEN = "written"
    """All have closed their files, and everything that the round read is in them."""
    BROKEN = "broken"
    """A member was lost: the launch ends, and nothing that still comes from it counts."""


class GangState(Machine[GangEvent, GangCommand]):
    """The members of one launch, and how far they are."""

    def __init__(self, size: int) -> None:
        """Start with nobody there.

        Raises:
            UsageError: below 1, or more than there are key groups.
        """
        super().__init__()
        if not 1 <= size <= KEY_GROUPS:
            message = f"gang: expected 1 to {KEY_GROUPS} subtasks, found {size}"
            raise UsageError(message)
        self.size = size
        """Tasks of the launch."""
        self.phase = GangPhase.GATHERING
        self.members = UndoDict[int, int](self.undo)
        """By subtask: the number of its attempt."""
        self.connected: frozenset[int] = frozenset()
        self.finished: frozenset[int] = frozenset()

    @property
    def there(self) -> int:
        """How many tasks have registered."""
        return len(self.members)

    @property
    def detail(self) -> str:
        """How many of how many are there, for errors."""
        return f", {len(self.members)} of {self.size} there"

    def is_member(self, subtask: int, attempt: int) -> bool:
        """Return whether an attempt is a member, deployed or not."""
        return self.members.get(subtask) == attempt

    def is_connected(self, subtask: int, attempt: int) -> bool:
        """Return whether an attempt is a member and has connected."""
        return self.is_member(subtask, attempt) and subtask in self.connected
