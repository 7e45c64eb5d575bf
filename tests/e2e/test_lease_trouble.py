"""Lease backends that fail, that protect nothing, and one that somebody else has made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_ops.new_plugin.skeleton import skeleton
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark]
ILL = {
    "raise the server is on holiday": "the server is on holiday",
    "nonsense": "42",
    "wait": "no answer within 1",
}


def told(world: World, table: AnyTable, *words: str) -> bool:
    """Say whether a table's message in the status file has all these words."""
    message = world.table_status(table).get("message", "")
    return all(word in message for word in words)


def test_a_backend_that_fails_holds_up_the_tables_that_need_it_and_no_other(world: World) -> None:
    """It raises, answers nonsense, hangs: each is said in the table's status, by the backend's name."""
    log, keyed = LogTable(world.store, "events"), KeyTable(world.store, "orders")
    keyed.load()
    keyed.snapshot()
    backend = {"backend": '"faulty"', "wrappers": "[]", "call_timeout_s": 1}
    config = world.configure(lease_keys=backend, service_keys={"backoff_most_s": 0.5, "suspend_after": 1000})
    service = None
    for action, words in ILL.items():
        world.arm("acquire", action, always=True)
        service = service or world.start(config)
        wait_until(partial(told, world, keyed, words, "'faulty'"), f"{words}: {service.words()}")
        log.load()
        world.until_same(log)
    world.disarm("acquire")
    world.until_same(keyed)
    world.until_clean(log, keyed)


def test_once_names_the_failed_backend_and_ends_with_1(world: World) -> None:
    """The tables that need no lease are there."""
    log, keyed = LogTable(world.store, "events"), KeyTable(world.store, "orders")
    for table in (log, keyed):
        table.load()
    keyed.snapshot()
    world.arm("acquire", "raise the server is on holiday", always=True)
    service = world.run_once(world.configure(lease_keys={"backend": '"faulty"'}), expected=1)
    assert "shop.orders did not reach its target: " in service.words()
    assert "lease backend 'faulty': acquire raised ArmedError: the server is on holiday" in service.words()
    assert world.same(log)


def test_an_old_server_without_leases_is_tiered_with_one_warning(world: World) -> None:
    """Two tables, several acquires, one sentence."""
    world.store.set_option("lease-api", "false")
    tables = [KeyTable(world.store, name) for name in ("one", "two")]
    for table in tables:
        table.load()
        table.snapshot()
        table.load()
    service = world.run_once(world.configure())
    assert world.same(*tables)
    assert service.words().count("NOT protected") == 1
    world.run_once(world.configure())
    world.assert_clean(*tables)


@pytest.mark.parametrize("backend", ["noop", "fluss", "ttl"])
def test_snapshots_that_are_cleaned_away_under_the_reader(backend: str, world: World) -> None:
    """Without a lease the round has to start afresh, and does; with one the snapshots stay."""
    keyed = KeyTable(world.store, "orders", buckets=1, retained="1")
    keyed.load()
    keyed.snapshot()
    world.arm("before-read-snapshot.orders", "wait")
    config = world.configure(lease_keys={"backend": f'"{backend}"', "duration_s": 30})
    service = world.start(config)
    world.wait_for("before-read-snapshot.orders")
    before = set((world.root / "store" / "kv").rglob("*.arrow"))
    assert before
    for _ in range(3):
        keyed.load()
        keyed.snapshot()
    assert before.isdisjoint((world.root / "store" / "kv").rglob("*.arrow")) == (backend == "noop")
    world.let_go("before-read-snapshot.orders")
    world.until_same(keyed)
    assert service.end() == 0
    world.run_once(config)
    assert world.same(keyed)
    assert world.warehouse.orphans(keyed.path) == set()


def test_a_backend_that_was_installed_from_a_wheel_is_used(world: World) -> None:
    """The package that `lakeward plugins new` writes, as somebody else would publish it."""
    site = world.root / "others"
    command = [_uv(), "pip", "install", "--quiet", "--offline", "--no-deps", "--target", str(site)]
    subprocess.run([*command, str(_wheel(world.root, "elsewhere"))], check=True)
    world.python_path.insert(0, str(site))
    keyed = KeyTable(world.store, "orders")
    keyed.load()
    keyed.snapshot()
    world.arm("after-acquire", "wait")
    service = world.start(world.configure(lease_keys={"backend": '"elsewhere"'}), "--once", LAKEWARD_TRACE_HOOKS="1")
    world.wait_for("after-acquire")
    assert [lease for lease in world.store.leases() if lease.held]
    world.let_go("after-acquire")
    assert service.ended() == 0, service.words()
    assert "lease hook acquire(" in service.words()
    assert world.same(keyed)
    assert not [lease for lease in world.store.leases() if lease.held]


def _wheel(folder: Path, name: str) -> Path:
    """Pack the skeleton by hand: building it takes a build backend from a package index."""
    package, info = f"lakeward_lease_{name}", f"lakeward_lease_{name}-0.1.0.dist-info"
    sources = {
        file.removeprefix("src/"): text for file, text in skeleton("lease", name).items() if file.startswith("src/")
    }
    entry_points = f"[lakeward.lease]\n{name} = {package}.plugin:{name.capitalize()}Leases\n"
    files = sources | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: lakeward-lease-{name}\nVersion: 0.1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    wheel = folder / f"{package}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(file, text)
    return wheel


def _uv() -> str:
    found = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found, "uv is a dependency of the tests"
    return found
