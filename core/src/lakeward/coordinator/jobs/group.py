"""How the subtasks of a launch belong together: each by itself, or as a gang (`coordinator.jobs.gang`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakeward.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.jobs.progress import RoundProgress
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.events import Connected, Deploy, WriterFinished
    from lakeward.ports import Connection

    Work = Callable[[str, Callable[[], object], Callable[[object], None]], None]
    """Runs a blocking call on a worker, and passes its result or its error to a callable on the event loop."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A subtask that has registered and is not deployed yet."""

    key: ChannelKey
    connection: Connection
    host: str
    data_address: str


class GroupedJob(Protocol):
    """The round's job: what a group needs of it."""

    def deploy(self, registration: Registration) -> None:
        """Deploy a subtask that has registered."""
        ...

    def end_launch(self, reason: str) -> None:
        """Cancel the launch: its other subtasks cannot go on."""
        ...

    def all_written(self) -> None:
        """Everything that the round read is in closed files."""
        ...


class SubtaskGroup(Protocol):
    """The subtasks of one job, from launch to launch. Used on the event loop only."""

    def size(self, unfinished: int) -> int:
        """Return how many subtasks a launch has.

        Args:
            unfinished: splits that are still to be read.
        """
        ...

    def prepare(self, work: Work, then: Callable[[], None]) -> None:
        """Prepare another launch after one has ended.

        Args:
            work: see `CheckpointPlan`.
            then: called on the event loop, now or later.
        """
        ...

    def begin(self, size: int, progress: RoundProgress) -> None:
        """Begin a launch.

        Args:
            size: its subtasks.
            progress: what the round has read so far.
        """
        ...

    def register(self, job: GroupedJob, registration: Registration) -> bool:
        """Deploy a subtask, or keep its registration until it may be deployed.

        Returns:
            False if it does not count.
        """
        ...

    def send_heartbeats(self, now: float, every_s: float) -> None:
        """Tell subtasks that wait for others that the coordinator is there.

        Args:
            now: seconds on the service's clock.
            every_s: seconds between two times.
        """
        ...

    def deployment(self, deploy: Deploy) -> Deploy:
        """Return what a subtask is deployed with."""
        ...

    def on_event(self, job: GroupedJob, key: ChannelKey, event: Connected | WriterFinished) -> None:
        """Take a subtask's message about the exchange."""
        ...

    def lost(self, job: GroupedJob, key: ChannelKey, reason: str) -> bool:
        """Take the loss of a subtask.

        Returns:
            Whether that ends the launch; if not, its splits go to the others.
        """
        ...

    def restoring(self, key: ChannelKey) -> bool:
        """Return whether a subtask reads back what a checkpoint holds, so that an unreadable file is one of its."""
        ...

    def there(self, deployed: int) -> int:
        """Return how many subtasks of the launch are there, deployed or not."""
        ...

    @property
    def needed(self) -> int:
        """How many subtasks have to be there before any of them works."""
        ...

    @property
    def takes_checkpoints(self) -> bool:
        """Whether a checkpoint may start now."""
        ...

    @property
    def recovers(self) -> bool:
        """Whether checkpoints of this launch are taken while restored rows are still written: the first one at once."""
        ...

    @property
    def ends_together(self) -> bool:
        """Whether the loss of one subtask ends the launch.

        Then rows may be in no file yet when every split is finished: `all_written` says when they are.
        """
        ...

    def put_back(self, progress: RoundProgress, newest: CheckpointContents | None) -> RoundProgress:
        """Return the progress that the next launch goes on from.

        Args:
            progress: what the launch that has ended read.
            newest: the newest checkpoint that completed since the first launch, None for none.
        """
        ...


class IndependentSubtasks:
    """Subtasks that write what they read: each works alone, and what one of them loses is read by others."""

    needed = 1
    takes_checkpoints = True
    recovers = False
    ends_together = False

    def __init__(self, slots: int) -> None:
        """Keep how many may run at once."""
        self._slots = slots

    def size(self, unfinished: int) -> int:
        """See `SubtaskGroup`: one for each split, as far as there are slots."""
        return min(self._slots, max(1, unfinished))

    def prepare(self, work: Work, then: Callable[[], None]) -> None:
        """See `SubtaskGroup`."""
        del work
        then()

    def begin(self, size: int, progress: RoundProgress) -> None:
        """See `SubtaskGroup`."""

    def register(self, job: GroupedJob, registration: Registration) -> bool:
        """See `SubtaskGroup`."""
        job.deploy(registration)
        return True

    def send_heartbeats(self, now: float, every_s: float) -> None:
        """See `SubtaskGroup`: none waits."""

    def deployment(self, deploy: Deploy) -> Deploy:
        """See `SubtaskGroup`."""
        return deploy

    def on_event(self, job: GroupedJob, key: ChannelKey, event: Connected | WriterFinished) -> None:
        """See `SubtaskGroup`.

        Raises:
            ProtocolError: there is no exchange.
        """
        del job
        message = f"subtask {key.subtask}: {type(event).__name__} in a round without an exchange"
        raise ProtocolError(message)

    def lost(self, job: GroupedJob, key: ChannelKey, reason: str) -> bool:
        """See `SubtaskGroup`."""
        del job, key, reason
        return False

    def restoring(self, key: ChannelKey) -> bool:
        """See `SubtaskGroup`."""
        del key
        return False

    def there(self, deployed: int) -> int:
        """See `SubtaskGroup`."""
        return deployed

    def put_back(self, progress: RoundProgress, newest: CheckpointContents | None) -> RoundProgress:
        """See `SubtaskGroup`: nothing is lost, each subtask's splits came back with it."""
        del newest
        return progress
