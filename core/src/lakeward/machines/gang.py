"""The subtasks of one launch that exchange rows: they start together and are lost together.

Nobody is deployed before all tasks of the launch have registered: each is told where all the others are. No checkpoint
may start before all are connected. The round is written when every split is finished and every member has closed its
files. Any member that is lost ends the launch, but for one that gathers: there the task registers again. A machine
lives for one launch.
"""

from __future__ import annotations

from msgspec import Struct

from lakeward.errors import UsageError
from lakeward.machines.machine import Machine, MachineState, Rule, Rules, UndoDict
from lakeward.model.partitioning import KEY_GROUPS

Attempt = tuple[int, int]
"""Subtask and attempt number."""

# --- events -----------------------------------------------------------------------------------------------------


class _OfMember(Struct, frozen=True, kw_only=True):
    subtask: int
    attempt: int


class MemberRegistered(_OfMember, frozen=True):
    """A task of the launch registered, with a number that no attempt had before."""


class MemberConnected(_OfMember, frozen=True):
    """All channels of a subtask are open, and what was restored is written. Repeated, it changes nothing."""


class MemberFinished(_OfMember, frozen=True, kw_only=True):
    """A subtask has received every channel's end and closed all its files. `all_read`: every split is finished."""

    all_read: bool


class MemberLost(_OfMember, frozen=True, kw_only=True):
    """An attempt failed, was silent for too long, or its connection is gone for good."""

    reason: str


GangEvent = MemberRegistered | MemberConnected | MemberFinished | MemberLost

# --- commands ---------------------------------------------------------------------------------------------------


class DeployMembers(Struct, frozen=True):
    """All are there: deploy these, in this order, each with the addresses of all."""

    members: tuple[Attempt, ...]


class RefuseMember(Struct, frozen=True):
    """Tell this attempt, which is not deployed, that it does not count."""

    subtask: int
    attempt: int


class EndLaunch(Struct, frozen=True):
    """Cancel the launch, because the gang is not whole any more."""

    reason: str


class AllWritten(Struct, frozen=True):
    """Every row of the round is in a closed file; returned once."""


GangCommand = DeployMembers | RefuseMember | EndLaunch | AllWritten


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
        self.replaced: frozenset[int] = frozenset()
        """Subtasks that registered again while an earlier attempt of them counted, which was refused."""
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


GATHERING, CONNECTING, EXCHANGING = GangPhase.GATHERING, GangPhase.CONNECTING, GangPhase.EXCHANGING
WRITTEN, BROKEN = GangPhase.WRITTEN, GangPhase.BROKEN
Commands = tuple[GangCommand, ...]

# --- conditions -----------------------------------------------------------------------------------------------------


def is_last_to_register(gang: GangState, event: MemberRegistered) -> bool:
    """The subtask is of the launch, and all others are there."""
    return is_of_launch(gang, event) and len(gang.members.keys() | {event.subtask}) == gang.size


def is_of_launch(gang: GangState, event: MemberRegistered) -> bool:
    """The launch has this subtask."""
    return event.subtask in range(gang.size)


def is_member(gang: GangState, event: MemberConnected | MemberFinished | MemberLost) -> bool:
    """The attempt is the one that counts."""
    return gang.is_member(event.subtask, event.attempt)


def is_in_doubt(gang: GangState, event: MemberLost) -> bool:
    """The attempt counts, and another one was refused for it: that may have been the newer one."""
    return is_member(gang, event) and event.subtask in gang.replaced


def is_late(gang: GangState, event: MemberConnected | MemberFinished | MemberLost) -> bool:
    """The attempt was replaced or never registered: what it sends changes nothing."""
    return not is_member(gang, event)


def is_last_to_connect(gang: GangState, event: MemberConnected) -> bool:
    """All other members are connected."""
    return is_member(gang, event) and len(gang.connected | {event.subtask}) == gang.size


