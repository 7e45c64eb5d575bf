"""One Spark job for each round, and for each upkeep of a table, on a thread of its own.

A round's job has P tasks, each of which runs one subtask.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from pyspark.errors import PySparkException
from pyspark.traceback_utils import SCCallSiteSync

from lakeward.errors import SparkError
from lakeward.model.jobs import UpkeepJobEnd
from lakeward.spark.reason import reason_of
from lakeward.spark.tasks import TaskOfJob, TaskOfUpkeep, run_each, run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext

    from lakeward.model.jobs import JobSpec, SubtaskPlace, UpkeepJob
    from lakeward.spark.session import SparkHandle

_counting = threading.Lock()
_STOPPED = "stopped SparkContext"
"""In the text of Spark's errors once the session was stopped."""
_log = structlog.get_logger("lakeward.jobs")


def _no_upkeep(_order: bytes, _attempt: int) -> str:
    message = "no upkeep is done here"
    raise SparkError(message)


@contextmanager
def _call_site(context: SparkContext, name: str) -> Iterator[None]:
    """Name the stages that this thread runs in this block.

    PySpark names a stage after the line of Python that called it, and counts the calls that are under way, over all
    threads: only the outermost one sets a name. So this counts as one more call; what runs inside leaves our name.
    """
    _count(1)
    try:
        context.setLocalProperty("callSite.short", name)
        context.setLocalProperty("callSite.long", name)
        yield
    finally:
        _count(-1)


def _count(calls: int) -> None:
    with _counting:
        SCCallSiteSync._spark_stack_depth += calls  # noqa: SLF001 - pyspark has no other switch


class SparkJobs:
    """The port `Jobs` on classic Spark. Thread-safe."""

    def __init__(
        self,
        handle: SparkHandle,
        run_task: Callable[[SubtaskPlace], str],
        run_order: Callable[[bytes, int], str] = _no_upkeep,
    ) -> None:
        """Keep a running session.

        `run_task` is what each task of a round runs, `run_order` what each task of upkeep does, given its order and
        Spark's number of the try. Both are importable by reference in the workers, and return their outcome.
        """
        self._handle = handle
        self._run_task = run_task
        self._run_order = run_order
        self._slots = handle.slots

    @property
    def slots(self) -> int:
        """How many subtasks may run at once now: executors come and go. Blocking; the last count if the JVM ended."""
        return self._counted(self._handle.count_slots)

    @property
    def slots_there(self) -> int:
        """See `lakeward.ports.Jobs`: what fits the executors that there are now."""
        return self._counted(self._handle.count_slots_there)

    def _counted(self, count: Callable[[], int]) -> int:
        if self.gone() is None:
            try:
                self._slots = count()
            except Exception as error:  # noqa: BLE001 - py4j's own: a JVM that dies meanwhile fails the launch
                _log.warning("slots were not counted", reason=reason_of(error))
        return self._slots

    def launch(self, spec: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """Start a job on a thread of its own. Java is asked on that thread alone: it may hang, or die meanwhile.

        `on_done` is called once, on that thread, when the job has ended: with None, or with the reason why it failed.
        """
        self._start(spec, lambda: self._collect(spec), lambda reason, _: on_done(reason))

    def launch_upkeep(self, spec: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None]) -> None:
        """Start a job of upkeep. See `launch`."""
        self._start(spec, lambda: self._collect_upkeep(spec), lambda reason, told: on_done(UpkeepJobEnd(told, reason)))

    def _start(
        self,
        spec: JobSpec | UpkeepJob,
        collect: Callable[[], tuple[str, ...]],
        on_done: Callable[[str | None, tuple[str, ...]], None],
    ) -> None:
        # PySpark's own kind of thread copies properties of the thread that starts it; `_named` sets all that count.
        try:
            threading.Thread(target=_run, args=(collect, on_done), name=f"job-{spec.tag}", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads: this job fails, not the service
            on_done(reason_of(error), ())

    def cancel(self, spec: JobSpec | UpkeepJob) -> None:
        """Cancel a job; a job that has ended is no error. Returns at once: a JVM that hangs would never answer."""
        threading.Thread(target=self._cancel, args=(spec,), name=f"cancel-{spec.tag}", daemon=True).start()

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`: nothing runs without the JVM, and this process cannot start a new session."""
        return self._handle.gone()

    def _cancel(self, spec: JobSpec | UpkeepJob) -> None:
        try:
            if self.gone() is None:
                self._handle.session.sparkContext.cancelJobGroup(spec.group)
        except Exception as error:  # noqa: BLE001 - py4j's own: a JVM that is dying cancels its jobs by that
            reason = reason_of(error)
            log = _log.debug if _STOPPED in reason else _log.warning  # with Spark its jobs have ended
            log("a job was not cancelled", job=spec.group, reason=reason)

    def _collect(self, spec: JobSpec) -> tuple[str, ...]:
        session = self._handle.session
        work = TaskOfJob(spec, self._run_task)
        with self._named(spec):
            outcomes = run_tasks(session, spec.subtasks, work, spec.secret, barrier=spec.exchange)
        return _all(spec, outcomes, spec.subtasks)

    def _collect_upkeep(self, spec: UpkeepJob) -> tuple[str, ...]:
        with self._named(spec):
            outcomes = run_each(self._handle.session.sparkContext, spec.orders, TaskOfUpkeep(self._run_order))
        return _all(spec, outcomes, len(spec.orders))

    @contextmanager
    def _named(self, spec: JobSpec | UpkeepJob) -> Iterator[None]:
        """Name what runs within: its group, its description, its pool, its tag, its stage."""
        context = self._handle.session.sparkContext
        context.setJobGroup(spec.group, spec.title, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", spec.pool)
        context.addJobTag(spec.tag)
        try:
            with _call_site(context, spec.call_site):
                yield
        finally:
            context.removeJobTag(spec.tag)


def _run(collect: Callable[[], tuple[str, ...]], on_done: Callable[[str | None, tuple[str, ...]], None]) -> None:
    try:
        outcomes = collect()
    except PySparkException as error:
        on_done(reason_of(error), ())
    except Exception as error:  # noqa: BLE001 - py4j raises its own; whatever ended the job is its reason
        on_done(reason_of(error), ())
    else:
        on_done(None, outcomes)


def _all(spec: JobSpec | UpkeepJob, outcomes: tuple[str, ...], expected: int) -> tuple[str, ...]:
    if len(outcomes) != expected:
        message = f"job {spec.group}: expected {expected} subtasks, found {len(outcomes)}"
        raise SparkError(message)
    return outcomes
