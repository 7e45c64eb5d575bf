"""`lakeward doctor`: checks what a service needs in order to run."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.checks import Check, as_result, show_checks
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.layouts import lake_name_checks, layout_checks, table_layouts, unserved_checks
from lakeward.cli.open_plugins import all_configured
from lakeward.cli.serving import describe_bindings
from lakeward.clock import SystemClock
from lakeward.config.keys import keys_of
from lakeward.container import build
from lakeward.errors import ConfigError, LakewardError, PluginError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.discovery import installed_as, load
from lakeward.hooks.plugins import LEASE_GROUP, SOURCE_GROUP, WRAPPER_GROUP
from lakeward.local_files import is_local
from lakeward.model.secrets import mask_uri
from lakeward.observe.files import reached_by_others, writable
from lakeward.ports import CheckResult, DescribedSource, LakeNamingSource
from lakeward.sockets.addresses import bind_address, check_addresses
from lakeward.spark.java import find_java
from lakeward.spark.session import configured_authentication
from lakeward_ops.doctor.disk_checks import disk_checks
from lakeward_ops.doctor.executor_check import executor_checks
from lakeward_ops.doctor.lake_checks import lake_checks
from lakeward_ops.doctor.state_checks import state_checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.hooks.discovery import Installed
    from lakeward.ports import ServerLake, Source

_SOURCE = "start the source if it does not run, or correct the section [source]"
"""What to do where the source cannot be opened or does not answer."""
_STATE = "restore the file that is named, or let this user read what lies in checkpoint.root"


@click.command("doctor")
@click.option(
    "--write",
    is_flag=True,
    help="Also write and delete: a file where state is kept, a table and a file in the lake.",
)
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
def doctor(invocation: Invocation, *, write: bool, no_spark: bool, spark_timeout: float) -> int:
    """Check Python, Java, Spark, plugins, source, lake, clocks, disks and the port; exit code 1 if there is a problem.

    Nothing is created, unless `--write` is given: what it makes has a name of its own, and is deleted again.

    One real task runs on the configured master: it says which Python and versions the executors have, and whether they
    reach the driver; with `--write` also whether they can write and delete in the directories that hold state and
    tables. Works without a configuration too.
    """
    machine = list(_machine())
    spark = not no_spark and all(as_result(check).ok for check in machine)
    return show_checks(invocation, [*machine, *_configured(invocation, spark_timeout if spark else None, write=write)])


def _problem(what: str, error: LakewardError, action: str) -> CheckResult:
    return CheckResult(what, ok=False, message=str(error), action=action)


def _machine() -> Iterator[Check]:
    yield "python", True, f"{sys.version.split()[0]} ({sys.executable})"
    yield _java()
    yield _spark()


def _java() -> Check:
    try:
        return "java", True, str(find_java())
    except LakewardError as error:
        return _problem("java", error, "install a Java that Spark runs on, and point JAVA_HOME at it")


def _spark() -> Check:
    try:
        return "pyspark", True, f"version {version('pyspark')}"
    except PackageNotFoundError:
        message = "expected an installed package, found none"
        return CheckResult("pyspark", ok=False, message=message, action="`pip install pyspark`")


def _configured(invocation: Invocation, spark_timeout_s: float | None, *, write: bool) -> Iterator[Check]:
    try:
        loaded = invocation.load()
    except LakewardError as error:
        yield _problem("configuration", error, _mend(error, "correct the file, or write one: `lakeward config init`"))
        return
    yield "configuration", True, f"{loaded.file}: service {loaded.settings.service.name}"
    server_lakes: list[ServerLake] = []
    yield from _source(loaded, server_lakes)
    yield from lake_checks(loaded, server_lakes, write=write)
    yield _backend(loaded)
    for wrapper in loaded.settings.lease.wrappers:
        yield _wrapper(wrapper)
    yield from state_checks(loaded, write=write)
    if others := reached_by_others(loaded.settings.checkpoint.root, loaded.settings.service.name):
        yield others
    yield _bound_tables(loaded)
    yield from _directories(loaded)
    yield _port(loaded)
    if spark_timeout_s is not None:
        places = {"checkpoint.root": loaded.settings.checkpoint.root}
        places |= {f"lake.{name}": value for name, value in _paths(loaded.lake_options)}
        yield from executor_checks(loaded, places, spark_timeout_s, write=write)
    else:
        yield configured_authentication(loaded.settings.spark)


def _source(loaded: Loaded, server_lakes: list[ServerLake]) -> Iterator[Check]:
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
        yield _problem("source", error, _SOURCE)
        return
    try:
        yield "source", True, f"plugin {name!r} is installed, and the source answers"
        if isinstance(source, DescribedSource):
            yield from _described(source)
        if isinstance(source, LakeNamingSource):
            yield from _named(source, server_lakes)
        yield from _unserved(loaded, source)
        yield from _layouts(loaded, source)
    finally:
        source.close()


def _described(source: DescribedSource) -> Iterator[Check]:
    try:
        for result in source.describe():
            yield replace(result, what=f"source {result.what}")
    except LakewardError as error:
        yield _problem("source", error, _SOURCE)


def _named(source: LakeNamingSource, server_lakes: list[ServerLake]) -> Iterator[Check]:
    """Add the lakes that the server has; only a failure is shown here."""
    try:
        server_lakes.extend(source.server_lakes())
    except LakewardError as error:
        yield _problem("lake settings of the server", error, _SOURCE)


def _unserved(loaded: Loaded, source: Source) -> Iterator[Check]:
    """Say that no table is served, though there are some, or that two have one lake table."""
    try:
        tables = all_configured(loaded, source)
        yield from unserved_checks(source, tables)
        yield from lake_name_checks(loaded, tables)
    except LakewardError as error:
        yield _problem("source", error, _SOURCE)


def _layouts(loaded: Loaded, source: Source) -> Iterator[Check]:
    """Look at the layouts that are configured; the others are the source's own."""
    if not any(rules.lake_partition for rules in loaded.settings.tables.values()):
        return
    try:
        layouts = table_layouts(loaded, all_configured(loaded, source))
    except LakewardError as error:
        yield _problem("layouts", error, _SOURCE)
        return
    yield from layout_checks(one for one in layouts if one.lake_partition)


