"""One start of a service: the real `Service` with all its parts, on a loop in virtual time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dependency_injector.providers import Provider, Singleton
from msgspec.structs import replace as changed

from lakeward.container import ServiceContainer
from lakeward.coordinator.checkpoints.known import KnownCheckpoints
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.effects.executor import RoundExecutor
from lakeward.coordinator.rounds.effects import KeepCheckpoint
from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
from lakeward.coordinator.service.reporter import Reporter
from lakeward.coordinator.service.scheduling import MirroringQueue
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.errors import LakewardError, OutcomeUnknownError
from lakeward.hooks.backend import LeaseBackend
from lakeward.machines.checkpoints import CheckpointPhase
from lakeward.machines.checkpoints.gateway import GatewayPhase
from lakeward.machines.rounds import Phase
from lakeward.model.identity import Incarnation
from lakeward.model.settings import (
    CheckpointSettings,
    LakeSettings,
    LeaseSettings,
    ObserveSettings,
    ServiceSettings,
    Settings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)
from lakeward.storage.checkpoint_layout import METADATA, start_of
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.service_state import ServiceStateStore
from lakeward_simulator.backend import SimBackend
from lakeward_simulator.disk import DIRECTORIES
from lakeward_simulator.loop import SimLoop
from lakeward_simulator.network import SimTransport
from lakeward_simulator.scheduler import FENCE_S
from lakeward_simulator.source import HEARTBEAT_S
from lakeward_simulator.spark import SimJobs

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lakeward.coordinator.checkpoints.contents import CheckpointContents, RestoredRound
    from lakeward.coordinator.rounds.effects import Effect
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.service.service import ServiceEnd
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse
    from lakeward.ports import Clock, Source, TableQueue
    from lakeward.storage.small_files import SmallFiles
    from lakeward_simulator.checks import Checks
    from lakeward_simulator.world import World

T = TypeVar("T")

_PHASES = {
    Phase.OPENING: "open",
    Phase.LEASING: "lease",
    Phase.SETTLING: "settle",
    Phase.COMMITTING: "commit",
    Phase.REPORTING: "report",
    Phase.RETURNING: "report",
}
_COURSE = {
    CheckpointPhase.CLOSING: "close",
    CheckpointPhase.CUTTING: "cut",
    CheckpointPhase.SNAPPING: "cut",
    CheckpointPhase.DRAINING: "drain",
    CheckpointPhase.COLLECTING: "collect",
    CheckpointPhase.STORING: "store",
    CheckpointPhase.ENDING: "store",
}


class Coordinator:
    """One incarnation."""

    def __init__(self, world: World, name: str, *, final: bool = False) -> None:
        """Start it.

        Args:
            world: everything else.
            name: the service's name.
            final: give the lease up at the end.
        """
        self._world = world
        self.service_name = name
        nonce = f"{world.random.getrandbits(64):016x}"
        states = ServiceStateStore(cast("SmallFiles", world.files))
        self.incarnation = Incarnation(name, states.started_ms(name, world.clock.wall_ms()), nonce)
        self.number = number = world.next_start()
        """Of all starts, from 1."""
        self.loop = SimLoop(world.scheduler, f"{name}#{number}", world.enter)  # type: ignore[abstract] # see SimLoop
        self.jobs = SimJobs(world, self.loop, world.slots)
        if (missing := world.partitioned.missing_slots) is not None:
            self.jobs.limited, self.jobs.slots_there = True, max(1, world.slots - missing)
        self.network = SimTransport(world, self.loop, self.loop)
        self.landed: set[tuple[RoundId, int]] = set()
        self.crash_at = ""
        self.lingers = ""
        """The step that is made to last longer."""
        self.end: ServiceEnd | None = None
        self.over = False
        self.final = final
        container = _container()
        container.override_providers(components=self._components(), options=self._options(number, final=final))
        container.executor.set_provides(partial(_CheckedExecutor, world.checks))
        container.checkpoints.set_provides(_KnownCheckpoints)
        container.restorer.set_provides(partial(_CheckedRestorer, world))
        container.reporter.set_provides(_SilentReporter)
        container.queue.set_provides(partial(_queue, mirrors=bool(world.partitioned.routes)))
        self.service = container.service()
        self.loop_state = container.loop()
        self.components = container.components()
        self.rounds = container.rounds()
        self.leases = container.leases()
        self.tables = container.tables()
        self.executor = container.executor()
        self.restorer = container.restorer()
        self.upkeep = container.upkeep_jobs()
        self.checkpoints = cast("_KnownCheckpoints", container.checkpoints())
        container.components.reset_override()
        container.options.reset_override()
        for singleton in _singletons():
            singleton.reset()
        self.loop.look = self._look
        self.task = self.loop.create_task(self.service.serve())
        self.task.add_done_callback(self._done)

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self.loop.alive and not self.over

    def has_given_up(self, ref: CheckpointRef) -> bool:
        """Say whether it starts the table's next round afresh, whatever the checkpoint says.

        A checkpoint that an overtaken start completes once its successor has read the store is none to that one, also
        while it stores the first one of its own.
        """
        known, table_id = self.checkpoints, ref.table_id
        knows_of_none = table_id in known.begun_afresh or not known.has(table_id)
        missed = known.was_read and self.incarnation.succeeds(start_of(ref)) and knows_of_none
        return missed or table_id in known.invalidated

    @property
    def is_overtaken(self) -> bool:
        """Whether it knows that a later start took over; it stops then."""
        return bool(self.loop_state.superseded_by)

    def step(self, table_id: int | None) -> str:
        """Return the step of the protocol that a table is at, here."""
        return self._step_of(table_id, self._phases())

    def steps(self, table_ids: Iterable[int]) -> dict[str, tuple[str, ...]]:
        """Return the steps that tables are at, here, each with what the last table there has."""
        phases = self._phases()
        return {self._step_of(table_id, phases): self.has(table_id) for table_id in table_ids}

    def has(self, table_id: int | None) -> tuple[str, ...]:
        """Return which of `faults.NEEDS` a table's round has, here."""
        one = self.tables.round(table_id) if table_id is not None else None
        if one is None:
            return ()
        run = one.facts
        found: tuple[str, ...] = ("checkpoint",) if run.newest is not None else ()
        found += ("restored",) if run.restored is not None else ()
        launched = one.job.launched if one.job is not None else None
        found += ("relaunched",) if launched is not None and launched.job_attempt > 1 else ()
        rows = run.newest is not None and any(one.segments() for one in run.newest.state.exchange)
        found += ("rows",) if rows else ()
        found += ("recovering",) if self._is_restoring(table_id) else ()
        return (*found, "stepped") if run.step > 1 else found

    def _is_restoring(self, table_id: int | None) -> bool:
        """Say whether subtasks of a table restore rows; only where that is a step of its own."""
        if not self._world.partitioned.recovers:
            return False
        return any(task.is_restoring for task in self.jobs.running() if task.table_id == table_id)

    def _phases(self) -> dict[int, Phase]:
        return {status.assignment.table_id: status.phase for status in self.rounds.tables}

    def _step_of(self, table_id: int | None, phases: Mapping[int, Phase]) -> str:
        if self.service.state == "starting":
            return "start"
        if table_id is None:
            table_id = min(phases, default=None)
        phase = None if table_id is None else phases.get(table_id)
        return "idle" if table_id is None or phase is None else self._step(phase, table_id)

    def _step(self, phase: Phase, table_id: int) -> str:
        run = self.tables.round(table_id)
        landed = run is not None and (run.facts.round_id, run.facts.step) in self.landed
        if phase is Phase.COMMITTING and landed:
            return "complete"
        if phase is not Phase.RUNNING or run is None:
            return _PHASES.get(phase, "idle")
        if run.job is None or not run.job.attempts:
            return "launch"
        course = _COURSE.get(run.job.checkpoints.phase)
        return course or ("recover" if self._is_restoring(table_id) else "read")

    @property
    def suspended(self) -> frozenset[int]:
        """The tables that wait for a person."""
        waiting = (status for status in self.rounds.tables if status.phase is Phase.SUSPENDED)
        return frozenset(status.assignment.table_id for status in waiting)

    def stop(self) -> None:
        """Ask it to end."""
        if self.running:
            self.loop.call_soon(self.service.stop)

    def stop_in_a_hurry(self) -> None:
        """Ask it to end, with less time for the rounds than they take."""
        if self.running:
            self.loop.call_soon(self.service.stop, 1.0)

    def crash(self) -> None:
        """Kill the process; its Spark application dies with it."""
        self._world.story.note(self.loop.name, "IS KILLED")
        self.loop.kill()
        self.network.break_all()
        self.jobs.die()
        self.over = True

    def _look(self) -> None:
        for error in self.loop.errors:
            self._world.checks.fail(f"{self.loop.name}: {error}")
        self.loop.errors.clear()
        self._world.look(self)

    def check_gateways(self) -> None:
        """Make sure that no gateway to a subtask that still works is closed while no checkpoint runs."""
        for run in self.tables.rounds:
            if run.job is None or run.job.launched is None or run.job.checkpoints.running is not None:
                continue  # between two launches there is no gateway
            for attempt in run.job.attempts.values():
                # A gateway ends with its attempt: one may have finished between the cut and its trigger.
                if attempt.gateway.phase is GatewayPhase.CLOSED and not attempt.done:
                    self._world.checks.fail(f"{self.loop.name}: gateway of {attempt.key} left closed")

    def _done(self, task: asyncio.Task[ServiceEnd]) -> None:
        self.over = True
        error = task.exception()
        if error is None:
            self.end = task.result()
            self._world.story.note(self.loop.name, f"ends {self.end}")
        else:
            self._world.story.note(self.loop.name, f"fails: {error!r}")
            if not isinstance(error, LakewardError) or "internal error" in str(error):
                self._world.checks.fail(f"{self.loop.name}: {error!r}")
        self.loop.after(1.0, self._exit)

    def _exit(self) -> None:
        self.loop.kill()
        self.jobs.die()
        self._world.ended(self)

    def _components(self) -> ServiceComponents:
        world, name = self._world, self.service_name
        files = cast("SmallFiles", world.files)
        source = cast("Source", world.source)
        return ServiceComponents(
            incarnation=self.incarnation,
            clock=world.clock,
            transport=self.network,
            source=source,
            lake=world.lake,
            jobs=self.jobs,
            backend=_backend(),
            state=ServiceStateWriter(ServiceStateStore(files), self.incarnation, "plain", world.clock),
            journals=JournalStore(files, name),
            committed=CommitRecords(files, name),
            checkpoints=world.store,
        )

    def _options(self, number: int, *, final: bool) -> ServiceOptions:
        world, partitioned = self._world, self._world.partitioned
        settings = changed(
            _SETTINGS,
            lake=changed(_SETTINGS.lake, open_files=partitioned.open_files),
            lease=changed(_SETTINGS.lease, duration_s=world.lease_s),
            checkpoint=changed(
                _SETTINGS.checkpoint,
                interval_s=world.checkpoint_s,
                unaligned=partitioned.unaligned,
                aligned_timeout_s=partitioned.aligned_timeout_s,
                open_rows=partitioned.open_rows,
                during_recovery=partitioned.during_recovery[number % len(partitioned.during_recovery)],
                spill_dirs=DIRECTORIES,
                memory=partitioned.memory,
            ),
            service=changed(_SETTINGS.service, max_round_s=world.max_round_s),
        )
        return replace(
            _OPTIONS,
            settings=settings,
            rules=self._rules,
            mirrors=bool(partitioned.routes),
            final=final,
            resumed=partial(dict, world.rescaling.resumed),
            upkeep=dict,
        )

    def _rules(self, path: TablePath) -> TableSettings:
        world = self._world
        rules = TableSettings(max_split_rows=world.max_split_rows, commit_every=world.commit_every)
        if world.keeps_letters:
            rules = changed(rules, on_bad_row="dead_letter", bad_rows_most=1000)
        route = world.partitioned.route(path)
        return (
            rules
            if route is None
            else changed(rules, mode="mirror", lake_partition=world.partitioned.layout(route, self.number))
        )


