"""The subtasks of a round with an exchange: held until all are there, deployed together, lost together.

`machines/gang` decides; this adds the connections, the addresses and the state that a launch is restored from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import structlog

from lakeward.coordinator.jobs.progress import RoundProgress
from lakeward.coordinator.workers.step_log import step_log
from lakeward.machines.driver import MachineDriver
from lakeward.machines.gang import (
    AllWritten,
    DeployMembers,
    EndLaunch,
    GangCommand,
    GangEvent,
    GangMachine,
    GangPhase,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
    RefuseMember,
)
from lakeward.machines.transport.channel import Channel
from lakeward.model.events import Cancel, Connected, DeployExchange, DeployRecovery, Heartbeat
from lakeward.model.partitioning import KEY_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.jobs.group import GroupedJob, Registration, Work
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.events import Deploy, WriterFinished
    from lakeward.model.settings import CheckpointSettings, LakeSettings

_log = structlog.get_logger("lakeward.job")
_REFUSED = "this attempt no longer counts"


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """What a round with an exchange needs besides."""

    slots: int
    """How many subtasks may run at once, over all rounds, as the round was planned."""
    count_slots: Callable[[], int]
    """Counts those that are there now: a launch that asks for more never starts. Blocking."""
    free_slots: Callable[[int], int]
    """Returns how many of so many slots the round may use. Called on the event loop."""
    lake: LakeSettings
    checkpoint: CheckpointSettings


class Gang:
    """See `SubtaskGroup`. One for each job; each launch has a machine of its own."""

    ends_together = True

    def __init__(self, plan: ExchangePlan, restored: CheckpointContents | None, reconnect_within_s: float) -> None:
        """Start without a launch.

        Args:
            plan: what the exchange needs.
            restored: the checkpoint that the round goes on from, None for a fresh round.
            reconnect_within_s: see `Splits`.
        """
        self._plan = plan
        self._slots = plan.slots
        self._restored = restored
        self._reconnect_within_s = reconnect_within_s
        self._held: dict[tuple[int, int], Registration] = {}
        """By subtask and attempt: those that wait for the others."""
        self._life_shown = 0.0
        """When those that wait were last told that the coordinator is there."""
        self._addresses: list[str] = []
        self._machine: GangMachine | None = None
        self._driver: MachineDriver[GangEvent, GangCommand] | None = None
        self._job: GroupedJob | None = None
        self._progress: RoundProgress | None = None

    def size(self, unfinished: int) -> int:
        """See `SubtaskGroup`: all free slots, however few splits there are: every subtask writes."""
        del unfinished
        return max(1, min(self._plan.free_slots(self._slots), KEY_GROUPS))

    def prepare(self, work: Work, then: Callable[[], None]) -> None:
        """See `SubtaskGroup`: executors may have gone with the subtask that was lost."""

        def counted(answer: object) -> None:
            if isinstance(answer, int):
                self._slots = answer
            else:
                _log.warning("slots were not counted", reason=str(answer))
            then()

        work("count the slots", self._plan.count_slots, counted)

    def begin(self, size: int, progress: RoundProgress) -> None:
        """See `SubtaskGroup`."""
        self._held, self._addresses = {}, []
        self._progress = progress
        self._machine = GangMachine(size)
        self._driver = MachineDriver(self._machine, self._execute, on_step=step_log("lakeward.job", "gang"))

    def register(self, job: GroupedJob, registration: Registration) -> bool:
        """See `SubtaskGroup`."""
        machine, (subtask, attempt) = self._machine, _attempt(registration.key)
        if machine is None:
            return False
        if machine.phase is GangPhase.GATHERING:
            self._held[subtask, attempt] = registration
        self._post(job, MemberRegistered(subtask=subtask, attempt=attempt))
        if (subtask, attempt) in self._held:
            _send_heartbeat(registration)
        return machine.is_member(subtask, attempt)

    def send_heartbeats(self, now: float, every_s: float) -> None:
        """See `SubtaskGroup`: a launch may gather for longer than a subtask stays without a word."""
        if now - self._life_shown >= every_s:
            self._life_shown = now
            for registration in self._held.values():
                _send_heartbeat(registration)

    def deployment(self, deploy: Deploy) -> Deploy:
        """See `SubtaskGroup`."""
        plan, progress = self._plan, self._progress
        exchange = DeployExchange(
            addresses=self._addresses,
            restore=list(progress.writers.restored) if progress is not None and progress.writers is not None else [],
            open_files=plan.lake.open_files,
            open_rows_bytes=plan.checkpoint.open_rows,
            aligned_timeout_s=plan.checkpoint.aligned_timeout_s,
            unaligned=plan.checkpoint.unaligned,
            recovery=_recovery(plan.checkpoint),
        )
        return msgspec.structs.replace(deploy, exchange=exchange)

    def on_event(self, job: GroupedJob, key: ChannelKey, event: Connected | WriterFinished) -> None:
        """See `SubtaskGroup`."""
        who = {"subtask": key.subtask, "attempt": key.task_attempt}
        if isinstance(event, Connected):
            self._post(job, MemberConnected(**who))
            return
        progress = self._progress
        if progress is None or progress.writers is None:
            return
        progress.writers.finished[key.subtask] = event.state
        self._post(job, MemberFinished(**who, all_read=progress.splits.done))

    def lost(self, job: GroupedJob, key: ChannelKey, reason: str) -> bool:
        """See `SubtaskGroup`."""
        self._held.pop(_attempt(key), None)
        self._post(job, MemberLost(subtask=key.subtask, attempt=key.task_attempt, reason=reason))
        return True

    def restoring(self, key: ChannelKey) -> bool:
        """See `SubtaskGroup`: until it is connected, where there is something to read back."""
        machine = self._machine
        connecting = machine is not None and not machine.is_connected(*_attempt(key))
        return connecting and self._restored is not None

    def there(self, deployed: int) -> int:
        """See `SubtaskGroup`."""
        return deployed or len(self._held)

    @property
    def needed(self) -> int:
        """See `SubtaskGroup`."""
        return self._machine.size if self._machine is not None else 1

    @property
    def takes_checkpoints(self) -> bool:
        """See `SubtaskGroup`: once all channels are open, and until the last split is finished.

        A recovery may have rows to write for long after that: until the first writer has finished.
        """
        progress = self._progress
        if progress is None or self._machine is None or self._machine.phase is not GangPhase.EXCHANGING:
            return False
        recovering = self.recovers and progress.writers is not None and not progress.writers.finished
        return recovering or not progress.splits.done

    @property
    def recovers(self) -> bool:
        """See `SubtaskGroup`."""
        writers = None if self._progress is None else self._progress.writers
        restored = writers is not None and any(state.segments() for state in writers.restored)
        return restored and _recovery(self._plan.checkpoint) is not None

    def put_back(self, progress: RoundProgress, newest: CheckpointContents | None) -> RoundProgress:
        """See `SubtaskGroup`: rows that were in no file are lost, so all goes back to the newest checkpoint."""
        if newest is not None:
            self._restored = newest
        within_s = self._reconnect_within_s
        return RoundProgress(progress.enumeration, self._restored, reconnect_within_s=within_s, exchange=True)

    def _post(self, job: GroupedJob, event: GangEvent) -> None:
        self._job = job
        if self._driver is not None:
            self._driver.post(event)

    def _execute(self, command: GangCommand, _: GangEvent) -> None:
        job = self._job
        if job is None:
            return
        match command:
            case DeployMembers():
                members = [self._held.pop(member) for member in command.members]
                self._addresses = [member.data_address for member in members]
                for member in members:
                    job.deploy(member)
            case EndLaunch():
                job.end_launch(command.reason)
            case AllWritten():
                job.all_written()
            case RefuseMember():
                # One that registers too late is refused by the server; this one has waited.
                replaced = self._held.pop((command.subtask, command.attempt), None)
                if replaced is not None:
                    _refuse(replaced)


def _recovery(checkpoint: CheckpointSettings) -> DeployRecovery | None:
    """Return None where checkpoints have to be aligned: one that meets a recovery would wait for its end."""
    if not checkpoint.spill_places:
        return None
    return DeployRecovery(
        spill_dirs=[*checkpoint.spill_dirs],
        spill_quota_bytes=checkpoint.spill_quota,
        memory_bytes=checkpoint.memory,
    )


def _attempt(key: ChannelKey) -> tuple[int, int]:
    return key.subtask, key.task_attempt


def _send_heartbeat(registration: Registration) -> None:
    """Send what a subtask takes for a sign of life before it is deployed: there is nothing to acknowledge."""
    registration.connection.send(Channel(registration.key, "down").send(Heartbeat(acked=0)))


def _refuse(registration: Registration) -> None:
    envelope = Channel(registration.key, "down").send(Cancel(reason=_REFUSED))
    registration.connection.send(envelope)
    registration.connection.close()