def has_finished(gang: GangState, event: MemberFinished) -> bool:
    """A member has closed its files, and nothing is left to read."""
    return is_member(gang, event) and event.all_read


def is_last_to_finish(gang: GangState, event: MemberFinished) -> bool:
    """All other members have closed their files."""
    return has_finished(gang, event) and len(gang.finished | {event.subtask}) == gang.size


# --- what is done ---------------------------------------------------------------------------------------------------


def add_member(gang: GangState, event: MemberRegistered) -> Commands:
    """Count the attempt; the one that it replaces does not count any more."""
    replaced = gang.members.get(event.subtask)
    gang.members[event.subtask] = event.attempt
    if replaced is None:
        return ()
    gang.replaced |= {event.subtask}
    return (RefuseMember(event.subtask, replaced),)


def deploy(gang: GangState, event: MemberRegistered) -> Commands:
    """Count the last attempt, and deploy all."""
    return (*add_member(gang, event), DeployMembers(tuple(sorted(gang.members.items()))))


def remove_member(gang: GangState, event: MemberLost) -> Commands:
    """Wait for the subtask again: the task, or Spark's next try of it, registers."""
    del gang.members[event.subtask]
    return ()


def refuse(_: GangState, event: MemberRegistered) -> Commands:
    """Tell the attempt that it does not count."""
    return (RefuseMember(event.subtask, event.attempt),)


def refuse_and_end(_: GangState, event: MemberRegistered) -> Commands:
    """End the launch: Spark tries a task again only if it failed, so a member is gone."""
    reason = f"subtask {event.subtask} registered again after the launch was deployed"
    return (RefuseMember(event.subtask, event.attempt), EndLaunch(reason))


def end(_: GangState, event: MemberLost) -> Commands:
    """End the launch."""
    return (EndLaunch(event.reason),)


def note_connected(gang: GangState, event: MemberConnected) -> Commands:
    """Count it as connected."""
    gang.connected |= {event.subtask}
    return ()


def note_finished(gang: GangState, event: MemberFinished) -> Commands:
    """Count it as finished."""
    gang.finished |= {event.subtask}
    return ()


RULES: Rules[GangState, GangCommand] = Rules(
    "gang",
    GangPhase,
    Rule(GATHERING, MemberRegistered, when=is_last_to_register, to=CONNECTING, do=deploy),
    Rule(GATHERING, MemberRegistered, when=is_of_launch, do=add_member),
    # Spark tries no task again that it does not know to have failed: nobody may come any more.
    Rule(GATHERING, MemberLost, when=is_in_doubt, to=BROKEN, do=end),
    Rule(GATHERING, MemberLost, when=is_member, do=remove_member),
    Rule((CONNECTING, EXCHANGING), MemberRegistered, when=is_of_launch, to=BROKEN, do=refuse_and_end),
    Rule((CONNECTING, EXCHANGING), MemberLost, when=is_member, to=BROKEN, do=end),
    Rule(CONNECTING, MemberConnected, when=is_last_to_connect, to=EXCHANGING, do=note_connected),
    Rule(CONNECTING, MemberConnected, when=is_member, do=note_connected),
    Rule(EXCHANGING, MemberFinished, when=is_last_to_finish, to=WRITTEN, do=note_finished, then=(AllWritten(),)),
    Rule(EXCHANGING, MemberFinished, when=has_finished, do=note_finished),
    Rule((GATHERING, CONNECTING, EXCHANGING), (MemberConnected, MemberFinished, MemberLost), when=is_late),
    Rule(EXCHANGING, MemberConnected),
    Rule((WRITTEN, BROKEN), MemberRegistered, do=refuse),
    # Everything has arrived, or the launch ends anyway: who is lost now takes nothing along.
    Rule((WRITTEN, BROKEN), (MemberConnected, MemberFinished, MemberLost)),
)


class GangMachine(GangState):
    """The machine of one launch."""

    rules = RULES
