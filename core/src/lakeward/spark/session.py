"""The Spark session of a service: master, retries of local tasks, quiet logs, the workers' Python."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import SparkSession

from lakeward.errors import SparkError
from lakeward.spark.arguments import forget_numpy
from lakeward.spark.authentication import authentication_check, local_options
from lakeward.spark.class_archive import archive_options
from lakeward.spark.connecting import limited_connecting
from lakeward.spark.java import JavaHome, find_java, launcher_home
from lakeward.spark.python import WORKER, chosen_pythons
from lakeward.spark.quiet import quiet_accumulators, quiet_options
from lakeward.spark.reason import reason_of
from lakeward.spark.worker_daemon import daemon_options

if TYPE_CHECKING:
    from lakeward.model.settings import SparkSettings
    from lakeward.owned_folder import OwnedFolder
    from lakeward.ports import CheckResult

_log = structlog.get_logger("lakeward.session")
TASK_ATTEMPTS = 4
"""Tries of one task; `local[N]` alone never retries (spark.md, "Tasks that fail")."""
_SPECULATION = "spark.speculation"
"""A copy of a running subtask registers as its next attempt and takes its splits away (spark.md, "Tasks that fail")."""
STOP_S = 10.0
"""Seconds after which a Spark that does not stop is killed."""
_DYING_S = 5.0
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_ARENAS = "MALLOC_ARENA_MAX"
_LOCAL = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*(\d+)\s*)?\])?")


@dataclass(frozen=True, slots=True)
class SparkHandle:
    """A running session. `slots` is how many subtasks may run at once, over all rounds, as it started."""

    session: SparkSession
    slots: int
    configured_slots: int
    """0 where Spark's executors decide."""
    local: bool
    driver_host: str
    ui_url: str | None
    java: JavaHome
    launcher: OwnedFolder
    """The JAVA_HOME that Spark was started with; it is deleted with the session."""

    def count_slots(self) -> int:
        """Return how many subtasks may run at once now: as configured, else what Spark's executors offer."""
        return self.configured_slots or int(self.session.sparkContext.defaultParallelism)

    def count_slots_there(self) -> int:
        """Return how many subtasks fit the executors that there are now; not more than `count_slots`."""
        slots = int(self.session.sparkContext.defaultParallelism)
        return min(self.configured_slots or slots, slots)

    def option(self, name: str) -> str | None:
        """Return an option of Spark's configuration as it is in force; None where it is not set."""
        return self.session.sparkContext.getConf().get(name)

    def gone(self) -> str | None:
        """Return a message if the session's Java process has ended, else None; an ended session never comes back."""
        process = self._process()
        code = process.poll() if process is not None else None
        return None if code is None else f"Spark's Java process has ended (exit code {code}); start the service again"

    def stop(self) -> None:
        """Stop Spark, in `STOP_S` seconds at the most.

        A Java process that has ended, or ends meanwhile (a signal to the whole process group reaches it as well), needs
        no stop. One that does not answer is killed.

        Raises:
            SparkError: Spark could not be stopped, and its Java process still runs.
        """
        process = self._process()
        try:
            if self.gone() is None:
                self._stop_session(process)
        finally:
            self.launcher.cleanup()

    def _stop_session(self, process: subprocess.Popen[bytes] | None) -> None:
        killer = threading.Timer(STOP_S, process.kill if process is not None else lambda: None)
        killer.daemon = True
        killer.start()
        try:
            self.session.stop()
        except Exception as error:
            if not _ends_soon(process):
                message = f"spark: not stopped, and its Java process lives on: {error}"
                raise SparkError(message) from error
        finally:
            killer.cancel()

    def _process(self) -> subprocess.Popen[bytes] | None:
        gateway = self.session.sparkContext._gateway  # noqa: SLF001 - pyspark keeps the process nowhere else
        process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
        return process


