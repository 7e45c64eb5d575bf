"""The whole world of one run: services that come and go, one source, one lake, one store, and the faults."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lakeward.model.dead_letters import owner_of
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward_simulator import rescaling, strikes
from lakeward_simulator.checks import Checks
from lakeward_simulator.coordinator import Coordinator
from lakeward_simulator.disk import SimDisks
from lakeward_simulator.exchange import ExchangeNetwork
from lakeward_simulator.faults import AMID, LONG
from lakeward_simulator.files import SimFiles
from lakeward_simulator.lake import SimLake
from lakeward_simulator.partitions import Partitioned
from lakeward_simulator.rescaling import Rescaling
from lakeward_simulator.scheduler import Killed, Process, Scheduler, SimClock
from lakeward_simulator.source import SimSource
from lakeward_simulator.story import Story
from lakeward_simulator.subtask import SimTask
from lakeward_simulator.upkeep import UpkeptLake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakeward.model.results import CommitRequest
    from lakeward.model.tables import TablePath
    from lakeward_simulator.faults import Fault, Faults
    from lakeward_simulator.lake import LakeTable
    from lakeward_simulator.network import SimConnection, SimListener
    from lakeward_simulator.source import SimTable


def _go_on() -> bool:
    return False


class World:
    """Everything that outlives a process."""

    keeps_letters = False
    """Whether some rows do not fit, and become dead letters."""

    def __init__(self, seed: int, faults: Faults, *, story: bool, upkept: bool = False) -> None:
        """Start empty.

        Args:
            seed: of all chance.
            faults: what goes wrong, and when.
            story: keep what happens.
            upkept: whether the lake has upkeep by jobs of its own.
        """
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 - a replay, not a secret
        self.scheduler = Scheduler(self.random)
        self.story = Story(self.scheduler, on=story)
        self.clock = SimClock(self.scheduler, self._sleep)
        self.checks = Checks(self)
        self.faults = faults
        self.files = SimFiles(self)
        self.store = CheckpointFiles(self.files, self.clock, readers=1)  # type: ignore[arg-type] # it has what is asked of it
        self.source = SimSource(self)
        self.lake = UpkeptLake(self) if upkept else SimLake(self)
        self.connections: list[SimConnection] = []
        self.exchange = ExchangeNetwork(self.scheduler)
        self.disks = SimDisks(self)
        self.exchange.on_overrun = self.checks.fail
        self.coordinators: list[Coordinator] = []
        self.slots = 2
        self.target_rows = 6
        self.max_split_rows = 0
        self.commit_every = 0.0
        self.keyed = 0.5
        """Share of primary-key tables."""
        self.lease_s = 60.0
        self.latency_s = 0.05
        self.read_s = 0.8
        self.away_s = 18.0
        """Seconds that the source is away at least; up to 12 more by chance."""
        self.more_rows = 0
        """Records that each table has in addition to those that chance gives it."""
        self.lose_data = 0
        """So many data events of subtasks are still to be lost with their connections."""
        self.overtaken_s = 0.05
        """Seconds after a reconnect within which messages without a number overtake data that is sent again."""
        self.max_round_s = 60.0
        """Seconds after which a round is cut."""
        self.checkpoint_s = 2.0
        """Seconds from the start of a checkpoint to the start of the next."""
        self.partitioned = Partitioned()
        self.rescaling = Rescaling()
        self.keep_alive = True
        self.on_fault: Callable[[str, Coordinator], bool] = lambda _kind, _who: True
        self.before_call: Callable[[str, str, Process], str | None] = lambda _service, _what, _caller: None
        """For tests: called before each call of a service; says how it goes wrong, None if it does not."""
        self.at_point: Callable[[str, Process], None] = lambda _service, _caller: None
        """For tests: called in the middle of a call, where it has begun to take effect."""
        self._acting: Process | None = None
        self._starts = 0
        self._listeners: dict[int, SimListener] = {}

    # --- processes ---------------------------------------------------------------------------------------------

    def start(self, name: str = "svc", *, final: bool = False) -> Coordinator:
        """Start a service."""
        coordinator = Coordinator(self, name, final=final)
        self.coordinators.append(coordinator)
        self.story.note(coordinator.loop.name, "starts")
        return coordinator

    def restart_later(self, name: str, seconds: float) -> None:
        """Start a service again after some time, if it does not run by then."""
        self.scheduler.after(seconds, partial(self._restart, name))

    def _restart(self, name: str) -> None:
        if self.keep_alive and not any(c.running and not c.loop.frozen for c in self.of(name)):
            self.start(name)

    def of(self, name: str) -> list[Coordinator]:
        """Return all starts of a service."""
        return [one for one in self.coordinators if one.service_name == name]

    def ended(self, coordinator: Coordinator) -> None:
        """A service has ended by itself: whoever watches over it starts it again, unless it was superseded."""
        if self.keep_alive and not any(c.running for c in self.of(coordinator.service_name)):
            self.restart_later(coordinator.service_name, 1.0)

    def running(self) -> list[Coordinator]:
        """Return the services that live."""
        return [one for one in self.coordinators if one.running]

    def tasks(self, coordinator: Coordinator) -> list[SimTask]:
        """Return the subtasks that live, of one service."""
        return coordinator.jobs.running()

    def next_start(self) -> int:
        """Count a start."""
        self._starts += 1
        return self._starts

    def listen(self, listener: SimListener) -> int:
        """Give a listener its port."""
        port = len(self._listeners) + 1
        self._listeners[port] = listener
        return port

    def listener_at(self, port: int) -> SimListener | None:
        """Return who listens at a port, None if nobody does."""
        listener = self._listeners.get(port)
        return listener if listener is not None and listener.loop.alive else None

    # --- who acts, and what goes wrong ------------------------------------------------------------------------

    def enter(self, process: Process | None) -> Process | None:
        """Say who acts from now on; return who did."""
        before, self._acting = self._acting, process
        return before

    def call(self, service_name: str, what: str, allowed: Iterable[str], table_id: int | None) -> str | None:
        """Somebody calls a service: return how it goes wrong, None if it does not; a slow one takes its time here."""
        caller = self._acting
        if caller is None:
            return None
        if not caller.alive:
            raise Killed
        if (chosen := self.before_call(service_name, what, caller)) is not None:
            self.story.note("FAULT", f"{service_name} {chosen}, {what} by {caller.name}")
            return chosen
        coordinator = self._behind(caller) if self.faults.armed else None
        if coordinator is None:
            return None
        step = coordinator.step(table_id)
        has = coordinator.has(table_id) if self.faults.armed else ()
        struck = self.faults.strike(service_name, step, self.scheduler.now, allowed, has=has, what=what)
        if struck is None:
            self._linger(coordinator, caller, service_name, step)
            return None
        how, fault = struck
        self.story.note("FAULT", f"{service_name} {how}, {what} by {caller.name}, step {step}")
        return self._suffer(how, coordinator, caller, fault)

    def _suffer(self, how: str, coordinator: Coordinator, caller: Process, fault: Fault) -> str | None:
        if how == "slow":
            seconds = 1.0 + self.random.random() * (14.0 if self.random.random() < 0.7 else 44.0)
            if fault.brief:  # whoever calls shall get its answer in time
                seconds = self.random.random() * 2.0
                self.scheduler.after(seconds / 2.0, partial(self._amid, self.random.choice(fault.amid), coordinator))
            elif fault.amid:  # early, and for long: a successor shall get something done
                seconds = max(seconds, 12.0)
                kind = self.random.choice(fault.amid)
                self.scheduler.after(self.random.random() * 3.0, partial(self._amid, kind, coordinator))
                for path in self.source.tables_by_path:
                    self.scheduler.after(seconds / 2, partial(self.append, path, 12))
            elif self.random.random() < self.faults.amid:
                kind = self.random.choice(AMID)
                self.scheduler.after(self.random.random() * seconds, partial(self._amid, kind, coordinator))
            self.block(caller, seconds)
        elif how == "crash":
            self._crash(coordinator, fault.kind.rpartition(" ")[2], caller)
        else:
            return how
        return None

    def _amid(self, kind: str, coordinator: Coordinator) -> None:
        """Let something happen while a call takes long."""
        if not self.faults.over and coordinator.running and self.on_fault(kind, coordinator):
            self.story.note("FAULT", f"{kind}, in the midst of it, at {coordinator.loop.name}")

    def _linger(self, coordinator: Coordinator, caller: Process, service_name: str, step: str) -> None:
        if coordinator.lingers == step and LONG.get(step) == service_name:
            coordinator.lingers = ""
            self.block(caller, strikes.LINGER_S)

    def point(self, service_name: str) -> None:
        """A call has begun to take effect, and has not returned yet."""
        caller = self._acting
        if caller is not None:
            self.at_point(service_name, caller)
        for coordinator in self.coordinators:
            if coordinator.crash_at == service_name and coordinator.running:
                coordinator.crash_at = ""
                self._die(coordinator)
        if caller is not None and not caller.alive:
            raise Killed

    def block(self, process: Process, seconds: float) -> None:
        """Let a process stand in a call for some time, while the world goes on."""
        self._acting = None
        try:
            process.wait(seconds)
        finally:
            self._acting = process

    def _sleep(self, seconds: float) -> None:
        if self._acting is not None:
            self.block(self._acting, seconds)

    def landed(self, table: LakeTable, request: CommitRequest) -> None:
        """A commit has landed."""
        if (owner := owner_of(request.path)) is not None:
            self.story.note("lake", f"dead letters of {request.round_id}, step {request.step}")
            self.checks.letters_landed(table, request.path, owner)
            return
        for coordinator in self.coordinators:
            if coordinator.incarnation == request.incarnation:
                coordinator.landed.add((request.round_id, request.step))
        self.story.note(
            "lake", f"commit {request.ids.snapshot_id} of {request.round_id} step {request.step}: {_shown(request)}"
        )
        self.checks.landed(table, request)

    def look(self, coordinator: Coordinator) -> None:
        """A service has come to rest for a moment: strike if a fault waits for that."""
        if not self.scheduler.steps % 4:
            coordinator.check_gateways()
        if not self.faults.armed or not self.faults.may_strike(self.scheduler.now):
            return
        steps = coordinator.steps(table.spec.table_id for table in self.source.tables_by_path.values())
        for fault in self.faults.due(steps, self.scheduler.now):
            if self.on_fault(fault.kind, coordinator):
                self.story.note("FAULT", f"{fault.kind}, step {fault.step}, at {coordinator.loop.name}")
                self.faults.count(fault)
                return
        waiting = self.faults.waiting(steps, self.scheduler.now)
        if waiting is not None:
            strikes.linger(self, coordinator, waiting.step)

    def _behind(self, caller: Process) -> Coordinator | None:
        if isinstance(caller, SimTask):
            listener = self._listeners.get(caller.place.job.port)
            return None if listener is None else self.coordinator_of(listener.loop)
        return self.coordinator_of(caller)

    def coordinator_of(self, process: Process) -> Coordinator | None:
        """Return the service whose process this is, None if it is no service's."""
        return next((one for one in self.coordinators if one.loop is process), None)

    def _crash(self, coordinator: Coordinator, service_name: str, caller: Process) -> None:
        if self.random.random() < 0.5:
            coordinator.crash_at = service_name  # once the call has taken effect
            return
        self._die(coordinator)
        if not caller.alive:
            raise Killed

    def _die(self, coordinator: Coordinator) -> None:
        coordinator.crash()
        self.restart_later(coordinator.service_name, 0.5 + self.random.random() * 20.0)

    # --- records ------------------------------------------------------------------------------------------------

    def append(self, path: TablePath, count: int) -> None:
        """Write some records to a table."""
        table = self.source.tables_by_path.get(path)
        if table is None:
            return
        buckets = [*table.logs]
        for _ in range(count):
            table.write(self.random.choice(buckets), self.random)

    def take_snapshots(self, path: TablePath) -> None:
        """Take KV snapshots of a table; older ones are cleaned."""
        table = self.source.tables_by_path.get(path)
        if table is None or not table.spec.has_primary_key:
            return
        for bucket in table.logs:
            self.source.snapshot(table, bucket)
            for number, offset in table.snapshots[bucket].items():
                self.checks.snapshots[bucket, number] = offset

    def later(self, seconds: float, change: Callable[[], object]) -> None:
        """Change a table of the source after some time; nothing is caught up before."""
        self.source.to_come += 1

        def now() -> None:
            self.source.to_come -= 1
            change()

        self.scheduler.after(seconds, now)

    def change_buckets(self, path: TablePath) -> None:
        """Change a table's count of buckets, and write to those that it has then."""
        table = self.source.tables_by_path.get(path)
        if table is None:
            return
        self.rescaling.changed = True
        later = rescaling.change_count(table, self.random)
        self._grown(path)
        if later:
            self.later(self.random.random() * 6.0, partial(self.add_partition, table))

    def add_partition(self, table: SimTable) -> None:
        """Add a partition to a table, and write to it, unless the table was dropped or has none."""
        if self.source.tables_by_path.get(table.spec.path) is table and table.spec.partition_keys:
            rescaling.add_partition(table)
            self._grown(table.spec.path)

    def mend(self, table: SimTable) -> None:
        """Do what a person does with a table that the lake refuses: set its count back, or drop it."""
        path, lake = table.spec.path, self.lake.tables.get(table.spec.path)
        if lake is not None and (rescaling.fits(table, lake) or rescaling.set_back(table, lake.buckets)):
            self.story.note("world", f"{path} has {lake.buckets} buckets again, and is resumed")
            self.rescaling.resumed[str(path)] += 1
        else:
            self.story.note("world", f"{path} is dropped, for the lake refuses it")
            self.source.drop(path)

    def _grown(self, path: TablePath) -> None:
        table, lake = self.source.tables_by_path[path], self.lake.tables.get(path)
        if not rescaling.fits(table, lake if lake and lake.table_id == table.spec.table_id else None):
            self.rescaling.misfits.add(table.spec.table_id)
        self.story.note("world", f"{path} has {table.spec.buckets} buckets, {len(table.logs)} in all partitions")
        for bucket in table.logs:
            if not table.logs[bucket]:
                for _ in range(self.random.randint(0, 4)):
                    table.write(bucket, self.random)
        self.append(path, 4)
        if self.random.random() < 0.5:
            self.take_snapshots(path)

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, seconds: float, stop: Callable[[], bool] | None = None, every_s: float = 0.0) -> None:
        """Let time go on, for so long or until something is seen, looked for so often (or a check has failed)."""
        self.scheduler.run_until(self.scheduler.now + seconds, stop or _go_on, every_s)

    @property
    def acting(self) -> Process | None:
        """Who acts now, None if that is nobody."""
        return self._acting

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Take the product's log into the story while it runs."""
        with self.story.listening():
            yield


def _shown(request: CommitRequest) -> str:
    offsets = {str(bucket): offset for bucket, offset in request.offsets.items()}
    return f"offsets {offsets}, files {[file.path.rpartition('/')[2] for file in request.files]}"
