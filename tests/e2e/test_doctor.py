"""`lakeward doctor` runs one real task on the master, and says what it saw or what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.slow]
Found = tuple[bool, str]


def executor(world: World, *words: str, environment: dict[str, str] | None = None) -> Found:
    """Run the doctor; return what it says of the executor."""
    return checks(world, *words, environment=environment)["executor"]


def checks(world: World, *words: str, environment: dict[str, str] | None = None) -> dict[str, Found]:
    """Run the doctor; return what it says of each thing."""
    config = world.configure()
    known = {key: text for key, text in os.environ.items() if not key.startswith(("LAKEWARD_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "lakeward", "doctor", "-o", "json", "--config", str(config), *words],
        env=known | world.environment(world.root / "doctor.txt") | (environment or {}),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert done.returncode == (0 if document["ok"] else 1)
    return {check["what"]: (check["ok"], check["message"]) for check in document["checks"]}


def another_python(folder: Path, *, with_packages: bool) -> str:
    """Make an environment like ours, which knows our packages or none."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "python"
    program.symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8"), encoding="utf-8")
    if with_packages:
        (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    return str(program)


def test_the_python_of_the_spark_configuration_runs_the_task_and_reaches_the_driver_over_tls(world: World) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(world.root / "driver.pem"))
    authority.cert_pem.write_to_path(str(world.root / "ca.pem"))
    python = another_python(world.root / "other", with_packages=True)
    tls = ("--set", f"service.tls_cert={world.root}/driver.pem", "--set", f"service.tls_ca={world.root}/ca.pem")
    ok, message = executor(world, "--set", f"spark.conf.spark.pyspark.python={python}", *tls)
    assert ok, message
    assert f"({python})" in message
    assert "lakeward 0.1.0, pyarrow " in message
    assert "reaches the driver from 127.0.0.1" in message


def test_a_python_of_the_environment_that_lacks_lakeward_is_named(world: World) -> None:
    python = another_python(world.root / "bare", with_packages=False)
    ok, message = executor(world, environment={"PYSPARK_PYTHON": python})
    assert not ok
    assert f"({python})" in message
    assert "expected lakeward 0.1.0 as here, found none" in message
    assert "install the same distributions" in message
    assert "\n" not in message


def test_a_python_that_is_not_there_is_named(world: World) -> None:
    ok, message = executor(world, "--set", "spark.conf.spark.pyspark.python=/nowhere/python")
    assert not ok
    assert "expected a program, found none at /nowhere/python" in message
    assert "\n" not in message


def test_a_driver_that_executors_do_not_reach_is_found(world: World) -> None:
    ok, message = executor(world, "--set", "service.host=127.0.0.9", "--set", "service.bind=127.0.0.1")
    assert not ok
    assert "cannot connect to the driver (ConnectionRefusedError" in message
    assert "set service.host" in message


PLACES = ("executor's checkpoint.root", "executor's lake.warehouse")


def test_an_executor_tries_to_write_where_state_and_tables_are_kept_only_if_asked(world: World) -> None:
    assert not {*PLACES} & checks(world).keys()
    found = checks(world, "--write")
    for place in PLACES:
        ok, message = found[place]
        assert ok, message
        assert "a file was written and deleted on " in message
    assert list(world.root.rglob("*lakeward_doctor*")) == []


def test_an_executor_that_cannot_write_where_this_machine_can_is_found(world: World) -> None:
    python = world.root / "python-without-room"
    python.write_text(f'#!/bin/sh\nulimit -f 0\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    found = checks(world, "--write", "--set", f"spark.conf.spark.pyspark.python={python}")
    assert found["executor"][0], found["executor"][1]
    assert found["state directory"][0]
    assert found["lake warehouse"][0]
    for place in PLACES:
        ok, message = found[place]
        assert not ok
        assert "cannot be used on " in message
        assert "File too large" in message


def test_a_task_that_no_executor_takes_is_given_up(world: World) -> None:
    ok, message = executor(world, "--spark-timeout", "0.001")
    assert not ok
    assert message.startswith("no executor ran a task within 0.001 s: expected a worker with a free core")