def _ends_soon(process: subprocess.Popen[bytes] | None) -> bool:
    """Wait a moment for a process that no longer answers: its shutdown hooks may still run."""
    if process is None:
        return False
    try:
        process.wait(_DYING_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def retrying_master(master: str, rounds: int) -> str:
    """Turn `local[N]` into `local[M,4]`: failed tasks are retried, and each concurrent round gets a thread.

    Subtasks are long and keep their thread, so each further concurrent round adds one thread: M = N + rounds - 1. Any
    other master is unchanged, and so are the tries of `local[N,F]`.
    """
    match = _LOCAL.fullmatch(master.strip())
    if match is None:
        return master
    cores = match.group(1) or "1"
    threads = (os.cpu_count() or 1) if cores == "*" else int(cores)
    return f"local[{threads + rounds - 1},{match.group(2) or TASK_ATTEMPTS}]"


def start_session(
    settings: SparkSettings, service: str, rounds: int, directory: Path, abandoned: threading.Event | None = None
) -> SparkHandle:
    """Start Spark, or use the session that this process already has.

    `service` is the application's name, `rounds` how many there are at once. Spark may put its own files (warehouse,
    metastore) into `directory`. `abandoned` ends the start once it is set; None: nobody will.

    Raises:
        JavaError: no usable Java.
        SparkError: Spark did not start.
        StorageError: the directory for archives of classes cannot be used.
    """
    java = find_java()
    if java.passed_over:
        _log.warning("another Java is used than the first one found", java=str(java))
    pythons = chosen_pythons(settings.conf, os.environ)
    options = spark_options(settings, directory)
    if is_local_master(settings.master):
        options = daemon_options(pythons[WORKER], os.environ) | options
    if settings.class_archive and _JAVA_OPTIONS not in settings.conf:
        options[_JAVA_OPTIONS] += f" {archive_options(Path(settings.class_archive), java)}"
    forget_numpy()
    launcher = launcher_home(java)
    os.environ["JAVA_HOME"] = launcher.name
    os.environ.update(pythons)
    builder = SparkSession.builder.master(retrying_master(settings.master, rounds)).appName(f"lakeward {service}")
    for key, value in options.items():
        builder = builder.config(key, value)
    late = threading.Event()
    try:
        with limited_connecting(settings, launcher, late, abandoned or threading.Event()):
            session = builder.getOrCreate()
    except Exception as error:
        launcher.cleanup()
        expected = f"a Spark that starts with master {settings.master!r} on Java {java}"
        if late.is_set():
            expected = f"a master at {settings.master!r} that answers within {settings.connect_timeout_s:g} s"
        message = f"spark.master: expected {expected}, found {'none' if late.is_set() else reason_of(error)}"
        raise SparkError(message) from error
    finally:
        # Other programs that this process starts (for example a Hadoop file system) need the complete Java.
        os.environ["JAVA_HOME"] = str(java.path)
    context = session.sparkContext
    quiet_accumulators(context)
    return SparkHandle(
        session=session,
        slots=settings.slots or int(context.defaultParallelism),
        configured_slots=settings.slots,
        local=is_local_master(settings.master),
        driver_host=str(context.getConf().get("spark.driver.host")),
        ui_url=context.uiWebUrl if settings.ui else None,
        java=java,
        launcher=launcher,
    )


def is_local_master(master: str) -> bool:
    """Return whether Spark's master is a part of the driver: `local`, `local[N]` or `local[N,F]`."""
    return _LOCAL.fullmatch(master.strip()) is not None


def configured_authentication(settings: SparkSettings) -> CheckResult:
    """Say whether Spark will ask who speaks to it; what only Spark's own files set is not seen."""
    local = is_local_master(settings.master)
    options = (local_options(settings.conf) if local else {}) | dict(settings.conf)
    return authentication_check(options.get, local=local)


def spark_options(settings: SparkSettings, directory: Path) -> dict[str, str]:
    """Return Spark's configuration: our defaults, the keys of the configuration file over them, and what must be.

    Spark may put its own files into `directory`.
    """
    if settings.conf.get(_SPECULATION, "false").strip().lower() != "false":
        _log.warning(
            "speculation is switched off: a copy of a running subtask would take its splits away", key=_SPECULATION
        )
    return _defaults(settings, directory) | dict(settings.conf) | {_SPECULATION: "false"}


def _defaults(settings: SparkSettings, directory: Path) -> dict[str, str]:
    local = is_local_master(settings.master)
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return (loopback | local_options(settings.conf) if local else {}) | {
        "spark.ui.enabled": str(settings.ui).lower(),
        # Whoever reaches the page may read it; its links would end jobs, without asking who follows them.
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        # A barrier stage that has more tasks than the cluster has slots fails after 15 s, not after 10 minutes: the
        # round is then launched with the slots that are there (spark.md, "Tasks that exchange rows").
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "15",
        # Cancelled workers die in 0.3 s, not in 2-4 s (spark.md, "Cancelling").
        "spark.python.task.killTimeout": "100ms",
        "spark.python.worker.reuse": "true",
        # A worker takes 50 MiB less than with Arrow's own allocator, at the same speed (spark.md, "Python workers").
        f"spark.executorEnv.{_ARROW_POOL}": os.environ.get(_ARROW_POOL, "system"),
        # Rows are received on one thread and freed on another: each thread's own arena would keep them (as above).
        f"spark.executorEnv.{_ARENAS}": os.environ.get(_ARENAS, "1"),
        "spark.sql.warehouse.dir": (directory / "spark-warehouse").as_uri(),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        _JAVA_OPTIONS: quiet_options(directory, local=local),
    }
