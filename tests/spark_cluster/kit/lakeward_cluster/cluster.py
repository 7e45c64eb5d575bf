"""One standalone master and its workers, each a process of its own, on free ports of the loopback addresses."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lakeward.spark.java import find_java, launcher_home
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOST = "127.0.0.1"
OTHER_HOST = "127.0.0.2"
"""Another machine, as Spark sees it."""
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with driver"
_JOINED = "Successfully registered with master"
_START_S = 90.0
JAVA_OPTIONS = os.environ.get("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
"""Of each Java of a cluster: as tox has them for the drivers."""
_DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    "SPARK_NO_DAEMONIZE": "1",
}


class _Daemon:
    """A master or a worker, with what it printed."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], log: Path) -> None:
        """Start it."""
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                words, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def said(self) -> str:
        """Return what it printed so far."""
        assert self._process.poll() is None, f"it ended: {self._log.read_text(encoding='utf-8', errors='replace')}"
        return self._log.read_text(encoding="utf-8", errors="replace")

    def children(self) -> list[psutil.Process]:
        """Return the processes that it started, and theirs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill(self) -> None:
        """Kill it with everything that it started, as the loss of a machine does."""
        left = self.children()
        self._process.kill()
        self._process.wait()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=LIMIT_S)


class SparkWorker(_Daemon):
    """One worker of a cluster."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], log: Path, folder: Path) -> None:
        """Start it; its executors' output is in the folder."""
        super().__init__(words, environment, log)
        self._folder = folder

    @property
    def serves(self) -> bool:
        """Whether an executor of it is known to a driver, which may give it tasks from then on."""
        return any(_REGISTERED in file.read_text(encoding="utf-8") for file in self._folder.glob("*/*/stderr"))

    def executors(self) -> list[psutil.Process]:
        """Return its executors' Java processes."""
        return [child for child in self.children() if _runs_executor(child)]


class SparkCluster:
    """A master, and the workers that were added to it."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        """Start the master, without any worker.

        Args:
            root: where logs and the executors' folders are; made.
            environment: what executors and their Python workers find in their environment.
        """
        root.mkdir(parents=True)
        self._root = root
        self._launcher = launcher_home(find_java())
        known = {key: text for key, text in os.environ.items() if not key.startswith(("LAKEWARD_", "PYTEST", "SPARK"))}
        self._environment = known | _DAEMON | {"JAVA_HOME": self._launcher.name} | environment
        self._script = Path(next(iter(import_module("pyspark").__path__))) / "bin" / "spark-class"
        self.workers: list[SparkWorker] = []
        self._master = _Daemon(self._words(_MASTER, HOST), self._environment, root / "master.txt")
        wait_until(lambda: _MASTER_URL.search(self._master.said()), "the master to listen", _START_S)

    @property
    def url(self) -> str:
        """The address of the master, for `spark.master`."""
        found = _MASTER_URL.search(self._master.said())
        assert found is not None
        return found[1]

    def add_workers(self, *hosts: str, cores: int = 1) -> list[SparkWorker]:
        """Start workers, side by side, and wait until all of them have joined.

        Args:
            *hosts: a loopback address for each; Spark takes different ones for different machines.
            cores: slots of each.

        Returns:
            The workers, in this order.
        """
        added = [self._start_worker(host, cores) for host in hosts]
        for worker in added:
            wait_until(lambda worker=worker: _JOINED in worker.said(), "a worker to join", _START_S)  # type: ignore[misc]
        return added

    def remove(self, workers: Iterable[SparkWorker]) -> None:
        """Kill workers with their executors."""
        for worker in [*workers]:
            worker.kill()
            self.workers.remove(worker)

    def executors(self) -> list[psutil.Process]:
        """Return the Java processes of all executors."""
        return [executor for worker in self.workers for executor in worker.executors()]

    def destroy(self) -> None:
        """Kill everything."""
        self.remove(self.workers)
        self._master.kill()
        self._launcher.cleanup()

    def _start_worker(self, host: str, cores: int) -> SparkWorker:
        number = len([*self._root.glob("worker-*.txt")])
        folder = self._root / f"worker-{number}"
        words = self._words(_WORKER, host, "--cores", str(cores), "--memory", "1g", "--work-dir", str(folder), self.url)
        worker = SparkWorker(words, self._environment, self._root / f"worker-{number}.txt", folder)
        self.workers.append(worker)
        return worker

    def _words(self, main: str, host: str, *more: str) -> list[str]:
        return [str(self._script), main, "--host", host, "--port", "0", "--webui-port", "0", *more]


def _runs_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name() == "java" and any(_EXECUTOR in word for word in process.cmdline())
    return False
