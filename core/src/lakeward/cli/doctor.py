"""`lakeward doctor`: checks what a service needs in order to run."""

from __future__ import annotations

import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.checks import Check, show_checks
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.clock import SystemClock
from lakeward.config.keys import keys_of
from lakeward.container import probe_executor
from lakeward.errors import LakewardError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.discovery import installed, load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP, WRAPPER_GROUP
from lakeward.local_files import is_local
from lakeward.model.secrets import mask_uri
from lakeward.observe.files import writable
from lakeward.ports import DescribedSource
from lakeward.sockets.addresses import bind_address, check_addresses
from lakeward.spark.java import find_java
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.loaded import Loaded
    from lakeward.ports import Source


@click.command("doctor")
@click.option("--no-spark", is_flag=True, help="Do not start Spark: no task is run on the master.")
@click.option(
    "--spark-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    help="How long the task on the master may take.",
)
@with_common_options
@pass_invocation
def doctor(invocation: Invocation, *, no_spark: bool, spark_timeout: float) -> int:
    """Check Python, Java, Spark, plugins, the source, directories and the port; exit code 1 if something is missing.

    One real task runs on the configured master: it says which Python and versions the executors have, and whether
    they reach the driver. Works without a configuration too.
    """
    machine = list(_machine())
    spark = not no_spark and all(ok for _, ok, _ in machine)
    return show_checks(invocation, [*machine, *_configured(invocation, spark_timeout if spark else None)])


def _machine() -> Iterator[Check]:
    yield "python", True, f"{sys.version.split()[0]} ({sys.executable})"
    yield _java()
    yield _spark()


def _java() -> Check:
    try:
        return "java", True, str(find_java())
    except LakewardError as error:
        return "java", False, str(error)


def _spark() -> Check:
    try:
        return "pyspark", True, f"version {version('pyspark')}"
    except PackageNotFoundError:
        return "pyspark", False, "expected an installed package, found none: pip install pyspark"


def _configured(invocation: Invocation, spark_timeout_s: float | None) -> Iterator[Check]:
    try:
        loaded = invocation.load()
    except LakewardError as error:
        yield "configuration", False, str(error)
        return
    yield "configuration", True, f"{loaded.file}: service {loaded.settings.service.name}"
    yield from _source(loaded)
    yield "lake", True, f"plugin {loaded.settings.lake.type!r} is installed"
    yield _backend(loaded)
    for wrapper in loaded.settings.lease.wrappers:
        yield _plugin("lease wrapper", WRAPPER_GROUP, wrapper)
    yield from _directories(loaded)
    yield _port(loaded)
    if spark_timeout_s is not None:
        yield _executor(loaded, spark_timeout_s)


def _source(loaded: Loaded) -> Iterator[Check]:
    """Open the source and ask what it can do; nothing is created."""
    name = loaded.settings.source.type
    missing = [place for _, place in _paths(loaded.source_options) if is_local(place) and not Path(place).exists()]
    if missing:
        yield "source", True, f"plugin {name!r} is installed; {missing[0]} is not there yet"
        return
    try:
        plugin: Any = load(SOURCE_GROUP, name)
        source: Source = plugin.open(loaded.source_options, SystemClock())
    except LakewardError as error:
        yield "source", False, str(error)
        return
    try:
        yield "source", True, f"plugin {name!r} is installed, and the source answers"
        if isinstance(source, DescribedSource):
            yield from _described(source)
    finally:
        source.close()


def _described(source: DescribedSource) -> Iterator[Check]:
    try:
        for result in source.describe():
            yield f"source {result.what}", result.ok, result.message
    except LakewardError as error:
        yield "source", False, str(error)


def _plugin(what: str, group: str, name: str) -> Check:
    try:
        load(group, name)
    except LakewardError as error:
        return what, False, str(error)
    return what, True, f"plugin {name!r} is installed"


def _backend(loaded: Loaded) -> Check:
    """Make the lease backend with its options; nothing is opened."""
    name = loaded.settings.lease.backend
    try:
        LeaseBackend.load(name, options=loaded.lease_options)
    except LakewardError as error:
        return "lease backend", False, str(error)
    return "lease backend", True, f"plugin {name!r} is installed"


def _directories(loaded: Loaded) -> Iterator[Check]:
    yield _state(loaded)
    for name, value in _paths(loaded.lake_options):
        yield _writable(f"lake.{name}", value)
    for name, value in _paths(loaded.source_options):
        yield _writable(f"source.{name}", value)


def _state(loaded: Loaded) -> Check:
    """Look where state is kept: a store is asked for a listing; nothing is written."""
    checkpoint = loaded.settings.checkpoint
    if is_local(checkpoint.root):
        return _writable("state directory", checkpoint.root)
    try:
        SmallFiles(checkpoint.address).folders(loaded.settings.service.name)
    except LakewardError as error:
        return "state directory", False, f"[{error.code}] {error}"
    return "state directory", True, f"{mask_uri(checkpoint.root)} can be listed"


def _paths(options: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a plugin's options
    keys = keys_of(type(options))
    values = {name: getattr(options, name) for name in keys}
    for name, key in keys.items():
        if key.is_path(values) and values[name]:
            yield name, str(values[name])


def _writable(what: str, place: str) -> Check:
    if not is_local(place):
        return what, True, f"{mask_uri(place)} is not on this machine; not checked"
    return what, *writable(place)


def _port(loaded: Loaded) -> Check:
    """Bind the port where the service would; a port that is free is free for it."""
    service = loaded.settings.service
    try:
        check_addresses(service)
    except LakewardError as error:
        return "port", False, str(error)
    if not service.port:
        return "port", True, "any free one"
    host = bind_address(service, local=loaded.settings.spark.on_this_machine)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, service.port))
        except OSError as error:
            return "port", False, f"service.port {service.port}: expected a free port, found: {error.strerror or error}"
    return "port", True, f"{service.port} is free at {host}"


def _executor(loaded: Loaded, timeout_s: float) -> Check:
    """Run one task on the master, and compare what it saw with what is here."""
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