def _wrapper(name: str) -> Check:
    try:
        load(WRAPPER_GROUP, name)
    except LakewardError as error:
        return _problem(
            "lease wrapper", error, _mend(error, _not_there("lease.wrappers"), installed_as(WRAPPER_GROUP, name))
        )
    return "lease wrapper", True, f"plugin {name!r} is installed"


def _backend(loaded: Loaded) -> Check:
    """Make the lease backend with its options; nothing is opened."""
    name = loaded.settings.lease.backend
    try:
        LeaseBackend.load(name, options=loaded.lease_options)
    except LakewardError as error:
        return _problem(
            "lease backend", error, _mend(error, _not_there("the section [lease]"), installed_as(LEASE_GROUP, name))
        )
    return "lease backend", True, f"plugin {name!r} is installed"


def _not_there(where: str) -> str:
    return f"install the plugin, or correct {where}; `lakeward plugins` lists them"


def _mend(error: LakewardError, otherwise: str, claimed_by: Sequence[Installed] = ()) -> str:
    """Say what to do: nothing that is written in the file mends what is installed wrongly."""
    if not isinstance(error, PluginError):
        return otherwise
    if len(claimed_by) > 1:
        return f"uninstall all but one of {', '.join(one.distribution for one in claimed_by)}"
    return "mend the package of the plugin as its message says; `lakeward plugins` lists what is installed"


def _bound_tables(loaded: Loaded) -> Check:
    try:
        return "bound tables", True, describe_bindings(build(loaded).bound())
    except LakewardError as error:
        wrong = isinstance(error, ConfigError)  # else the files of the state root cannot be read
        action = "correct service.tables, or free them: `lakeward tables unbind SERVICE`" if wrong else _STATE
        return CheckResult("bound tables", ok=False, message=f"[{error.code}] {error}", action=action)


def _directories(loaded: Loaded) -> Iterator[Check]:
    places = {f"lake.{name}": value for name, value in _paths(loaded.lake_options)}
    places |= {f"source.{name}": value for name, value in _paths(loaded.source_options)}
    for name, value in places.items():
        yield _writable(name, value)
    yield from disk_checks(loaded, places)


def _paths(options: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a plugin's options
    keys = keys_of(type(options))
    values = {name: getattr(options, name) for name in keys}
    for name, key in keys.items():
        if key.is_path(values) and values[name]:
            yield name, str(values[name])


def _writable(what: str, place: str) -> Check:
    if not is_local(place):
        return what, True, f"{mask_uri(place)} is not on this machine; not checked"
    ok, message = writable(place)
    action = "" if ok else f"let this user write there, or name another place in {what}"
    return CheckResult(what, ok, message, action)


def _port(loaded: Loaded) -> Check:
    """Bind the port where the service would; a port that is free is free for it."""
    service = loaded.settings.service
    try:
        check_addresses(service)
    except LakewardError as error:
        return _problem("port", error, "correct service.host, service.bind or service.port")
    if not service.port:
        return "port", True, "any free one"
    host = bind_address(service, local=loaded.settings.spark.on_this_machine)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, service.port))
        except OSError as error:
            message = f"service.port {service.port}: expected a free port, found: {error.strerror or error}"
            action = "stop what listens there, or set another service.port (0: any free one)"
            return CheckResult("port", ok=False, message=message, action=action)
    return "port", True, f"{service.port} is free at {host}"
