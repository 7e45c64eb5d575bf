"""Serves: opens what a configuration says, runs the service to its end and prints how it ended."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog
from msgspec import structs
from rich.console import Console

from lakeward.config.tables import modes_of, table_rules
from lakeward.container import build, service_container
from lakeward.coordinator.rounds.mirroring import MIRROR
from lakeward.coordinator.service.closing import OpenResources
from lakeward.coordinator.service.components import ServiceOptions
from lakeward.coordinator.service.service import Service, ServiceEnd
from lakeward.coordinator.service.stop_signals import StopSignals, unless_stopped
from lakeward.coordinator.workers.calls import call
from lakeward.errors import EXIT_FAILED, LakewardError, StorageError
from lakeward.local_files import free_bytes, is_local
from lakeward.model.secrets import SecretTexts
from lakeward.observe import status_file
from lakeward.observe.condition import ConditionTracker
from lakeward.observe.control import ControlReader
from lakeward.observe.event_log import EventLog, log_start
from lakeward.observe.exchange import BackgroundExchange, DirectExchange
from lakeward.observe.files import writable
from lakeward.observe.live_status import LiveStatus, Part
from lakeward.observe.masking import masked_report, masked_round
from lakeward.observe.metrics import ServiceMetrics
from lakeward.observe.presence import show_presence
from lakeward.observe.progress import ProgressDisplay
from lakeward.observe.status_changes import StatusChanges, StatusSender, check_target
from lakeward.sockets.addresses import bind_address, check_addresses
from lakeward.sockets.certificates import load_tls
from lakeward.storage.round_history import HistoryWriter, RoundHistory

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded
    from lakeward.container import Container
    from lakeward.coordinator.service.bound_tables import BoundTables
    from lakeward.model.settings import Settings, TableSettings
    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.model.tables import TablePath
    from lakeward.observe.exchange import Exchange

_LOOK_EVERY_S = 0.5
_log = structlog.get_logger("lakeward.serve")


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
        if loaded.settings.observe.on_status:
            check_target(loaded.settings.observe.on_status)
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


def _on_status(container: Container, settings: Settings, last: ServiceReport | None) -> Callable[[ServiceReport], None]:
    """Return what takes each report, and tells whoever `observe.on_status` names what has changed."""
    if not settings.observe.on_status:
        return lambda _: None
    changes, sender = StatusChanges(last), StatusSender(settings.observe.on_status)
    container.resources().add("status changes", sender.close)

    def update(report: ServiceReport) -> None:
        for change in changes.of(report):
            sender.add(change)

    return update


def effective_rules(loaded: Loaded, bound: BoundTables, path: TablePath) -> TableSettings:
    """Return the rules of a table as this service goes by: it includes none that another one has bound."""
    return bound.rules(path, table_rules(loaded, path).settings)


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
    live.remembers(rounds.of)
    history = HistoryWriter(rounds)
    container.resources().add("history", history.close)
    last = _last_report(settings)
    conditions, events = ConditionTracker(last), EventLog()
    on_status = _on_status(container, settings, last)
    hide = container.secrets().hide

    def on_report(report: ServiceReport) -> None:
        report = structs.replace(report, state_free_bytes=free_bytes(settings.checkpoint.address))
        report = masked_report(conditions.describe(report, exchange.control().paused), hide)
        events.update(report)
        on_status(report)
        live.update(report)
        metrics.update(report)
        exchange.publish(report)
        progress.update(report)

    def on_round(ended: RoundReport) -> None:
        ended = masked_round(ended, hide)
        progress.round_ended(ended)
        history.add(ended)

    return ServiceOptions(
        settings=settings,
        rules=partial(effective_rules, loaded, container.bound()),
        mirrors=MIRROR in modes_of(settings),
        refresh=container.bound().refresh,
        paused=lambda: exchange.control().paused,
        resumed=lambda: exchange.control().resumed,
        upkeep=lambda: exchange.control().upkeep,
        replay=lambda: exchange.control().replay,
        on_report=on_report,
        on_round=on_round,
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
