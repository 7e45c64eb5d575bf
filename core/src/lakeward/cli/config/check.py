"""`lakeward config check`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from lakeward.cli.checks import Check, as_result, show_checks
from lakeward.cli.config.spill import spill_check
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.layouts import (
    alike_checks,
    lake_name_checks,
    layout_checks,
    pattern_checks,
    readable_checks,
    schema_checks,
    table_layouts,
    unserved_checks,
)
from lakeward.cli.open_plugins import all_configured
from lakeward.cli.serving import describe_bindings
from lakeward.container import build, lease_duration_s
from lakeward.errors import LakewardError
from lakeward.local_files import is_local
from lakeward.model.secrets import mask_uri
from lakeward.observe.files import reached_by_others
from lakeward.observe.format import count
from lakeward.observe.status_changes import check_target
from lakeward.serve import writable_root
from lakeward.sockets.addresses import check_addresses
from lakeward.sockets.certificates import load_tls
from lakeward.spark.java import find_java
from lakeward.spark.session import configured_authentication

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded
    from lakeward.coordinator.rounds.layout import TableLayout
    from lakeward.model.tables import TableSpec


@click.command("check")
@click.option("--write", is_flag=True, help="Test that state can be written: write a file and delete it.")
@with_common_options
@pass_invocation
def check(invocation: Invocation, *, write: bool) -> int:
    """Build everything that the configuration names, without starting it; exit code 1 if something does not fit.

    Each table's lake layout is shown, how its rows get to their writers, and which columns the lake cannot hold. A
    warning is no problem: a pattern that no table matches, or columns whose names differ in case alone.

    Nothing is created: permissions show whether state can be written, unless `--write` is given.
    """
    checks, layouts = _check(invocation.load(), write=write)
    return show_checks(invocation, checks, layouts=layouts)


def _check(loaded: Loaded, *, write: bool) -> tuple[list[Check], list[TableLayout]]:
    """Build everything that a configuration names, without starting it; nothing is created.

    With `write`, a file is written and deleted, to try whether state can be. Returned are, for each part, its name,
    whether it is well and one sentence; and the layout of each table.
    """
    container = build(loaded)
    settings = loaded.settings
    found: list[TableSpec] = []
    layouts: list[TableLayout] = []
    unserved: list[Check] = []

    def tables() -> str:
        source = container.source()
        found.extend(all_configured(loaded, source))
        unserved.extend(unserved_checks(source, found))
        layouts.extend(table_layouts(loaded, found))
        return f"{settings.source.type}, {count(len(found), 'table')} to tier"

    def root() -> str:
        place, name = mask_uri(settings.checkpoint.root), f"{settings.service.name}/.check"
        if write:
            container.files().write(name, b"")
            container.files().delete(name)
            return f"{place} can be written: a file was written and deleted"
        if not is_local(settings.checkpoint.root):
            container.files().folders(settings.service.name)
            return f"{place} can be listed; whether it can be written was not tried (--write)"
        return f"{writable_root(settings)}, by its permissions"

    def driver() -> str:
        service = settings.service
        check_addresses(service)
        how = "with TLS" if load_tls(service, service.host) else "without TLS"
        return f"executors reach it at {service.host or 'spark.driver.host'}, {how}"

    looks = {
        "source": tables,
        "lake": lambda: f"{settings.lake.type}, opened as {container.lake().name}",
        "lease": lambda: f"{settings.lease.backend}, {lease_duration_s(settings, container.backend()):.0f} s",
        "state": root,
        "bound tables": lambda: describe_bindings(container.bound()),
        "java": lambda: str(find_java()),
        "driver": driver,
    }
    if settings.observe.on_status:
        looks["observe.on_status"] = lambda: check_target(settings.observe.on_status)
    try:
        parts = [_look(what, look) for what, look in looks.items()]
        others = reached_by_others(settings.checkpoint.root, settings.service.name)
        looked = [configured_authentication(settings.spark), *([others] if others else [])]
        well = {part.what for part in map(as_result, parts) if part.ok}
        columns = schema_checks(loaded, container.lake(), found) if "lake" in well else []
        columns += lake_name_checks(loaded, found)
        columns += alike_checks(loaded, found)
        columns += readable_checks(loaded, found)
        patterns = pattern_checks(loaded, container.source() if "source" in well else None)
        exchanged = any(layout.exchange == "hash" and not layout.error for layout in layouts)
        spills = [spill_check(loaded)] if exchanged else []
        return [*parts, *looked, *unserved, *patterns, *columns, *layout_checks(layouts), *spills], layouts
    finally:
        asyncio.run(container.resources().close_all())


def _look(what: str, look: Callable[[], str]) -> Check:
    try:
        return what, True, look()
    except LakewardError as error:
        return what, False, f"[{error.code}] {error}"
