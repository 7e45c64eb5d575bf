"""What is armed at a point: who is killed there, and how often."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from lakeward_faulty.points import FAULTS
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

REACHES = """
import sys
from lakeward_faulty.points import reached
sys.stdin.read()
print(repr(reached(sys.argv[1])))
"""


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    for name in ("once", "always", "fired"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def driver(faults: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (faults / "driver.pid").write_text(str(process.pid), encoding="ascii")
        yield process
        process.kill()


def worker(faults: Path, point: str) -> subprocess.Popen[bytes]:
    """Start a process that goes to a point once its input ends."""
    environment = os.environ | {FAULTS: str(faults), "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", REACHES, point]
    return subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def assert_stays_armed(faults: Path, point: str, process: subprocess.Popen[bytes]) -> None:
    assert process.communicate()[0] == b"''\n"
    assert (faults / "once" / point).exists()


def test_a_driver_is_killed_at_one_point_and_the_next_point_stays_armed(
    faults: Path, driver: subprocess.Popen[bytes]
) -> None:
    """It may take the system a moment to end a process; whoever comes to another point meanwhile kills nobody."""
    for point in ("one.events", "other.events"):
        (faults / "once" / point).write_text("kill-driver", encoding="ascii")
    with worker(faults, "one.events") as first:
        assert first.stdin is not None
        first.stdin.close()
        wait_until((faults / "fired" / "one.events").exists, "the first point")
        with worker(faults, "other.events") as second:
            assert_stays_armed(faults, "other.events", second)
        assert driver.wait(60) == -signal.SIGKILL
        first.kill()


def test_a_point_whose_driver_is_gone_stays_armed(faults: Path, driver: subprocess.Popen[bytes]) -> None:
    driver.kill()
    driver.wait()
    (faults / "once" / "one.events").write_text("kill-driver", encoding="ascii")
    with worker(faults, "one.events") as process:
        assert_stays_armed(faults, "one.events", process)


def test_a_worker_kills_the_driver_that_it_registered_with_and_not_a_later_one(
    faults: Path, driver: subprocess.Popen[bytes]
) -> None:
    """A worker may outlive its driver, and reach a point when the next one runs."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    (faults / "once" / "one.events").write_text("kill-driver", encoding="ascii")
    with worker(faults, "one.events") as process:
        (faults / "events.workers").write_text(f"{process.pid} {gone.pid}\n", encoding="ascii")
        assert_stays_armed(faults, "one.events", process)
    assert driver.poll() is None


@pytest.mark.parametrize("victim", ["kill-worker", "kill-executor"])
def test_a_worker_at_a_point_ends_itself_or_the_java_process_above_it(faults: Path, victim: str) -> None:
    (faults / "once" / "one.events").write_text(victim, encoding="ascii")
    (faults / "driver.pid").write_text(str(os.getpid()), encoding="ascii")
    java = faults / "java"
    shutil.copy(Path("/bin/sh").resolve(), java)
    environment = os.environ | {FAULTS: str(faults), "PYTHONPATH": os.pathsep.join(sys.path)}
    script = '"$0" -c "$1" one.events & echo $!; wait $!; echo $?'
    words = [str(java), "-c", script, sys.executable, REACHES]
    with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker_pid = int(process.stdout.readline())
        if victim == "kill-worker":
            assert int(process.stdout.readline()) == 128 + signal.SIGKILL
            assert process.wait(60) == 0
        else:
            assert process.wait(60) == -signal.SIGKILL
            os.kill(worker_pid, signal.SIGKILL)


def test_the_jvm_of_a_driver_is_the_java_process_below_it(faults: Path) -> None:
    java = faults / "java"
    shutil.copy(Path("/bin/sh").resolve(), java)
    code = "import subprocess, sys; print(subprocess.Popen([sys.argv[1], '-c', 'read x']).wait())"
    words = [sys.executable, "-c", code, str(java)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        (faults / "driver.pid").write_text(str(driver.pid), encoding="ascii")
        wait_until(lambda: [one for one in psutil.Process(driver.pid).children() if one.name() == "java"], "its JVM")
        (faults / "once" / "one.events").write_text("kill-jvm", encoding="ascii")
        with worker(faults, "one.events") as process:
            assert process.stdin is not None
            process.stdin.close()
            assert driver.stdout is not None
            assert int(driver.stdout.readline()) == -signal.SIGKILL
            process.kill()
