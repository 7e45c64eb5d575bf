"""A round's job with an exchange, without Spark: its subtasks are spoken for by the test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from lakeward.coordinator.rounds.checkpoints import CheckpointPlan
from lakeward.coordinator.rounds.plan import ExchangePlan, JobPlan
from lakeward.machines.splits import Enumeration
from lakeward.machines.transport.channel import Channel
from lakeward.model.checkpoints import SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    AnyEvent,
    AssignSplits,
    Cancel,
    Connected,
    Deploy,
    Heartbeat,
    Open,
    Register,
    RequestSplit,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
    WriterFinished,
)
from lakeward.model.exchange import ExchangeState
from lakeward.model.jobs import JobSpec
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.settings import CheckpointSettings, LakeSettings
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import reference
from lakeward_service_kit.round_world import SpokenRound
from lakeward_service_kit.rounds import IdleJobs, RecordingConnection
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.rounds.job import Job
    from lakeward.model.splits import Split

SUBTASKS = 2
INTERVAL_S = 30.0
BUCKETS = (TableBucket(7, None, 0), TableBucket(7, None, 1))
SPLITS = tuple(LogSplit(f"b{bucket.bucket}-0", bucket, (), 0, 100) for bucket in BUCKETS)
SETTINGS = CheckpointSettings(interval_s=INTERVAL_S, open_rows=100)
E = TypeVar("E", bound=AnyEvent)


class EndingJobs(IdleJobs):
    """Launches whose end the test tells."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[Callable[[str | None], None]] = []

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        super().launch(job, on_done)
        self._ends.append(on_done)

    def end(self, reason: str | None = "cancelled") -> None:
        """End the newest launch."""
        self._ends[-1](reason)


class Member:
    """A subtask of the gang."""

    def __init__(self, world: GangWorld, subtask: int) -> None:
        self.world, self.subtask, self.connection = world, subtask, RecordingConnection()
        register = Register(subtask=subtask, host=f"node-{subtask}", pid=1, data_address=f"node-{subtask}:1")
        self.key = world.round.on_connect(register, self.connection)
        self._up = None if self.key is None else Channel(self.key, "up")
        self._answered = 0

    def say(self, *events: AnyEvent) -> None:
        assert self.key is not None
        assert self._up is not None
        for event in events:
            self.world.round.on_message(self.key, self.connection, self._up.send(event))

    def told(self, kind: type[E]) -> list[E]:
        """What it was sent, of one kind."""
        return [one.event for one in self.connection.sent if isinstance(one.event, kind)]

    @property
    def deployed(self) -> Deploy:
        (found,) = self.told(Deploy)
        return found

    @property
    def cancelled(self) -> bool:
        return bool(self.told(Cancel))

    def splits(self) -> list[str]:
        return [wire.split.split_id for event in self.told(AssignSplits) for wire in event.splits]

    def acknowledge(self) -> None:
        """Acknowledge everything that it was sent."""
        self.say(Heartbeat(acked=max((one.sequence for one in self.connection.sent), default=0)))

    def finish(self, split: Split, rows: int = 100, end: int = 100) -> None:
        """Finish a split; its rows are in the channels."""
        result = WriteResult(split.split_id, split.bucket, end, 5, rows, (), empty_offsets=end - rows)
        self.say(SplitFinished(result=result))

    def state(self, rows: int = 0, files: tuple[LakeFile, ...] = (), **more: object) -> ExchangeState:
        return ExchangeState(subtask=self.subtask, subtasks=self.world.size, rows=rows, files=files, **more)  # type: ignore[arg-type] # what a test adds

    def end(self, rows: int, files: tuple[LakeFile, ...] = ()) -> None:
        """Say that everything is written."""
        self.say(WriterFinished(state=self.state(rows, files)), SubtaskDone())

    def take_part(self, state: ExchangeState, progress: tuple[SplitProgress, ...] = ()) -> None:
        """Store its part of the checkpoint that was triggered."""
        assert self.key is not None
        number = self.told(TriggerCheckpoint)[-1].checkpoint
        snapshot = SubtaskSnapshot(self.subtask, self.key.task_attempt, progress, (), state)
        part = self.world.store.write_part(replace(self.world.ref, number=number), snapshot)
        self.say(Open(checkpoint=number), AckCheckpoint(checkpoint=number, part=part, snapshot=snapshot))


@dataclass
class GangWorld:
    """A round that was launched, its clock and its store. `slots` are offered to each launch."""

    round: SpokenRound
    jobs: EndingJobs
    clock: FakeClock
    store: CheckpointFiles
    slots: list[int]
    ref = reference()

    @property
    def job(self) -> Job:
        """The parts of the round."""
        return self.round.job

    @property
    def size(self) -> int:
        return self.jobs.launched[-1].subtasks

    def gather(self) -> list[Member]:
        """All tasks of the launch register."""
        return [Member(self, subtask) for subtask in range(self.size)]

    def connect(self) -> list[Member]:
        """All tasks of the launch register and connect to one another, and ask for splits."""
        members = self.gather()
        for member in members:
            member.say(Connected(), RequestSplit())
        return members

    def pass_time(self, seconds: float, members: list[Member] | None = None) -> None:
        for member in members or ():
            member.acknowledge()
        self.clock.advance(seconds)
        for member in members or ():
            member.acknowledge()
        self.round.tick()

    def start_checkpoint(self, members: list[Member]) -> None:
        """Let a checkpoint start and reach its trigger."""
        self.pass_time(INTERVAL_S + 1.0, members)
        number = self.job.checkpoints.running
        assert number is not None
        for member in members:
            assert member.key is not None
            member.say(AckClose(checkpoint=number, sent=member._up.sent if member._up else 0))
        for member in members:
            member.acknowledge()

    @property
    def newest(self) -> CheckpointContents:
        newest = self.job.checkpoints.newest
        assert newest is not None
        return newest.state


def gang_world(
    folder: Path,
    *,
    splits: tuple[Split, ...] = SPLITS,
    restored: CheckpointContents | None = None,
    limit: int = 5,
    settings: CheckpointSettings = SETTINGS,
    commit_every_s: float | None = 3600.0,
) -> GangWorld:
    """Launch a job of two subtasks that exchange rows."""
    clock, jobs = FakeClock(), EndingJobs()
    store = CheckpointFiles(SmallFiles(str(folder)), clock)
    slots = [SUBTASKS]
    offsets = {} if restored is None else restored.enumeration().offsets
    plan = JobPlan(
        round_name="svc/7-3-2",
        enumeration=Enumeration(splits, offsets, (), behind=False),
        deploy=lambda attempt: Deploy(
            attempt=attempt, table=b"", source="", source_task=b"", lake="", lake_task=b"", fence_s=16.0, progress_s=1.0
        ),
        spec=lambda launch, size: JobSpec("svc/7-3-2", launch, size, "", "", "", "here", 1, b"", 16.0, exchange=True),
        slots=SUBTASKS,
        limit=limit,
        silence_s=600.0,
        reconnect_within_s=5.0,
        checkpoints=CheckpointPlan(settings, reference(), 0, exchange=True),
        restored=restored,
        exchange=ExchangePlan(LakeSettings(open_files=8), settings, by_bucket=True),
        commit_every_s=commit_every_s,
    )
    one = SpokenRound(plan, jobs, clock, store)
    one.slots = lambda: slots[0]
    world = GangWorld(one, jobs, clock, store, slots)
    one.launch()
    return world
