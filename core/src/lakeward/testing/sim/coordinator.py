"""One start of a service: the real `Service` with all its parts, on a loop in virtual time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, cast

from lakeward.checkpoint.commit_records import CommitRecords
from lakeward.checkpoint.journal import JournalStore
from lakeward.checkpoint.places import METADATA, start_of
from lakeward.checkpoint.service_state import ServiceStateStore
from lakeward.coordinator.parts import Parts, ServiceOptions
from lakeward.coordinator.service import Service
from lakeward.coordinator.statekeeper import StateKeeper
from lakeward.errors import LakewardError
from lakeward.hooks.backend import LeaseBackend
from lakeward.machines.checkpoint_schedule import CheckpointPolicy
from lakeward.machines.checkpoints import CheckpointPhase
from lakeward.machines.gateway import GatewayPhase
from lakeward.machines.rounds import Phase, RoundsPolicy
from lakeward.model.identity import Incarnation
from lakeward.model.settings import TableSettings
from lakeward.testing.sim.backend import SimBackend
from lakeward.testing.sim.loop import SimLoop
from lakeward.testing.sim.network import SimServer
from lakeward.testing.sim.scheduler import FENCE_S
from lakeward.testing.sim.source import HEARTBEAT_S
from lakeward.testing.sim.spark import SimJobs

if TYPE_CHECKING:
    import asyncio

    from lakeward.checkpoint.store import SmallFiles
    from lakeward.coordinator.checkpointing import CheckpointDone
    from lakeward.coordinator.restoring import Restored
    from lakeward.coordinator.run import RoundRun
    from lakeward.coordinator.server import SubtaskServer
    from lakeward.coordinator.service import ServiceEnd
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Source
    from lakeward.testing.sim.world import World

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
        self.loop = SimLoop(world.scheduler, f"{name}#{world.next_start()}", world.enter)  # type: ignore[abstract] # see SimLoop
        self.jobs = SimJobs(world, self.loop, world.slots)
        self.landed: set[tuple[RoundId, int]] = set()
        self.crash_at = ""
        self.lingers = ""
        """The step that is made to last longer."""
        self.end: ServiceEnd | None = None
        self.over = False
        self.service = Service(self._parts(), self._options(final=final))
        self.server = SimServer(world, self.loop, self.service.desk.find_job)
        self.service.server = cast("SubtaskServer", self.server)
        self.final = final
        self._tell_of_checkpoints()
        self._tell_of_restores()
        self.service.reporter.report = lambda **_: None  # type: ignore[method-assign] # nobody reads it here
        self.loop.look = self._look
        self.task = self.loop.create_task(self.service.serve())
        self.task.add_done_callback(self._done)

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self.loop.alive and not self.over

    def _tell_of_checkpoints(self) -> None:
        build_on = self.service.desk.checkpoint_done

        def checkpoint_done(run: RoundRun, done: CheckpointDone) -> None:
            self._world.checks.completed(done)
            build_on(run, done)

        self.service.desk.checkpoint_done = checkpoint_done  # type: ignore[method-assign] # looked at on its way

    def _tell_of_restores(self) -> None:
        restorer = self.service.desk.restorer
        look = restorer.find

        def find(table: TableSpec, head: LakeHead | None) -> Restored | None:
            there = [name for name in self._world.files.all if name.endswith(f"/{METADATA}")]
            found = look(table, head)
            if found is not None:
                self._world.checks.going_on(found.ref, there)
            return found

        restorer.find = find  # type: ignore[method-assign] # looked at on its way

    def has_given_up(self, ref: CheckpointRef) -> bool:
        """Say whether it starts the table's next round afresh, whatever the checkpoint says.

        A checkpoint that an overtaken start completes once its successor has read the store is none to that one.
        """
        restorer = self.service.desk.restorer
        missed = restorer.known and self.incarnation.succeeds(start_of(ref)) and not restorer.has(ref.table_id)
        return missed or ref.table_id in restorer._distrusted  # noqa: SLF001 - looked at, not touched

    @property
    def is_overtaken(self) -> bool:
        """Whether it knows that a later start took over; it stops then."""
        return bool(self.service._superseded)  # noqa: SLF001 - looked at, not touched

    def step(self, table_id: int | None) -> str:
        """Return the step of the protocol that a table is at, here."""
        if self.service.state_word == "starting":
            return "start"
        tables = self.service.rounds._hand.tables  # noqa: SLF001 - looked at often, not touched
        if table_id is None:
            table_id = min(tables, default=None)
        table = tables.get(table_id) if table_id is not None else None
        return "idle" if table is None else self._step(table.phase, table.offer.table_id)

    def has(self, table_id: int | None) -> tuple[str, ...]:
        """Return which of `faults.NEEDS` a table's round has, here."""
        run = self.service.desk.runs.get(table_id) if table_id is not None else None
        if run is None:
            return ()
        found: tuple[str, ...] = ("checkpoint",) if run.newest is not None else ()
        found += ("restored",) if run.restored is not None else ()
        return (*found, "stepped") if run.step > 1 else found

    def _step(self, phase: Phase, table_id: int) -> str:
        run = self.service.desk.runs.get(table_id)
        if phase is Phase.COMMITTING and run is not None and (run.round_id, run.step) in self.landed:
            return "complete"
        if phase is not Phase.RUNNING or run is None:
            return _PHASES.get(phase, "idle")
        if run.job is None or not run.job._attempts:  # noqa: SLF001 - looked at, not touched
            return "launch"
        return _COURSE.get(run.job.checkpoints._machine.phase, "read")  # noqa: SLF001 - as above

    def stop(self) -> None:
        """Ask it to end."""
        if self.running:
            self.loop.call_soon(self.service.stop)

    def stop_in_a_hurry(self) -> None:
        """Ask it to end, with less time for the rounds than they take."""
        self.service.options = replace(self.service.options, stop_timeout_s=1.0)
        self.stop()

    def crash(self) -> None:
        """Kill the process; its Spark application dies with it."""
        self._world.story.note(self.loop.name, "IS KILLED")
        self.loop.kill()
        self.server.cut_all()
        self.jobs.die()
        self.over = True

    def _look(self) -> None:
        for error in self.loop.errors:
            self._world.checks.fail(f"{self.loop.name}: {error}")
        self.loop.errors.clear()
        self._world.look(self)

    def check_gateways(self) -> None:
        """Make sure that no gateway is closed while no checkpoint runs."""
        for run in self.service.desk.runs.values():
            if run.job is None or run.job.checkpoints._machine.running is not None:  # noqa: SLF001 - looked at
                continue
            for attempt in run.job._attempts.values():  # noqa: SLF001 - as above
                if attempt.gateway.phase is GatewayPhase.CLOSED:
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

    def _parts(self) -> Parts:
        world, name = self._world, self.service_name
        files = cast("SmallFiles", world.files)
        return Parts(
            incarnation=self.incarnation,
            clock=world.clock,
            source=cast("Source", world.source),
            source_name="sim",
            lake=world.lake,
            lake_name="sim",
            jobs=self.jobs,
            backend=_backend(),
            lease_duration_s=world.lease_s,
            state=StateKeeper(ServiceStateStore(files), self.incarnation, "plain", world.clock),
            journals=JournalStore(files, name),
            committed=CommitRecords(files, name),
            checkpoints=world.store,
            checkpoint_root="sim:/state",
        )

    def _options(self, *, final: bool) -> ServiceOptions:
        rules = TableSettings(cut_rows=self._world.cut_rows, commit_every=self._world.commit_every)
        policy = replace(_OPTIONS.checkpoint_policy, interval_s=self._world.checkpoint_s)
        rounds = replace(_OPTIONS.rounds, max_round_s=self._world.max_round_s)
        return replace(_OPTIONS, rules=lambda _: rules, final=final, checkpoint_policy=policy, rounds=rounds)


@cache
def _backend() -> LeaseBackend:
    """It keeps no state of its own, and takes longer to make than many a run."""
    return LeaseBackend("plain", SimBackend())


_OPTIONS = ServiceOptions(
    rounds=RoundsPolicy(
        slots=2,
        renew_every_s=4.0,
        poll_every_s=3.0,
        fence_s=FENCE_S,
        max_round_s=60.0,
        backoff_first_s=1.0,
        backoff_most_s=4.0,
    ),
    rules=lambda _: TableSettings(),
    paused=frozenset,
    resumed=dict,
    on_report=lambda _: None,
    on_round=lambda _name, _report: None,
    host="sim",
    bind="sim",
    port=0,
    spark_ui=None,
    once=False,
    final=False,
    heartbeat_timeout_s=HEARTBEAT_S,
    beat_timeout_s=6.0,
    stop_timeout_s=30.0,
    lease_timeout_s=6.0,
    commit_timeout_s=5.0,
    subtask_timeout_s=12.0,
    job_attempts=4,
    progress_s=1000.0,
    expire_every=2,
    checkpoint_policy=CheckpointPolicy(interval_s=2.0, timeout_s=8.0, pause_s=0.3, tolerated=3),
    retained=2,
)
