"""`lakeward doctor`'s one real task: what an executor is, and whether it reaches the driver."""

from __future__ import annotations

import asyncio
import secrets
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import installed
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.ports.transport import Address
from lakeward.sockets import SocketTransport
from lakeward.sockets.addresses import bind_address, check_addresses
from lakeward.sockets.certificates import load_tls
from lakeward.spark.probe import ExecutorReport, probe
from lakeward.spark.session import SparkHandle, start_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.cli.checks import Check
    from lakeward.config.loaded import Loaded
    from lakeward.model.events import Envelope
    from lakeward.model.settings import Settings
    from lakeward.ports import Clock, Connection


def executor_check(loaded: Loaded, timeout_s: float) -> Check:
    """Run one task on the master, and compare what it saw with what is here.

    Args:
        loaded: the configuration.
        timeout_s: seconds that the task may take, > 0.
    """
    here = {name: version(name) for name in _distributions(loaded)}
    try:
        seen = probe_executor(loaded, tuple(here), timeout_s)
    except LakewardError as error:
        return "executor", False, str(error)
    where = f"Python {seen.python} ({seen.executable}) on {seen.host}"
    wrong = [
        f"expected {name} {expected} as here, found {seen.versions[name] or 'none'}"
        for name, expected in here.items()
        if seen.versions[name] != expected
    ]
    if wrong:
        advice = "install the same distributions for it, or name another Python (spark.pyspark.python)"
        return "executor", False, f"{where}: {', '.join(wrong)}; {advice}"
    if seen.address is None:
        advice = "set service.host to an address that executors reach, and open service.port for them"
        return "executor", False, f"{where} cannot connect to the driver ({seen.error}); {advice}"
    versions = ", ".join(f"{name} {found}" for name, found in here.items())
    return "executor", True, f"{where}, {versions}; reaches the driver from {seen.address}; {seen.took_s:.1f} s"


def _distributions(loaded: Loaded) -> tuple[str, ...]:
    """Return the distributions that a subtask needs: those of the core, and those of source and lake."""
    wanted = ((SOURCE_GROUP, loaded.settings.source.type), (LAKE_GROUP, loaded.settings.lake.type))
    owners = [plugin.distribution for group, name in wanted for plugin in installed(group) if plugin.name == name]
    return tuple(dict.fromkeys(["lakeward", "pyarrow", "pyspark", *owners]))


def probe_executor(loaded: Loaded, distributions: Sequence[str], timeout_s: float) -> ExecutorReport:
    """Start Spark as the service would, listen as the service would, and run one task that connects to us.

    Args:
        loaded: the configuration.
        distributions: whose versions the executor is asked for.
        timeout_s: seconds that the task may take, > 0.

    Returns:
        What the executor saw.

    Raises:
        LakewardError: Spark did not start, the port cannot be listened at, or no executor could run the task.
    """
    settings, clock = loaded.settings, SystemClock()
    check_addresses(settings.service)
    with TemporaryDirectory(prefix="lakeward-") as folder:
        handle = start_session(settings.spark, settings.service.name, settings.service.rounds, Path(folder))
        try:
            return asyncio.run(_probe(settings, handle, distributions, clock, timeout_s))
        finally:
            handle.stop()


async def _probe(
    settings: Settings, handle: SparkHandle, distributions: Sequence[str], clock: Clock, timeout_s: float
) -> ExecutorReport:
    service = settings.service
    secret, host = secrets.token_bytes(32), service.host or handle.driver_host
    tls = load_tls(service, host)
    bind = Address(bind_address(service, local=handle.local), service.port, secret)
    listener = await SocketTransport(clock, tls=tls).listen(bind, _Nobody())
    address = Address(host, listener.port, secret, tls.trusted if tls is not None else "")
    try:
        return await asyncio.to_thread(probe, handle, address, distributions, clock, timeout_s)
    finally:
        await listener.close()


class _Nobody:
    """A receiver for connections on which nothing is said after the proof."""

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        """See `lakeward.ports.Receiver`; whoever says something is put out."""
        del envelope
        connection.close()

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        """See `lakeward.ports.Receiver`."""
