"""One task of a job: the real `Subtask` in virtual time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, cast

from lakeward.errors import IllegalEventError, LakewardError
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.ports import SubtaskPorts
from lakeward.subtask.subtask import Subtask
from lakeward_simulator.disk import SimSpillDisk
from lakeward_simulator.exchange import SimExchangeTransport
from lakeward_simulator.executor import SimExecutor
from lakeward_simulator.lake import SimWriter, stem_of
from lakeward_simulator.letters import SimRowCheck
from lakeward_simulator.network import SimTransport
from lakeward_simulator.partitions import PartitionWriter, SimPartitioner
from lakeward_simulator.scheduler import Process
from lakeward_simulator.source import SimReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.machines.checkpoints.gateway import GatewayPhase
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.subtask.work import SplitWork
    from lakeward_simulator.world import World

_WRITE_S = 0.05
_HEARTBEAT_S = 2.0
_KEPT_S = 40.0
"""Seconds within which a subtask has heard of the end of each checkpoint that holds rows of its spill."""
_TICK_S = 0.001
"""What a clock shows at the least between two looks."""


class _Plugins:
    """The source and the lake in a subtask."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reader(self, task: bytes, table: TableSpec) -> SimReader:
        """See `SourcePlugin`."""
        del table
        return SimReader(self._world.source, int(task))

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> SimWriter:
        """See `LakePlugin`."""
        before, world = () if progress is None else progress.files, self._world
        stem = stem_of(task, split, attempt)
        return SimWriter(world.lake, stem, world.target_rows, before, table_id=table.table_id)

    @staticmethod
    def row_check(task: bytes, table: TableSpec, split: Split) -> SimRowCheck:
        """See `CheckingLakePlugin`."""
        del task
        return SimRowCheck(table, split)

    def partitioner(self, task: bytes, table: TableSpec) -> SimPartitioner:
        """See `PartitioningLakePlugin`."""
        del task
        return SimPartitioner(table.lake_partition)

    def partition_writer(  # noqa: PLR0917 - as the Protocol
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> PartitionWriter:
        """See `PartitioningLakePlugin`."""
        del memory_bytes
        world = self._world
        return PartitionWriter(
            world.lake, f"{task.decode()}{name}-{attempt}", world.target_rows, before, table, partition
        )


class SimTask(Process):
    """The process of one try of a task. `on_end` is told its outcome, or None where it failed."""

    def __init__(self, world: World, place: SubtaskPlace, name: str, on_end: Callable[[str | None], None]) -> None:
        """Start."""
        super().__init__(world.scheduler, name)
        self._world = world
        self._on_end = on_end
        self.place = place
        self.table_id = int(place.job.round_name.rpartition("/")[2].partition("-")[0])
        """The table that its round is of."""
        self.outlives = False
        """Whether the driver takes it for dead."""
        self._turning = False
        self._idles_at = inf
        """When it has its next turn because the mailbox was empty for long enough; only with an exchange."""
        self._write_s = world.partitioned.written_s if place.job.exchange else _WRITE_S
        self._mailbox = Mailbox(self._on_put)
        self._network = SimTransport(world, self)
        plugins = _Plugins(world)
        self._disk = SimSpillDisk(world.disks, self)
        parts = SubtaskPorts(
            transport=self._network,
            executor=SimExecutor(world, self),
            clock=world.clock,
            source=lambda _: cast("SourcePlugin", plugins),
            lake=lambda _: cast("LakePlugin", plugins),
            checkpoints=lambda _: world.store,
            exchange=SimExchangeTransport(world.exchange, self),
            heartbeat_s=_HEARTBEAT_S,
            exchange_limits=world.partitioned.limits,
            spill_disk=self._disk,
        )
        self._kept_looks = 0
        """How often its spill was still there after all restored rows were written."""
        self._subtask = Subtask(place, parts, self._mailbox)
        self._subtask.start()
        self.after(_HEARTBEAT_S, self._pass_time)

    @property
    def gateway(self) -> GatewayPhase | None:
        """Its gateway's phase, None before it is deployed."""
        return self._subtask.gateway

    @property
    def is_restoring(self) -> bool:
        """Whether it reads back or writes rows of a checkpoint."""
        return self._subtask.is_restoring

    @property
    def work(self) -> SplitWork | None:
        """The split that it reads, None if it reads none."""
        return self._subtask.work

    def end(self, outcome: str | None) -> None:
        """The process is over."""
        if self.alive:
            self.kill()
            self._on_end(outcome)

    def kill(self) -> None:
        """Die: connections break with it."""
        super().kill()
        self._network.break_all()

    def _on_put(self) -> None:
        """Begin with the next item: what arrives while it is in work comes after it."""
        if not self._turning and (item := self._mailbox.get(0.0)) is not None:
            self._turning = True
            self.after(self.random.random() * self._write_s, self._take, item)

    def _take(self, item: object) -> None:
        self._turning = False
        self._turn(item)
        self._on_put()
        if self.place.job.exchange and not self._turning:
            self._idle_later()

    def _idle_later(self) -> None:
        """Let a turn come once the mailbox has been empty for as long as the subtask waits for it."""
        at = self.scheduler.now + max(self._subtask.turn_s, _TICK_S)
        if at < self._idles_at or self._idles_at <= self.scheduler.now:
            self._idles_at = at
            self.after(at - self.scheduler.now, self._idle)

    def _idle(self) -> None:
        if self._turning or self.scheduler.now < self._idles_at:
            return
        self._idles_at = inf
        self._turn(None)
        if self.alive and not self._subtask.ended:
            self._idle_later()

    def _pass_time(self) -> None:
        self._turn(None)
        self._look_at_spill()
        self.after(_HEARTBEAT_S, self._pass_time)

    def _turn(self, item: object) -> None:
        subtask = self._subtask
        if not self.alive or subtask.ended:
            return
        before = self._world.enter(self)
        try:
            subtask.turn(item)
        finally:
            self._world.enter(before)
        self._look_at(subtask)

    def _look_at_spill(self) -> None:
        """A spill may stay for checkpoints that hold rows of it, until these are over."""
        if not self._world.disks.of(self) or self._subtask.is_restoring:
            self._kept_looks = 0
            return
        self._kept_looks += 1
        if self._kept_looks * _HEARTBEAT_S > _KEPT_S:
            self._world.checks.fail(f"{self.name}: keeps its spill, which nobody needs")

    def _look_at(self, subtask: Subtask) -> None:
        error = subtask.error
        if error is not None:
            self._world.story.note(self.name, f"fails: {type(error).__name__}: {error}")
            if isinstance(error, IllegalEventError) or not isinstance(error, LakewardError):
                self._world.checks.fail(f"{self.name}: {type(error).__name__}: {error}")
        if subtask.ended:
            subtask.close()
            if self._world.disks.of(self) and not self._disk.busy:
                self._world.checks.fail(f"{self.name}: ends, and leaves its spill")
            self.after(0.01, self.end, subtask.outcome or None)
