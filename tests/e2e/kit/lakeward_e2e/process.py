"""One real process of the service."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from lakeward.coordinator.service.stop_signals import SAME_S
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_MET = re.compile(r'^Exception in thread "accept-connections" java\.io\.EOFException\n(?:\tat .*\n?)*', re.MULTILINE)
"""What Spark's Java prints when somebody connects to a port at which it waits for a task, and says nothing: a test that
looks whether a server of its own listens at a port that was free just now.
"""


def complaints(printed: str) -> list[str]:
    """Return the lines of standard error without those that are no fault of a service: Spark is slow, or was met."""
    return [line for line in _MET.sub("", printed).splitlines() if "waiting for Spark" not in line]


def _seen(look: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    """Look at a process; one that is gone, or dead and not yet waited for, is not it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return look(process)
    return False


def _listening(process: psutil.Process) -> list[Any]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return []


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes; one that has ended meanwhile is as good."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


class ServiceProcess:
    """`lakeward run ...`, its words in a file."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        """Start it."""
        self.log = log
        command = [str(Path(sys.executable).with_name("lakeward")), "run", "--no-progress", *arguments]
        with log.open("wb") as out:
            # A session of its own: a signal to the driver reaches the driver alone, as with `docker stop`.
            self._process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        self._family: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        """The driver's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True until it ended."""
        return self._process.poll() is None

    @property
    def stopped(self) -> bool:
        """True while it is paused by SIGSTOP."""
        return self.alive and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def send(self, number: signal.Signals) -> None:
        """Send the driver a signal."""
        self._process.send_signal(number)

    def send_another(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal that is not taken for one that was sent right before it; `group`: as `send_group`."""
        another_s = time.monotonic() + 2 * SAME_S
        wait_until(lambda: time.monotonic() > another_s, "the time after which a signal is another one")
        (self.send_group if group else self.send)(number)

    def send_group(self, number: signal.Signals) -> None:
        """Send the driver and all of its children in its process group a signal, as systemd and a terminal do."""
        os.killpg(self.pid, number)

    def ended(self, limit_s: float = LIMIT_S) -> int:
        """Wait for its end; returns the exit code (negative: killed by that signal)."""
        wait_until(lambda: not self.alive, f"the end of the service; it says: {self.words()}", limit_s)
        return self._process.wait()

    def end(self) -> int:
        """Stop it as an operator does."""
        self.send(signal.SIGTERM)
        return self.ended()

    def words(self) -> str:
        """Return everything that it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def readers(self) -> list[psutil.Process]:
        """Return its Spark workers that run a task or wait for one: children of the daemon that forks them."""
        daemons = self._daemons()
        return [child for child in self._children() if _seen(lambda one: one.parent() in daemons, child)]

    def java(self) -> list[psutil.Process]:
        """Return Spark's Java process."""
        return [child for child in self._children() if _seen(lambda one: one.name() == "java", child)]

    def ports(self) -> set[int]:
        """Return the TCP ports that it and its children listen at."""
        family = [psutil.Process(self.pid), *self._children()]
        connections = [one for process in family for one in _listening(process)]
        return {one.laddr.port for one in connections}

    def _daemons(self) -> list[psutil.Process]:
        return [child for child in self._children() if _seen(lambda one: "pyspark.daemon" in one.cmdline(), child)]

    def _children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def destroy(self) -> None:
        """Kill whatever is left of it and of its Spark."""
        left = [process for process in psutil.process_iter(["environ"]) if self._is_mine(process)]
        kill_all(left)
        self._process.kill()
        self._process.wait()
        psutil.wait_procs(left, timeout=LIMIT_S)

    def _is_mine(self, process: psutil.Process) -> bool:
        environ = process.info["environ"] or {}
        return bool(environ.get("LAKEWARD_TEST_LOG") == str(self.log))
