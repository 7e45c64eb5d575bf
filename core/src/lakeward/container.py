"""Builds a service from a configuration: the only importer of dependency_injector.

Source, lake and store are selected by name among what is installed; whatever has to be freed is a resource, and
resources are freed in the reverse order of their need. Tests override providers.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import structlog
from dependency_injector import containers, providers
from rich.console import Console

from lakeward.clock import SystemClock
from lakeward.config.entries import place
from lakeward.config.shown import secret_values
from lakeward.config.tables import modes_of, table_rules
from lakeward.coordinator.checkpoints.known import KnownCheckpoints
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.commits.round_committer import RoundCommitter, commit_pauses
from lakeward.coordinator.effects.clean import Cleaning
from lakeward.coordinator.effects.commit import Committing
from lakeward.coordinator.effects.executor import RoundExecutor
from lakeward.coordinator.effects.lag import LagAfterCommit
from lakeward.coordinator.effects.launch import Launching
from lakeward.coordinator.effects.lease import LeaseProtection
from lakeward.coordinator.effects.open import TableOpener
from lakeward.coordinator.effects.plan import Planning
from lakeward.coordinator.effects.policy import RoundPolicy
from lakeward.coordinator.effects.store import Storing
from lakeward.coordinator.effects.upkeep import Upkeep
from lakeward.coordinator.effects.work import merged
from lakeward.coordinator.leases.driver import LeaseDriver
from lakeward.coordinator.rounds.mirroring import MIRROR, configured_tables
from lakeward.coordinator.service.all_tables import AllTables
from lakeward.coordinator.service.bound_tables import BoundTables
from lakeward.coordinator.service.closing import OpenResources
from lakeward.coordinator.service.commands import Commands
from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
from lakeward.coordinator.service.heartbeats import Heartbeats
from lakeward.coordinator.service.housekeeping import Housekeeping
from lakeward.coordinator.service.life import Life
from lakeward.coordinator.service.reporter import Reporter
from lakeward.coordinator.service.scheduling import table_queue
from lakeward.coordinator.service.server import SubtaskServer
from lakeward.coordinator.service.service import Service, ServiceEnd
from lakeward.coordinator.service.start import Start
from lakeward.coordinator.service.start_order import started_ms
from lakeward.coordinator.service.stop import Ending
from lakeward.coordinator.service.stop_signals import StopSignals, unless_stopped
from lakeward.coordinator.service.turn import Controls, Turn
from lakeward.coordinator.state.persistence import StatePersistence
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.coordinator.tables.tables import Tables
from lakeward.coordinator.tables.targets import TargetOffsets
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.event_loop import EventLoop
from lakeward.coordinator.workers.subtask_address import SubtaskAddress
from lakeward.coordinator.workers.table_locks import TableLocks
from lakeward.errors import EXIT_FAILED, LakewardError, StorageError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.discovery import installed, load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.local_files import is_local
from lakeward.machines.leases import Leases, LeasesPolicy
from lakeward.machines.rounds import Rounds
from lakeward.model.identity import Incarnation
from lakeward.model.secrets import SecretTexts
from lakeward.observe import status_file
from lakeward.observe.condition import ConditionTracker
from lakeward.observe.control import ControlReader
from lakeward.observe.event_log import EventLog, log_start
from lakeward.observe.exchange import BackgroundExchange, DirectExchange
from lakeward.observe.files import service_folder, writable
from lakeward.observe.live_status import LiveStatus, Part
from lakeward.observe.masking import masked_record, masked_report, masked_round
from lakeward.observe.metrics import ServiceMetrics
from lakeward.observe.observers import ObservedService, OpenObserver, find_observers
from lakeward.observe.presence import show_presence
from lakeward.observe.progress import ProgressDisplay
from lakeward.owned_folder import OwnedFolder
from lakeward.sockets import SocketTransport
from lakeward.sockets.addresses import bind_address, check_addresses
from lakeward.sockets.certificates import ServerTls, load_tls
from lakeward.spark.jobs import SparkJobs
from lakeward.spark.session import SparkHandle, start_session
from lakeward.spark.starting import StartingSpark
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.round_history import HistoryWriter, RoundHistory
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_task
from lakeward.threads import ThreadExecutor

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from lakeward.config.loaded import Loaded
    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.model.settings import Settings, TableSettings
    from lakeward.model.status import ServiceReport
    from lakeward.model.tables import TablePath
    from lakeward.observe.exchange import Exchange
    from lakeward.observe.observers import Observer
    from lakeward.ports import Clock, Lake, Source

_LOOK_EVERY_S = 0.5
_log = structlog.get_logger("lakeward.container")


def _service_name(settings: Settings) -> str:
    # `settings.service.name` would be the provider's own attribute `name`.
    return settings.service.name


def _bound_tables(loaded: Loaded, files: SmallFiles, clock: Clock) -> BoundTables:
    where = place(loaded.file, "service.tables")
    return BoundTables(BindingFiles(files), loaded.settings.service, clock, ThreadExecutor(), where)


def _rules(loaded: Loaded, bound: BoundTables, path: TablePath) -> TableSettings:
    return bound.rules(path, table_rules(loaded, path).settings)


def _incarnation(loaded: Loaded, clock: Clock, states: ServiceStateStore, source: Source, lake: Lake) -> Incarnation:
    service = loaded.settings.service.name
    started = started_ms(service, clock, states, lake, partial(_included_tables, loaded, source))
    return Incarnation(service, started, secrets.token_hex(8))


def _included_tables(loaded: Loaded, source: Source) -> list[TablePath]:
    def rules(path: TablePath) -> TableSettings:
        return table_rules(loaded, path).settings

    found = configured_tables(source, rules, mirrors=MIRROR in modes_of(loaded.settings))
    return [table.path for table in found if rules(table.path).include]


def _source(name: str, options: Any, clock: Clock, resources: OpenResources) -> Source:  # noqa: ANN401 - its own
    source = cast("SourcePlugin", load(SOURCE_GROUP, name)).open(options, clock)
    resources.add("source", source.close)
    return source


def _lake(name: str, options: Any, clock: Clock, resources: OpenResources) -> Lake:  # noqa: ANN401 - the plugin's own
    lake = cast("LakePlugin", load(LAKE_GROUP, name)).open(options, clock)
    resources.add("lake", lake.close)
    return lake


def _start_spark(settings: Settings, resources: OpenResources, abandoned: threading.Event) -> SparkHandle:
    if is_local(settings.checkpoint.root):
        directory = service_folder(settings.checkpoint.root, settings.service.name) / "spark"
    else:  # Spark's own files are for this machine and this start
        temporary = OwnedFolder("lakeward-spark-")
        resources.add("directory of Spark", temporary.cleanup)
        directory = temporary.path
    handle = start_session(settings.spark, settings.service.name, settings.service.rounds, directory, abandoned)
    resources.add("spark", handle.stop)
    return handle


def _starting_spark(settings: Settings, resources: OpenResources) -> StartingSpark:
    starting = StartingSpark(partial(_start_spark, settings, resources), ThreadExecutor())
    resources.add("start of Spark", starting.abandon)
    return starting


def _spark(starting: StartingSpark) -> SparkHandle:
    return starting.wait()


def _tls(settings: Settings, handle: SparkHandle) -> ServerTls | None:
    return load_tls(settings.service, settings.service.host or handle.driver_host)


def _backend(loaded: Loaded, resources: OpenResources, metrics: ServiceMetrics) -> LeaseBackend:
    lease = loaded.settings.lease
    backend = LeaseBackend.load(lease.backend, lease.wrappers, loaded.lease_options, metrics.registry)
    backend.open()
    resources.add("lease backend", backend.close)
    return backend


def _observer(
    name: str, observers: Mapping[str, Observer], observed: ObservedService, incarnation: Incarnation | None = None
) -> OpenObserver | None:
    """Open an observer; return None where it is not asked for. The incarnation is None as long as nobody knows it."""
    if name not in observers:
        return None
    return observers[name](observed if incarnation is None else replace(observed, incarnation=str(incarnation)))


def lease_duration_s(settings: Settings, backend: LeaseBackend) -> float:
    """Return how long a lease lives without renewal, in seconds."""
    return settings.lease.duration_s or backend.default_duration_s


class ServiceContainer(containers.DeclarativeContainer):
    """The objects of one service run. `components` and `options` are given; every other provider can be overridden."""

    components: providers.Dependency[ServiceComponents] = providers.Dependency()
    options: providers.Dependency[ServiceOptions] = providers.Dependency()
    incarnation = components.provided.incarnation
    clock = components.provided.clock
    source = components.provided.source
    lake = components.provided.lake
    settings = options.provided.settings
    lease_duration_s = providers.Callable(lease_duration_s, settings, components.provided.backend)
    address = providers.Singleton(
        SubtaskAddress,
        options.provided.host,
        options.provided.bind,
        trusted=options.provided.trusted,
        port=settings.service.port,
    )
    tables = providers.Singleton(Tables, options.provided.complete_ms)
    locks = providers.Singleton(TableLocks)
    queue = providers.Singleton(
        table_queue,
        source,
        options.provided.rules,
        clock,
        mirrors=options.provided.mirrors,
        refresh=options.provided.refresh,
    )
    targets = providers.Singleton(
        TargetOffsets, source, lake, queue, options.provided.rules, mirrors=options.provided.mirrors
    )
    rounds = providers.Singleton(Rounds, settings.service, once=options.provided.once)
    fence = providers.Singleton(CommitFence, clock, settings.service)
    loop = providers.Singleton(EventLoop)
    policy = providers.Singleton(RoundPolicy, options.provided.rules, settings, options.provided.once)
    checkpoints = providers.Singleton(KnownCheckpoints)
    restorer = providers.Singleton(Restorer, components.provided.checkpoints, lake, incarnation, checkpoints)
    leases = providers.Singleton(
        LeaseDriver,
        providers.Singleton(
            Leases,
            providers.Singleton(LeasesPolicy, duration_s=lease_duration_s),
            providers.Callable(str, incarnation),
        ),
        components.provided.backend,
        source,
        clock,
        settings=settings.lease,
        duration_s=lease_duration_s,
    )
    persistence = providers.Singleton(
        StatePersistence,
        clock=clock,
        rounds=rounds,
        leases=leases,
        checkpoints=checkpoints,
        writer=components.provided.state,
        loop=loop,
    )
    protection = providers.Singleton(
        LeaseProtection,
        clock=clock,
        rounds=rounds,
        leases=leases,
        checkpoints=checkpoints,
        tables=tables,
        loop=loop,
        persistence=persistence,
        backend=components.provided.backend,
    )
    life = providers.Singleton(Life, clock, loop, components.provided.jobs, persistence, settings.service)
    reporter = providers.Singleton(
        Reporter,
        incarnation=incarnation,
        clock=clock,
        rounds=rounds,
        leases=leases,
        protection=protection,
        tables=tables,
        options=options,
        life=life,
    )
    cleaner = providers.Singleton(
        Cleaner,
        lake,
        components.provided.journals,
        clock,
        incarnation,
        settings=settings.service,
        checkpointed=restorer.provided.named,
    )
    upkeep = providers.Singleton(
        Upkeep,
        clock=clock,
        lake=lake,
        loop=loop,
        locks=locks,
        tables=tables,
        cleaner=cleaner,
        restorer=restorer,
        settings=settings,
    )
    lag = providers.Singleton(LagAfterCommit, source, clock, tables, settings.lake.commit_timeout_s)
    committer = providers.Singleton(
        RoundCommitter,
        incarnation=incarnation,
        clock=clock,
        source=source,
        lake=lake,
        journals=components.provided.journals,
        committed=components.provided.committed,
        fence=fence,
        pauses=providers.Callable(commit_pauses, settings.service, settings.lake),
    )
    opener = providers.Singleton(
        TableOpener,
        incarnation=incarnation,
        source=source,
        lake=lake,
        committed=components.provided.committed,
        restorer=restorer,
        cleaner=cleaner,
        policy=policy,
    )
    planning = providers.Singleton(
        Planning,
        source=source,
        lake=lake,
        jobs=components.provided.jobs,
        address=address,
        tables=tables,
        cleaner=cleaner,
        committer=committer,
        policy=policy,
    )
    launching = providers.Singleton(Launching, components.provided.jobs, loop)
    committing = providers.Singleton(
        Committing,
        clock=clock,
        committer=committer,
        fence=fence,
        upkeep=upkeep,
        lag=lag,
        targets=targets,
        loop=loop,
        policy=policy,
    )
    storing = providers.Singleton(Storing, components.provided.checkpoints, incarnation, protection)
    cleaning = providers.Singleton(Cleaning, cleaner, components.provided.checkpoints)
    executor = providers.Singleton(
        RoundExecutor,
        incarnation=incarnation,
        clock=clock,
        tables=tables,
        loop=loop,
        locks=locks,
        fence=fence,
        handlers=providers.Callable(
            merged,
            opener.provided.handlers,
            planning.provided.handlers,
            launching.provided.handlers,
            committing.provided.handlers,
            storing.provided.handlers,
            cleaning.provided.handlers,
            protection.provided.handlers,
        ),
        on_span=options.provided.on_span,
    )
    housekeeping = providers.Singleton(
        Housekeeping,
        components=components,
        loop=loop,
        restorer=restorer,
        cleaner=cleaner,
        tables=tables,
        protection=protection,
        reporter=reporter,
        options=options,
    )
    server = providers.Singleton(
        SubtaskServer, components.provided.transport, address, executor.provided.find, executor.provided.execute
    )
    heartbeats = providers.Singleton(
        Heartbeats,
        components=components,
        options=options,
        queue=queue,
        loop=loop,
        protection=protection,
        persistence=persistence,
    )
    commands = providers.Singleton(
        Commands,
        loop=loop,
        executor=executor,
        protection=protection,
        checkpoints=checkpoints,
        reporter=reporter,
        housekeeping=housekeeping,
        persistence=persistence,
    )
    all_tables = providers.Singleton(
        AllTables,
        clock=clock,
        rounds=rounds,
        loop=loop,
        fence=fence,
        executor=executor,
        commands=commands,
        heartbeats=heartbeats,
        turn_s=options.provided.turn_s,
    )
    service = providers.Singleton(
        Service,
        life=life,
        loop=loop,
        tables=all_tables,
        server=server,
        start=providers.Singleton(
            Start,
            components=components,
            options=options,
            targets=targets,
            heartbeats=heartbeats,
            protection=protection,
            checkpoints=checkpoints,
            persistence=persistence,
            housekeeping=housekeeping,
        ),
        turn=providers.Singleton(
            Turn,
            tables=all_tables,
            controls=providers.Singleton(Controls, options, clock),
            protection=protection,
            leases=leases,
            executor=executor,
            upkeep=upkeep,
            housekeeping=housekeeping,
        ),
        ending=providers.Singleton(
            Ending,
            components=components,
            options=options,
            executor=executor,
            upkeep=upkeep,
            lag=lag,
            leases=leases,
            protection=protection,
            persistence=persistence,
        ),
        reporter=reporter,
    )


class Container(containers.DeclarativeContainer):
    """What a service works with, opened as its configuration says."""

    loaded: providers.Dependency[Loaded] = providers.Dependency()
    settings = loaded.provided.settings
    clock: providers.Provider[Clock] = providers.Singleton(SystemClock)
    service_name = providers.Callable(_service_name, settings)
    resources = providers.Singleton(OpenResources)
    files = providers.Singleton(SmallFiles, settings.checkpoint.address)
    states = providers.Singleton(ServiceStateStore, files)
    bound = providers.Singleton(_bound_tables, loaded, files, clock)
    journals = providers.Singleton(JournalStore, files, service_name)
    committed = providers.Singleton(CommitRecords, files, service_name)
    source: providers.Selector = providers.Selector(settings.source.type)
    lake: providers.Selector = providers.Selector(settings.lake.type)
    incarnation = providers.Singleton(_incarnation, loaded, clock, states, source, lake)
    metrics = providers.Singleton(ServiceMetrics)
    live = providers.Singleton(LiveStatus, clock)
    secrets = providers.Singleton(SecretTexts, providers.Callable(secret_values, loaded))
    observers = providers.Singleton(find_observers, settings.observe)
    observed = providers.Singleton(
        ObservedService,
        settings=settings,
        live=live,
        registry=metrics.provided.registry,
        clock=clock,
        executor=providers.Factory(ThreadExecutor),
        secrets=providers.Callable(secret_values, loaded),
    )
    page = providers.Singleton(_observer, "page", observers, observed)
    telemetry = providers.Singleton(_observer, "telemetry", observers, observed, incarnation)
    backend = providers.Singleton(_backend, loaded, resources, metrics)
    starting_spark = providers.Singleton(_starting_spark, settings, resources)
    spark = providers.Singleton(_spark, starting_spark)
    tls = providers.Singleton(_tls, settings, spark)
    jobs = providers.Singleton(SparkJobs, spark, providers.Object(run_task))
    state = providers.Singleton(ServiceStateWriter, states, incarnation, settings.lease.backend, clock)
    components = providers.Singleton(
        ServiceComponents,
        incarnation=incarnation,
        clock=clock,
        transport=providers.Singleton(SocketTransport, clock, tls=tls),
        source=source,
        lake=lake,
        jobs=jobs,
        backend=backend,
        state=state,
        journals=journals,
        committed=committed,
        checkpoints=providers.Singleton(CheckpointFiles, files, clock),
    )


def build(loaded: Loaded) -> Container:
    """Make the container of a configuration; nothing is opened yet. Its `resources()` closes what was opened."""
    container = Container(loaded=loaded)
    container.source.set_providers(
        **{
            plugin.name: providers.Singleton(
                _source, plugin.name, loaded.source_options, container.clock, container.resources
            )
            for plugin in installed(SOURCE_GROUP)
        }
    )
    container.lake.set_providers(
        **{
            plugin.name: providers.Singleton(
                _lake, plugin.name, loaded.lake_options, container.clock, container.resources
            )
            for plugin in installed(LAKE_GROUP)
        }
    )
    return container


def service_container(components: ServiceComponents, options: ServiceOptions) -> ServiceContainer:
    """Make the container of one service run; nothing is started. A test overrides what it replaces."""
    return ServiceContainer(components=providers.Object(components), options=providers.Object(options))


def writable_root(settings: Settings) -> str:
    """Return in words that permissions allow to write the state directory of this machine.

    Raises:
        StorageError: they do not.
    """
    well, found = writable(settings.checkpoint.root)
    if not well:
        message = f"checkpoint.root: {found}"
        raise StorageError(message)
    return found


def serve(
    loaded: Loaded, *, once: bool, final: bool, progress: ProgressDisplay, until: Callable[[], bool] | None = None
) -> int:
    """Run the service of a configuration until it is stopped.

    `once`: end when each table stands at the end offsets seen at the start. `final`: drop the lease at the end. `until`
    is asked about twice a second, on a thread of its own; the service stops once it says yes. None = never.
    Returns the exit code: 0 done or stopped, 1 where a table of `once` fell short or a later start took over.

    Raises:
        LakewardError: it could not start, or `until` raised it.
    """
    container = build(loaded)
    service = loaded.settings.service

    def make() -> Service:
        if not progress.shown:  # it says so, too
            log_start(service.name)
        check_addresses(service)
        container.observers()
        load_tls(service, service.host)  # before Spark is waited for
        if is_local(loaded.settings.checkpoint.root):
            writable_root(loaded.settings)
        container.resources().add("presence", show_presence(loaded.settings.checkpoint.address, service.name))
        _open_page(container, progress)
        container.bound().bind()
        container.starting_spark()  # what follows is opened beside it
        container.incarnation()  # opens source and lake
        container.live().opened(Part.SOURCE, Part.LAKE)
        container.backend()
        _open_telemetry(container)
        options = _options(container, loaded, progress, once=once, final=final)
        return service_container(container.components(), options).service()

    def on_stop(name: str) -> None:
        progress.stopping(name, service.stop_timeout_s)

    with progress.standard_error():
        try:
            end = asyncio.run(_serve(make, container.resources(), container.live(), on_stop, until))
        finally:
            progress.close()
    if end.started:
        progress.ended("a later start took over" if end.superseded_by else "stopped")
    return _print_end(Console(stderr=True, soft_wrap=True), end, container.secrets(), once=once)


def _open_telemetry(container: Container) -> None:
    """Export metrics from now on; what lease wrappers measure is registered by now."""
    telemetry = container.telemetry()
    if telemetry is not None:
        container.resources().add("telemetry", telemetry.close)


def _open_page(container: Container, progress: ProgressDisplay) -> None:
    page = container.page()
    if page is not None:
        container.resources().add("status page", page.close)
        progress.status_page(page.url)


async def _serve(
    make: Callable[[], Service],
    resources: OpenResources,
    live: LiveStatus,
    on_stop: Callable[[str], None],
    until: Callable[[], bool] | None,
) -> ServiceEnd:
    """Make a service and run it; a signal is listened to from here on, and everything is closed in the end."""
    signals = StopSignals(asyncio.get_running_loop(), on_stop)
    watching_loop = asyncio.create_task(live.watch_loop())
    try:
        # On a thread: a catalog or a Spark that does not answer must not make us deaf.
        service = await unless_stopped(make, signals, what="open source, lake and Spark")
        return ServiceEnd(started=False) if service is None else await _run(service, signals, until)
    finally:
        await resources.close_all()
        watching_loop.cancel()


async def _run(service: Service, signals: StopSignals, until: Callable[[], bool] | None) -> ServiceEnd:
    signals.then = service.stop
    watching = None if until is None else asyncio.get_running_loop().create_task(_stop_when(service, until))
    try:
        end = await service.serve()
    finally:
        if watching is not None and not watching.done():
            watching.cancel()
    if watching is not None and watching.done():
        watching.result()
    return end


async def _stop_when(service: Service, until: Callable[[], bool]) -> None:
    """Stop the service once `until` says yes, or fails: then what it raised is the service's error."""
    try:
        while not await call(until, what="look whether the service may end"):  # noqa: ASYNC110 - other processes decide
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        if service.state != "stopped":
            service.stop()


