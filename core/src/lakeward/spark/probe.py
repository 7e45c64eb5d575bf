"""Run one real task on the master, and say what its executor is."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread, cloudpickle

from lakeward.errors import SparkError
from lakeward.spark import executor_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakeward.ports import Clock
    from lakeward.ports.transport import Address
    from lakeward.spark.session import SparkHandle

_GROUP = "lakeward doctor"
_PYTHONS = re.compile(r"Python in worker has different version:? ([\d.]+) than that in driver:? ([\d.]+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_CHOOSE = 'name another Python with spark.conf."spark.pyspark.python" or PYSPARK_PYTHON'


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """What the task does: it says which `distributions` it has, and tries `places` (`executor_report.try_places`)."""

    distributions: Sequence[str]
    places: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """What one task saw. `versions` has None where a distribution is not installed; `took_s` is seconds."""

    python: str
    executable: str
    host: str
    versions: Mapping[str, str | None]
    address: str | None
    """The executor's own, as its connection to the driver has it; None where it could not connect."""
    error: str | None
    places: Mapping[str, tuple[bool, str]]
    """As `executor_report.try_places` returns them."""
    took_s: float


def probe(handle: SparkHandle, address: Address, task: ProbeTask, clock: Clock, timeout_s: float) -> ExecutorReport:
    """Run a task that connects to where the driver listens, and wait at most `timeout_s` (> 0) seconds for what it saw.

    Raises:
        SparkError: no executor took the task in time, or it failed; says what to do.
    """
    found: list[Mapping[str, Any]] = []
    failed: list[Exception] = []
    context = handle.session.sparkContext

    def run() -> None:
        # By value: an executor that lacks Lakeward can still say so.
        cloudpickle.register_pickle_by_value(executor_report)  # type: ignore[no-untyped-call]
        try:
            context.setJobGroup(_GROUP, "lakeward doctor: what an executor is, and whether it reaches the driver")
            found.extend(context.parallelize([address.secret], 1).map(_sent(task, address)).collect())
        except Exception as error:  # noqa: BLE001 - py4j's own, told on the caller's thread
            failed.append(error)
        finally:
            cloudpickle.unregister_pickle_by_value(executor_report)  # type: ignore[no-untyped-call]

    began = clock.now()
    thread = InheritableThread(target=run, name="probe", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failed:
        raise SparkError(_advice(failed[0])) from failed[0]
    if not found:
        threading.Thread(target=context.cancelJobGroup, args=(_GROUP,), daemon=True).start()
        message = (
            f"no executor ran a task within {timeout_s:g} s: expected a worker with a free core and enough memory for "
            "spark.executor.memory; look at the master's page"
        )
        raise SparkError(message)
    return ExecutorReport(**found[0], took_s=clock.now() - began)


def _sent(task: ProbeTask, address: Address) -> Callable[[bytes], Mapping[str, Any]]:
    names, places, report = tuple(task.distributions), tuple(task.places), executor_report.report
    parts = (address.host, address.port, address.trusted)
    return lambda secret: report(names, parts, secret, places)


def _advice(error: Exception) -> str:
    """Return one line that says what is wrong with the executors, and what to do."""
    text = str(error)
    if pythons := _PYTHONS.search(text):
        expected = f"expected Python {pythons.group(2)} as here, found {pythons.group(1)}"
        return f"the executors' Python: {expected}; {_CHOOSE}"
    if program := _NO_PROGRAM.search(text):
        return f"the executors' Python: expected a program, found none at {program.group(1)}; {_CHOOSE}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f"the task failed: {(told or lines or [type(error).__name__])[-1]}"
