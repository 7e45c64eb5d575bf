"""One Spark job for each round, on a thread of its own: P tasks, each of which runs one subtask."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog
from pyspark import InheritableThread
from pyspark.errors import PySparkException

from lakeward.errors import SparkError
from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.spark.call_site import call_site
from lakeward.spark.reason import reason_of
from lakeward.spark.tasks import run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.spark.session import SparkHandle

_log = structlog.get_logger("lakeward.jobs")
"""How py4j begins the text of each error of Java's; what went wrong stands in the next line."""


class SparkJobs:
    """The port `Jobs` on classic Spark. Thread-safe."""

    def __init__(self, handle: SparkHandle, run_task: Callable[[SubtaskPlace], str]) -> None:
        """Keep the session.

        Args:
            handle: a running session.
            run_task: what each task runs, importable by reference in the workers; returns its outcome.
        """
        self._handle = handle
        self._run_task = run_task
        self.slots = handle.slots

    def launch(self, spec: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """Start a job on a thread of its own.

        Args:
            spec: the job.
            on_done: called once, on that thread, when the job has ended: with None, or with the reason why it failed.
        """
        try:
            InheritableThread(target=self._run, args=(spec, on_done), name=f"job-{spec.tag}", daemon=True).start()
        except Exception as error:  # noqa: BLE001 - py4j's own: the thread asks the JVM for its local properties
            on_done(reason_of(error))

    def cancel(self, spec: JobSpec) -> None:
        """Cancel a job; a job that has ended is no error. Returns at once: a JVM that hangs would never answer.

        Args:
            spec: the job.
        """
        threading.Thread(target=self._cancel, args=(spec,), name=f"cancel-{spec.tag}", daemon=True).start()

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`: nothing runs without the JVM, and this process cannot start a new session."""
        return self._handle.gone()

    def _cancel(self, spec: JobSpec) -> None:
        try:
            if self.gone() is None:
                self._handle.session.sparkContext.cancelJobGroup(spec.group)
        except Exception as error:  # noqa: BLE001 - py4j's own: a JVM that is dying cancels its jobs by that
            _log.warning("a job was not cancelled", job=spec.group, reason=reason_of(error))

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
        # Executors come and go: the next round is planned with the slots that there are now.
        self.slots = self._handle.count_slots()
        context.setJobGroup(spec.group, spec.title, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", spec.pool)
        context.addJobTag(spec.tag)
        try:
            with call_site(context, spec.call_site):
                outcomes = run_tasks(session, spec.subtasks, _Subtask(spec, self._run_task))
        finally:
            context.removeJobTag(spec.tag)
        if len(outcomes) != spec.subtasks:
            message = f"job {spec.group}: expected {spec.subtasks} subtasks, found {len(outcomes)}"
            raise SparkError(message)


class _Subtask:
    """What runs in each task; pickled by Spark itself."""

    def __init__(self, spec: JobSpec, run_task: Callable[[SubtaskPlace], str]) -> None:
        self._spec = spec
        self._run_task = run_task

    def __call__(self, number: int, attempt: int) -> str:
        return self._run_task(SubtaskPlace(self._spec, number, attempt))