def _exchange(settings: Settings, metrics: ServiceMetrics) -> Exchange:
    """Open the way between the service and its commands."""
    address, name = settings.checkpoint.address, settings.service.name

    def write(report: ServiceReport) -> None:
        status_file.write(address, name, report)
        metrics.write(address, name)

    read = ControlReader(address, name).read
    return DirectExchange(write, read) if is_local(address) else BackgroundExchange(write, read)


def _last_report(settings: Settings) -> ServiceReport | None:
    """Return what the last start reported last; a file that cannot be read is replaced by this start's first report."""
    try:
        return status_file.read(settings.checkpoint.address, settings.service.name)
    except LakewardError as error:
        _log.warning("the report of the last start cannot be read", reason=str(error))
        return None


def _options(
    container: Container, loaded: Loaded, progress: ProgressDisplay, *, once: bool, final: bool
) -> ServiceOptions:
    settings, handle = loaded.settings, container.spark()
    progress.spark_started(str(handle.session.version), handle.ui_url)
    service = settings.service
    host = service.host or handle.driver_host
    metrics, live, tls = container.metrics(), container.live(), container.tls()
    telemetry = container.telemetry()
    live.opened(Part.SPARK)
    exchange = _exchange(settings, metrics)
    container.resources().add("status", exchange.close)

    rounds = RoundHistory(container.files(), service.name)
    complete_ms = rounds.complete_ms()  # before another thread writes
    history = HistoryWriter(rounds)
    container.resources().add("history", history.close)
    conditions, events = ConditionTracker(_last_report(settings)), EventLog()
    hide = container.secrets().hide

    def on_report(report: ServiceReport) -> None:
        report = masked_report(conditions.describe(report, exchange.control().paused), hide)
        events.update(report)
        live.update(report)
        metrics.update(report)
        exchange.publish(report)
        progress.update(report)

    return ServiceOptions(
        settings=settings,
        rules=partial(_rules, loaded, container.bound()),
        mirrors=MIRROR in modes_of(settings),
        refresh=container.bound().refresh,
        paused=lambda: exchange.control().paused,
        resumed=lambda: exchange.control().resumed,
        on_report=on_report,
        on_round=lambda table, ended: progress.round_ended(table, masked_round(ended, hide)),
        on_record=lambda record: history.add(masked_record(record, hide)),
        complete_ms=complete_ms,
        on_span=None if telemetry is None else telemetry.on_span,
        host=host,
        bind=bind_address(service, local=handle.local),
        spark_ui=handle.ui_url,
        once=once,
        final=final,
        trusted=tls.trusted if tls is not None else "",
    )


def _print_end(console: Console, end: ServiceEnd, secrets: SecretTexts, *, once: bool) -> int:
    if not end.started:
        console.print("stopped before it served", markup=False)
        return EXIT_FAILED if once else 0
    if end.superseded_by:
        console.print(f"stopped: a later start of this service took over ({end.superseded_by})", markup=False)
        return EXIT_FAILED
    for path, reason in end.failed:
        console.print(f"{path} did not reach its target: {secrets.hide(reason)}", markup=False)
    return EXIT_FAILED if end.failed else 0
