"""Builds a service from a configuration: the only importer of dependency_injector.

Source, lake and store are selected by name among what is installed; whatever has to be freed is a resource, and
resources are freed in the reverse order of their need. Tests override providers.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dependency_injector import containers, providers

from lakeward.clock import SystemClock
from lakeward.config.entries import place
from lakeward.config.shown import secret_values
from lakeward.config.tables import modes_of, table_rules
from lakeward.coordinator.checkpoints.known import KnownCheckpoints
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.committer import Committer
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.commits.letter_committer import LetterCommitter
from lakeward.coordinator.commits.letter_rewriter import LetterRewriter
from lakeward.coordinator.commits.round_committer import RoundCommitter, commit_pauses
from lakeward.coordinator.commits.upkeep import UpkeepCommitter
from lakeward.coordinator.effects.clean import Cleaning
from lakeward.coordinator.effects.commit import Committing
from lakeward.coordinator.effects.executor import RoundExecutor
from lakeward.coordinator.effects.lag import LagAfterCommit
from lakeward.coordinator.effects.launch import Launching
from lakeward.coordinator.effects.lease import LeaseProtection
from lakeward.coordinator.effects.open import TableOpener
from lakeward.coordinator.effects.plan import Planning
from lakeward.coordinator.effects.policy import RoundPolicy
from lakeward.coordinator.effects.replay import LetterReplayer
from lakeward.coordinator.effects.store import Storing
from lakeward.coordinator.effects.upkeep import Upkeep
from lakeward.coordinator.effects.upkeep_jobs import UpkeepJobs
from lakeward.coordinator.effects.work import merged
from lakeward.coordinator.leases.driver import LeaseDriver
from lakeward.coordinator.rounds.mirroring import MIRROR, lake_tables
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
from lakeward.coordinator.service.service import Service
from lakeward.coordinator.service.start import Start
from lakeward.coordinator.service.start_order import started_ms
from lakeward.coordinator.service.stop import AfterCommits, Ending
from lakeward.coordinator.service.turn import Controls, Turn
from lakeward.coordinator.state.persistence import StatePersistence
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.coordinator.tables.tables import Tables
from lakeward.coordinator.tables.targets import TargetOffsets
from lakeward.coordinator.workers.event_loop import EventLoop
from lakeward.coordinator.workers.subtask_address import SubtaskAddress
from lakeward.coordinator.workers.table_locks import TableLocks
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.discovery import installed, load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.local_files import is_local
from lakeward.machines.leases import Leases, LeasesPolicy
from lakeward.machines.rounds import Rounds
from lakeward.model.identity import Incarnation
from lakeward.model.secrets import SecretTexts
from lakeward.observe.files import service_folder
from lakeward.observe.live_status import LiveStatus
from lakeward.observe.metrics import ServiceMetrics
from lakeward.observe.observers import ObservedService, OpenObserver, find_observers
from lakeward.owned_folder import OwnedFolder
from lakeward.sockets import SocketTransport
from lakeward.sockets.certificates import ServerTls, load_tls
from lakeward.spark.jobs import SparkJobs
from lakeward.spark.session import SparkHandle, start_session
from lakeward.spark.starting import StartingSpark
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.replay import RowReplay
from lakeward.subtask.run import run_task
from lakeward.subtask.upkeep import run_upkeep
from lakeward.threads import ThreadExecutor

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from lakeward.config.loaded import Loaded
    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.model.settings import Settings, TableSettings
    from lakeward.model.tables import TablePath
    from lakeward.observe.observers import Observer
    from lakeward.ports import Clock, Lake, Source


def _service_name(settings: Settings) -> str:
    # `settings.service.name` would be the provider's own attribute `name`.
    return settings.service.name


def _bound_tables(loaded: Loaded, files: SmallFiles, clock: Clock) -> BoundTables:
    where = place(loaded.file, "service.tables")
    return BoundTables(BindingFiles(files), loaded.settings.service, clock, ThreadExecutor(), where)


def _incarnation(loaded: Loaded, clock: Clock, states: ServiceStateStore, source: Source, lake: Lake) -> Incarnation:
    service = loaded.settings.service.name
    started = started_ms(service, clock, states, lake, partial(_lake_tables, loaded, source))
    return Incarnation(service, started, secrets.token_hex(8))


def _lake_tables(loaded: Loaded, source: Source) -> list[TablePath]:
    def rules(path: TablePath) -> TableSettings:
        return table_rules(loaded, path).settings

    return lake_tables(source, rules, mirrors=MIRROR in modes_of(loaded.settings))


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
    upkeep_committer = providers.Singleton(
        UpkeepCommitter,
        lake,
        components.provided.journals,
        cleaner,
        options.provided.rules,
        settings.lake.upkeep_timeout_s,
    )
    upkeep_jobs = providers.Singleton(
        UpkeepJobs,
        incarnation=incarnation,
        clock=clock,
        committer=upkeep_committer,
        jobs=components.provided.jobs,
        loop=loop,
        locks=locks,
        tables=tables,
        settings=settings,
    )
    lag = providers.Singleton(LagAfterCommit, source, clock, tables, settings.lake.commit_timeout_s)
    sender = providers.Singleton(
        Committer, source, lake, clock, providers.Callable(commit_pauses, settings.service, settings.lake)
    )
    letters = providers.Singleton(
        LetterCommitter,
        incarnation,
        source,
        lake,
        components.provided.journals,
        sender,
        providers.Singleton(LetterRewriter, lake, providers.Callable(partial, load, LAKE_GROUP, settings.lake.type)),
    )
    committer = providers.Singleton(
        RoundCommitter,
        incarnation=incarnation,
        clock=clock,
        lake=lake,
        journals=components.provided.journals,
        committed=components.provided.committed,
        fence=fence,
        committer=sender,
        letters=letters,
    )
    replayer = providers.Singleton(
        LetterReplayer,
        source=source,
        lake=lake,
        journals=components.provided.journals,
        committer=sender,
        letters=letters,
        fence=fence,
        settings=settings,
        write=providers.Singleton(
            RowReplay,
            providers.Callable(partial, load, SOURCE_GROUP),
            providers.Callable(partial, load, LAKE_GROUP),
            clock,
        ),
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
        replayer=replayer,
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
    launching = providers.Singleton(Launching, components.provided.jobs, loop, upkeep_jobs)
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
            upkeep_jobs=upkeep_jobs,
            replayer=replayer,
            housekeeping=housekeeping,
        ),
        ending=providers.Singleton(
            Ending,
            components=components,
            options=options,
            executor=executor,
            after_commits=providers.Singleton(AfterCommits, upkeep, upkeep_jobs, lag),
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
    jobs = providers.Singleton(SparkJobs, spark, providers.Object(run_task), providers.Object(run_upkeep))
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