class _CheckedExecutor(RoundExecutor):
    """Shows each completed checkpoint to the checks before anything is built on it."""

    def __init__(self, checks: Checks, **collaborators: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(**collaborators)
        self._checks = checks

    def execute(self, one: Round, effects: Iterable[Effect]) -> None:
        """See `RoundExecutor`."""
        wanted = tuple(effects)
        newest = None if one.job is None else one.job.checkpoints.newest
        if newest is not None and any(isinstance(effect, KeepCheckpoint) for effect in wanted):
            self._checks.completed(newest)
        super().execute(one, wanted)


class _KnownCheckpoints(KnownCheckpoints):
    """Notes where a checkpoint begins to be stored of a table of which none was known."""

    def __init__(self) -> None:
        super().__init__()
        self.begun_afresh: set[int] = set()
        """Tables whose round has begun to store a checkpoint when none was known: an earlier start's may be there."""

    def expect(self, table_id: int, state: CheckpointContents) -> None:
        """See `KnownCheckpoints`."""
        if not self.has(table_id):
            self.begun_afresh.add(table_id)
        super().expect(table_id, state)


class _CheckedRestorer(Restorer):
    """Shows each checkpoint that a round goes on from to the checks."""

    def __init__(self, world: World, *collaborators: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(*collaborators)
        self._world = world

    def find(self, table: TableSpec, head: LakeHead | None, *, exchange: bool = False) -> RestoredRound | None:
        """See `Restorer`."""
        there = [name for name in self._world.files.all if name.endswith(f"/{METADATA}")]
        found = super().find(table, head, exchange=exchange)
        if found is not None:
            cast("_KnownCheckpoints", self.known).begun_afresh.discard(table.table_id)
            self._world.checks.going_on(found.ref, there)
        return found


class _Queue(MirroringQueue):
    """Mirrors tables. Where a thread would wait for a heartbeat that is under way, it gets no answer at once."""

    _busy = False

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """See `MirroringQueue`."""
        return self._alone(partial(super().heartbeat, request))

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See `MirroringQueue`."""
        return self._alone(partial(super().make_due, paths))

    def _alone(self, call: Callable[[], T]) -> T:
        if self._busy:
            message = "heartbeat: the one before has no answer yet"
            raise OutcomeUnknownError(message)
        self._busy = True
        try:
            return call()
        finally:
            self._busy = False


def _queue(
    source: Source, rules: Callable[[TablePath], TableSettings], clock: Clock, *, mirrors: bool, **_: object
) -> TableQueue:
    """Return the source's own queue as it is, or one that mirrors tables as well."""
    return _Queue(source, rules, clock) if mirrors else source


class _SilentReporter(Reporter):
    """Makes no report: nobody reads it here."""

    def report(self, *, force: bool = False) -> None:
        """See `Reporter`."""


@cache
def _container() -> ServiceContainer:
    """One for all starts, given back empty by each: to copy its providers takes longer than to build a service."""
    container = ServiceContainer()
    provider: Provider[Any]
    for provider in container.traverse():
        provider.disable_async_mode()  # else it looks at each object that it makes whether that is awaitable
    return container


@cache
def _singletons() -> tuple[Singleton[Any], ...]:
    """What a start leaves in the container. To look for it anew takes longer than to build a service."""
    return tuple(_container().traverse([Singleton]))


@cache
def _backend() -> LeaseBackend:
    """It keeps no state of its own, and takes longer to make than many a run."""
    return LeaseBackend("plain", SimBackend())


_SETTINGS = Settings(
    service=ServiceSettings(
        rounds=2,
        renew_s=4.0,
        poll_s=3.0,
        fence_s=FENCE_S,
        max_round_s=60.0,
        backoff_first_s=1.0,
        backoff_most_s=4.0,
        stop_timeout_s=30.0,
    ),
    source=SourceSettings(type="sim", heartbeat_timeout_s=HEARTBEAT_S),
    lake=LakeSettings(type="sim", commit_timeout_s=5.0, expire_every=2, upkeep_timeout_s=10.0),
    lease=LeaseSettings(call_timeout_s=6.0),
    checkpoint=CheckpointSettings(
        root="sim:/state", interval_s=2.0, timeout_s=8.0, pause_s=0.3, tolerated=3, retained=2
    ),
    spark=SparkSettings(subtask_timeout_s=12.0, reconnect_s=2.5, job_attempts=4),
    observe=ObserveSettings(progress_s=1000.0),
)
_OPTIONS = ServiceOptions(
    settings=_SETTINGS,
    rules=lambda _: TableSettings(),
    paused=frozenset,
    resumed=dict,
    upkeep=dict,
    on_report=lambda _: None,
    on_round=lambda _: None,
    host="sim",
    bind="sim",
    spark_ui=None,
    once=False,
    final=False,
    most_heartbeat_call_s=6.0,
    turn_s=1.0,
)
