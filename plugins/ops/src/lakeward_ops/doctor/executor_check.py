"""`lakeward doctor`'s one real task: what an executor is, and whether it reaches the driver."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import installed_as
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.local_files import is_local
from lakeward.ports import CheckResult
from lakeward.ports.transport import Address
from lakeward.sockets import SocketTransport
from lakeward.sockets.addresses import bind_address, check_addresses
from lakeward.sockets.certificates import load_tls
from lakeward.spark.authentication import authentication_check
from lakeward.spark.probe import ExecutorReport, ProbeTask, probe
from lakeward.spark.session import SparkHandle, start_session
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.events import Envelope
    from lakeward.model.settings import Settings
    from lakeward.ports import Clock, Connection


def executor_checks(
    loaded: Loaded, places: Mapping[str, str], timeout_s: float, *, write: bool
) -> Iterator[CheckResult]:
    """Run one task on the master, and compare what it saw with what is here.

    `places`: directories that subtasks write to, by the key that names them; those elsewhere are left out. With
    `write`, the task writes a file into each of them and deletes it. It may take `timeout_s` seconds, > 0.
    """
    here = {name: version(name) for name in _distributions(loaded)}
    with shared_places(places if write else {}) as shared:
        try:
            seen, authentication = _probe_executor(loaded, ProbeTask(tuple(here), shared), timeout_s)
        except LakewardError as error:
            yield CheckResult("executor", ok=False, message=str(error))
            return
    yield authentication
    yield from executor_results(seen, here, shared)


def executor_results(
    seen: ExecutorReport, here: Mapping[str, str], shared: Sequence[tuple[str, str, str]]
) -> Iterator[CheckResult]:
    """Compare what an executor saw with what is here.

    `here` is the version of each distribution that it was asked for; `shared` are the places that it has tried.
    """
    yield _executor(seen, here)
    if _other_versions(seen, here):
        return  # it lacks what it would write with, or has another release of it
    for name, root, _ in shared:
        yield _place(name, root, seen)


def _executor(seen: ExecutorReport, here: Mapping[str, str]) -> CheckResult:
    where = f"Python {seen.python} ({seen.executable}) on {seen.host}"
    if wrong := _other_versions(seen, here):
        advice = "install the same distributions for it, or name another Python (spark.pyspark.python)"
        return CheckResult("executor", ok=False, message=f"{where}: {', '.join(wrong)}; {advice}")
    if seen.address is None:
        advice = "set service.host to an address that executors reach, and open service.port for them"
        message = f"{where} cannot connect to the driver ({seen.error}); {advice}"
        return CheckResult("executor", ok=False, message=message)
    versions = ", ".join(f"{name} {found}" for name, found in here.items())
    message = f"{where}, {versions}; reaches the driver from {seen.address}; {seen.took_s:.1f} s"
    return CheckResult("executor", ok=True, message=message)


def _other_versions(seen: ExecutorReport, here: Mapping[str, str]) -> list[str]:
    """Say which distributions of the executor are not those of the driver."""
    return [
        f"expected {name} {expected} as here, found {seen.versions[name] or 'none'}"
        for name, expected in here.items()
        if seen.versions[name] != expected
    ]


def _place(name: str, root: str, seen: ExecutorReport) -> CheckResult:
    what, (there, error) = f"executor's {name}", seen.places[name]
    if error:
        action = f"let the user of the executors write and delete there, or name another place in {name}"
        return CheckResult(what, ok=False, message=f"{root} cannot be used on {seen.host}: {error}", action=action)
    if not there:
        message = (
            f"{root} on {seen.host} is not the directory that it is here: a file that was written here is not there"
        )
        action = f"mount the same directory on every machine that Spark uses, or name a store in {name}"
        return CheckResult(what, ok=False, message=message, action=action)
    return CheckResult(what, ok=True, message=f"{root}: a file was written and deleted on {seen.host}")


@contextmanager
def shared_places(places: Mapping[str, str]) -> Iterator[tuple[tuple[str, str, str], ...]]:
    """Write a file into directories, for an executor to look for; it is deleted again.

    `places`: directories by name. Left out are those elsewhere, and those that cannot be written here: other lines of
    `doctor` say so.

    Yields:
        For each its name, the directory, and the folder in it that has the file: what `probe` takes.
    """
    folder = f".lakeward_doctor_{secrets.token_hex(4)}"
    with ExitStack() as cleaning:
        shared = []
        for name, root in places.items():
            if not is_local(root):
                continue
            with suppress(LakewardError):
                files = SmallFiles(root)
                cleaning.callback(_delete, files, f"{folder}/driver")
                files.write(f"{folder}/driver", b"written by `lakeward doctor --write`\n")
                shared.append((name, root, folder))
        yield tuple(shared)


def _delete(files: SmallFiles, name: str) -> None:
    with suppress(LakewardError):
        files.delete(name)


def _distributions(loaded: Loaded) -> tuple[str, ...]:
    """Return the distributions that a subtask needs: those of the core, and those of source and lake."""
    wanted = ((SOURCE_GROUP, loaded.settings.source.type), (LAKE_GROUP, loaded.settings.lake.type))
    owners = [plugin.distribution for group, name in wanted for plugin in installed_as(group, name)]
    return tuple(dict.fromkeys(["lakeward", "pyarrow", "pyspark", *owners]))


def _probe_executor(loaded: Loaded, task: ProbeTask, timeout_s: float) -> tuple[ExecutorReport, CheckResult]:
    """Start Spark as the service would, listen as the service would, and run one task that connects to us.

    It may take `timeout_s` seconds, > 0. Returned is what the executor saw, and whether Spark asks who speaks to it.

    Raises:
        LakewardError: Spark did not start, the port cannot be listened at, or no executor could run the task.
    """
    settings, clock = loaded.settings, SystemClock()
    check_addresses(settings.service)
    with TemporaryDirectory(prefix="lakeward-") as folder:
        handle = start_session(settings.spark, settings.service.name, settings.service.rounds, Path(folder))
        try:
            authentication = authentication_check(handle.option, local=handle.local)
            return asyncio.run(_probe(settings, handle, task, clock, timeout_s)), authentication
        finally:
            handle.stop()


async def _probe(
    settings: Settings, handle: SparkHandle, task: ProbeTask, clock: Clock, timeout_s: float
) -> ExecutorReport:
    service = settings.service
    secret, host = secrets.token_bytes(32), service.host or handle.driver_host
    tls = load_tls(service, host)
    bind = Address(bind_address(service, local=handle.local), service.port, secret)
    listener = await SocketTransport(clock, tls=tls).listen(bind, _Nobody())
    address = Address(host, listener.port, secret, tls.trusted if tls is not None else "")
    try:
        return await asyncio.to_thread(probe, handle, address, task, clock, timeout_s)
    finally:
        await listener.close()


class _Nobody:
    """A receiver for connections on which nothing is said after the proof."""

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        """See `lakeward.ports.Receiver`. Close the connection: no message is expected."""
        del envelope
        connection.close()

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        """See `lakeward.ports.Receiver`."""
