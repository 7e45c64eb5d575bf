"""One task of a job: the real `Subtask` in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakeward.errors import IllegalEventError, LakewardError
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.parts import SubtaskParts
from lakeward.subtask.subtask import Subtask
from lakeward_simulator.executor import SimExecutor
from lakeward_simulator.lake import SimWriter, stem_of
from lakeward_simulator.network import SimTransport
from lakeward_simulator.scheduler import Process
from lakeward_simulator.source import SimReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.machines.checkpoints.gateway import GatewayPhase
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.subtask.work import SplitWork
    from lakeward_simulator.world import World

_WRITE_S = 0.05
_HEARTBEAT_S = 2.0


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
        del table
        return SimWriter(self._world.lake, stem_of(task, split, attempt), self._world.target_rows, progress)


class SimTask(Process):
    """The process of one try of a task. `on_end` is told its outcome, or None where it failed."""

    def __init__(self, world: World, place: SubtaskPlace, name: str, on_end: Callable[[str | None], None]) -> None:
        """Start."""
        super().__init__(world.scheduler, name)
        self._world = world
        self._on_end = on_end
        self.place = place
        self.outlives = False
        """Whether the driver takes it for dead."""
        self._turning = False
        self._mailbox = Mailbox(self._on_put)
        self._network = SimTransport(world, self)
        plugins = _Plugins(world)
        parts = SubtaskParts(
            transport=self._network,
            executor=SimExecutor(world, self),
            clock=world.clock,
            source=lambda _: cast("SourcePlugin", plugins),
            lake=lambda _: cast("LakePlugin", plugins),
            checkpoints=lambda _: world.store,
            heartbeat_s=_HEARTBEAT_S,
        )
        self._subtask = Subtask(place, parts, self._mailbox)
        self._subtask.start()
        self.after(_HEARTBEAT_S, self._pass_time)

    @property
    def gateway(self) -> GatewayPhase | None:
        """Its gateway's phase, None before it is deployed."""
        return self._subtask.gateway

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
            self.after(self.random.random() * _WRITE_S, self._take, item)

    def _take(self, item: object) -> None:
        self._turning = False
        self._turn(item)
        self._on_put()

    def _pass_time(self) -> None:
        self._turn(None)
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

    def _look_at(self, subtask: Subtask) -> None:
        error = subtask.error
        if error is not None:
            self._world.story.note(self.name, f"fails: {type(error).__name__}: {error}")
            if isinstance(error, IllegalEventError) or not isinstance(error, LakewardError):
                self._world.checks.fail(f"{self.name}: {type(error).__name__}: {error}")
        if subtask.ended:
            subtask.close()
            self.after(0.01, self.end, subtask.outcome or None)
