"""The subtasks of a round with an exchange: held until all are there, deployed together, lost together.

`machines/gang` decides; this adds the connections, the addresses and the state that a launch is restored from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.coordinator.rounds.subtasks import Registration, Subtasks
from lakeward.coordinator.workers.step_log import step_log
from lakeward.machines.checkpoints.messages import SubtaskRegistered
from lakeward.machines.driver import MachineDriver
from lakeward.machines.gang import (
    DeployMembers,
    GangCommand,
    GangEvent,
    GangMachine,
    GangPhase,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
)
from lakeward.machines.transport.channel import Channel
from lakeward.model.events import Cancel, DeployExchange, DeployRecovery, Heartbeat
from lakeward.model.partitioning import KEY_GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.rounds.plan import ExchangePlan, JobPlan
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.events import Deploy, WriterFinished
    from lakeward.model.settings import CheckpointSettings

_REFUSED = "this attempt no longer counts"


class Gang(Subtasks):
    """The subtasks of one round with an exchange; each launch has a machine of its own."""

    ends_together = True

    def __init__(self, plan: JobPlan, progress: RoundProgress, exchange: ExchangePlan) -> None:
        super().__init__(plan, progress.first_attempt)
        self.machine = GangMachine(1)
        self.driver: MachineDriver[GangEvent, GangCommand] = MachineDriver(self.machine)
        self._exchange = exchange
        self._restored = plan.restored
        self._progress = progress
        self._life_shown = 0.0
        """When those that wait were last told that the coordinator is there."""
        self._addresses: list[str] = []

    def size(self, unfinished: int, free: int) -> int:
        """Return all free slots, however few splits there are: every subtask writes."""
        del unfinished
        return max(1, min(free, KEY_GROUPS))

    def begin(self, size: int, now: float) -> None:
        """Begin a launch."""
        self._addresses = []
        self.machine = GangMachine(size)
        self.driver = MachineDriver(self.machine, on_step=step_log("lakeward.job", "gang"))
        super().begin(size, now)

    def registered(self, registration: Registration, now: float) -> Iterable[Any]:
        """Return what follows once a subtask has registered: it waits for the others, or comes too late."""
        del now
        subtask, attempt = registration.attempt
        if self.machine.phase is not GangPhase.GATHERING:
            del self.waiting[registration.attempt]
        return (MemberRegistered(subtask=subtask, attempt=attempt),)

    def greet(self, registration: Registration) -> bool:
        """Return whether a subtask that has registered counts; one that waits for others gets a sign of life."""
        if registration.attempt in self.waiting:
            _send_heartbeat(registration)
        return self.machine.is_member(*registration.attempt)

    def members(self, command: DeployMembers, now: float) -> Iterable[Any]:
        """Return what follows once all are there: each is deployed, with the addresses of all."""
        self._addresses = [self.waiting[member].data_address for member in command.members]
        return [SubtaskRegistered(now=now, subtask=subtask, attempt=number) for subtask, number in command.members]

    def refuse(self, subtask: int, attempt: int) -> None:
        """Tell one that has waited that it does not count; one that registers too late is refused by the server."""
        replaced = self.waiting.pop((subtask, attempt), None)
        if replaced is not None:
            replaced.connection.send(Channel(replaced.key, "down").send(Cancel(reason=_REFUSED)))
            replaced.connection.close()

    def send_heartbeats(self, now: float, every_s: float) -> None:
        """Tell those that wait that the coordinator is there: a launch may gather for long."""
        if now - self._life_shown >= every_s:
            self._life_shown = now
            for registration in self.waiting.values():
                _send_heartbeat(registration)

    def deployment(self, deploy: Deploy) -> Deploy:
        """Return what a subtask is deployed with: also where the others are, and what is restored."""
        settings, writers = self._exchange, self._progress.writers
        exchange = DeployExchange(
            addresses=self._addresses,
            by_bucket=settings.by_bucket,
            restore=list(writers.restored) if writers is not None else [],
            open_files=settings.lake.open_files,
            open_rows_bytes=settings.checkpoint.open_rows,
            aligned_timeout_s=settings.checkpoint.aligned_timeout_s,
            unaligned=settings.checkpoint.unaligned,
            recovery=_recovery(settings.checkpoint),
        )
        return msgspec.structs.replace(deploy, exchange=exchange)

    def connected(self, key: ChannelKey) -> Iterable[Any]:
        """Return what follows once a subtask has all of its channels."""
        return (MemberConnected(subtask=key.subtask, attempt=key.task_attempt),)

    def written(self, key: ChannelKey, event: WriterFinished) -> Iterable[Any]:
        """Return what follows once a subtask has closed all files."""
        progress = self._progress
        if progress.writers is None:
            return ()
        progress.writers.finished[key.subtask] = event.state
        return (MemberFinished(subtask=key.subtask, attempt=key.task_attempt, all_read=progress.splits.done),)

    def lost(self, key: ChannelKey, reason: str) -> Iterable[Any] | None:
        """Return what follows from the loss of a subtask: the machine says whether it ends the launch."""
        self.waiting.pop((key.subtask, key.task_attempt), None)
        return (MemberLost(subtask=key.subtask, attempt=key.task_attempt, reason=reason),)

    def restoring(self, key: ChannelKey) -> bool:
        """Return whether a subtask reads back rows: until it is connected, where there is something to read back."""
        return self._restored is not None and not self.machine.is_connected(key.subtask, key.task_attempt)

    @property
    def there(self) -> int:
        """How many subtasks of the launch are there, deployed or not."""
        return len(self.attempts) or len(self.waiting)

    @property
    def needed(self) -> int:
        """All of them."""
        return self.machine.size

    @property
    def takes_checkpoints(self) -> bool:
        """Whether a checkpoint may start: once all channels are open, and until the last split is finished.

        A recovery may have rows to write for long after that: until the first writer has finished.
        """
        progress = self._progress
        if self.machine.phase is not GangPhase.EXCHANGING:
            return False
        recovering = self.recovers and progress.writers is not None and not progress.writers.finished
        return recovering or not progress.splits.done

    @property
    def recovers(self) -> bool:
        """Whether rows are restored, and checkpoints can be taken meanwhile."""
        writers = self._progress.writers
        restored = writers is not None and any(state.segments() for state in writers.restored)
        return restored and _recovery(self._exchange.checkpoint) is not None

    def put_back(self, progress: RoundProgress, newest: CheckpointContents | None) -> RoundProgress:
        """Return the progress of the newest checkpoint: rows that were in no file are lost."""
        self._restored = newest or self._restored
        within_s = self.plan.reconnect_within_s
        self._progress = RoundProgress(progress.enumeration, self._restored, reconnect_within_s=within_s, exchange=True)
        return self._progress


def _recovery(checkpoint: CheckpointSettings) -> DeployRecovery | None:
    """Return None where checkpoints have to be aligned: one that meets a recovery would wait for its end."""
    if not checkpoint.spill_places:
        return None
    return DeployRecovery(
        spill_dirs=[*checkpoint.spill_dirs],
        spill_quota_bytes=checkpoint.spill_quota,
        memory_bytes=checkpoint.memory,
    )


def _send_heartbeat(registration: Registration) -> None:
    """Send what a subtask takes for a sign of life before it is deployed: there is nothing to acknowledge."""
    registration.connection.send(Channel(registration.key, "down").send(Heartbeat(acked=0)))
