"""One Spark job for each round, on a thread of its own: P tasks, each of which runs one subtask."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog
from pyspark.errors import PySparkException

from lakeward.errors import SparkError
from lakeward.spark.call_site import call_site
from lakeward.spark.reason import reason_of
from lakeward.spark.tasks import TaskOfJob, run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import JobSpec, SubtaskPlace
    from lakeward.spark.session import SparkHandle

_STOPPED = "stopped SparkContext"
"""In the text of Spark's errors once the session was stopped."""
_log = structlog.get_logger("lakeward.jobs")


class SparkJobs:
    """The port `Jobs` on classic Spark. Thread-safe."""

    def __init__(self, handle: SparkHandle, run_task: Callable[[SubtaskPlace], str]) -> None:
        """Keep a running session.

        `run_task` is what each task runs, importable by reference in the workers; it returns its outcome.
        """
        self._handle = handle
        self._run_task = run_task
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
        # PySpark's own kind of thread copies properties of the thread that starts it; `_collect` sets all that count.
        try:
            threading.Thread(target=self._run, args=(spec, on_done), name=f"job-{spec.tag}", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads: this round fails, not the service
            on_done(reason_of(error))

    def cancel(self, spec: JobSpec) -> None:
        """Cancel a job; a job that has ended is no error. Returns at once: a JVM that hangs would never answer."""
        threading.Thread(target=self._cancel, args=(spec,), name=f"cancel-{spec.tag}", daemon=True).start()

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`: nothing runs without the JVM, and this process cannot start a new session."""
        return self._handle.gone()

    def _cancel(self, spec: JobSpec) -> None:
        try:
            if self.gone() is None:
                self._handle.session.sparkContext.cancelJobGroup(spec.group)
        except Exception as error:  # noqa: BLE001 - py4j's own: a JVM that is dying cancels its jobs by that
            reason = reason_of(error)
            log = _log.debug if _STOPPED in reason else _log.warning  # with Spark its jobs have ended
            log("a job was not cancelled", round=spec.round_name, job=spec.group, reason=reason)

    def _run(self, spec: JobSpec, on_done: Callable[[str | None], None]) -> None:
        try:
            self._collect(spec)
        except PySparkException as error:
            on_done(reason_of(error))
        except Exception as error:  # noqa: BLE001 - py4j raises its own; whatever ended the job is its reason
            on_done(reason_of(error))
        else:
            on_done(None)

    def _collect(self, spec: JobSpec) -> None:
        session = self._handle.session
        context = session.sparkContext
        context.setJobGroup(spec.group, spec.title, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", spec.pool)
        context.addJobTag(spec.tag)
        work = TaskOfJob(spec, self._run_task)
        try:
            with call_site(context, spec.call_site):
                outcomes = run_tasks(session, spec.subtasks, work, spec.secret, barrier=spec.exchange)
        finally:
            context.removeJobTag(spec.tag)
        if len(outcomes) != spec.subtasks:
            message = f"job {spec.group}: expected {spec.subtasks} subtasks, found {len(outcomes)}"
            raise SparkError(message)
