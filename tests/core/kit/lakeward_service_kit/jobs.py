"""Jobs without Spark: each subtask is a thread of this process, over real sockets and real plugins."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakeward.model.jobs import JobSpec, SubtaskPlace, UpkeepJob, UpkeepJobEnd
from lakeward.subtask.upkeep import do_upkeep

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadJobs:
    """The port `Jobs` on threads. A task that raises is tried again, `attempts` times, as Spark would."""

    def __init__(self, entry: Callable[[SubtaskPlace], str], slots: int = 2, attempts: int = 4) -> None:
        """Keep what each task runs, and how often it is tried.

        There is room for so many subtasks as `slots` says; more than that run side by side all the same.
        """
        self.slots = slots
        self.missing = 0
        """So many of the slots are not there: tasks that have to start all at once do not start then."""
        self._entry = entry
        self._attempts = attempts
        self.launched: list[JobSpec] = []
        self.cancelled: list[JobSpec | UpkeepJob] = []
        self.upkeep: list[UpkeepJob] = []
        self.do_upkeep: Callable[[bytes, int], str] = do_upkeep

    @property
    def slots_there(self) -> int:
        """See `lakeward.ports.Jobs`."""
        return self.slots - self.missing

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See `lakeward.ports.Jobs`."""
        self.launched.append(job)
        if job.exchange and job.subtasks > self.slots_there:
            on_done("it requires more slots than the total number of slots in the cluster currently")
            return
        threading.Thread(target=self._run, args=(job, on_done), name=job.tag, daemon=True).start()

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`; a test may say so by another class."""
        return None

    def launch_upkeep(self, job: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None]) -> None:
        """See `lakeward.ports.Jobs`: one task after the other, each tried once."""
        self.upkeep.append(job)
        threading.Thread(target=self._run_upkeep, args=(job, on_done), name=job.tag, daemon=True).start()

    def _run_upkeep(self, job: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None]) -> None:
        try:
            outcomes = tuple(self.do_upkeep(order, 0) for order in job.orders)
        except Exception as error:  # noqa: BLE001 - as of a subtask
            on_done(UpkeepJobEnd(reason=f"{type(error).__name__}: {error}"))
        else:
            on_done(UpkeepJobEnd(outcomes))

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        """See `lakeward.ports.Jobs`; threads cannot be killed: their link tells them."""
        self.cancelled.append(job)

    def _run(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        failures: list[str] = []
        tasks = [
            threading.Thread(target=self._task, args=(job, number, failures), daemon=True)
            for number in range(job.subtasks)
        ]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        on_done(failures[0] if failures else None)

    def _task(self, job: JobSpec, number: int, failures: list[str]) -> None:
        message = "no attempt was made"
        for attempt in range(self._attempts):
            try:
                self._entry(SubtaskPlace(job, number, attempt))
            except Exception as error:  # noqa: BLE001 - what a task raises is what Spark would see of it
                message = f"{type(error).__name__}: {error}"
            else:
                return
        failures.append(message)
