"""Spark's scheduler: launches tasks, tries them again, gives a job up, and dies with the coordinator's process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakeward.model.jobs import SubtaskPlace
from lakeward_simulator.subtask import SimTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import JobSpec
    from lakeward_simulator.loop import SimLoop
    from lakeward_simulator.world import World

_TRIES = 3
_START_S = 0.5
_EXECUTOR_S = 12.0
"""Seconds within which Spark has another executor in the place of a lost one."""


class SimJob:
    """One launch."""

    def __init__(self, jobs: SimJobs, spec: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """Start all tasks."""
        self._jobs = jobs
        self.spec = spec
        self._on_done = on_done
        self._tries = dict.fromkeys(range(spec.subtasks), 0)
        self.tasks: dict[int, SimTask] = {}
        self._done: set[int] = set()
        self._waiting: list[int] = []
        """Subtasks that have no slot until another one ends."""
        self.ended = False
        for subtask in range(spec.subtasks):
            self._later(subtask)

    def end(self, reason: str | None) -> None:
        """The job is over; what of it still runs is killed."""
        if self.ended:
            return
        self.ended = True
        for task in self.tasks.values():
            self._jobs.let_die(task)
        loop = self._jobs.loop
        loop.after(loop.random.random() * 0.2, partial(self._on_done, reason))

    def replace(self, task: SimTask) -> None:
        """Believe that a task is lost, and start it again, while it lives on."""
        self._jobs.let_die(task)
        self._task_over(task.place.subtask, None)

    def lose(self, tasks: list[SimTask], *, retried: bool) -> None:
        """Lose the executor that runs these tasks.

        Args:
            tasks: they die at once.
            retried: there will be another executor for them; otherwise they wait for a slot of another task.
        """
        for task in tasks:
            subtask = task.place.subtask
            task.outlives = True
            task.kill()
            if self._tries[subtask] >= _TRIES:
                self.end(f"task {subtask} failed {_TRIES} times")
            elif retried:
                self._later(subtask, _EXECUTOR_S)
            else:
                self._waiting.append(subtask)

    def _later(self, subtask: int, within_s: float = _START_S) -> None:
        scheduler = self._jobs.world.scheduler
        scheduler.after(scheduler.random.random() * within_s, partial(self._start, subtask))

    def _start(self, subtask: int) -> None:
        if self.ended:
            return
        number = self._tries[subtask]
        self._tries[subtask] += 1
        round_name = self.spec.round_name.rpartition("/")[2]
        name = f"{self._jobs.loop.name}/{round_name}/{self.spec.job_attempt}/{subtask}.{number}"
        place = SubtaskPlace(self.spec, subtask, number)
        self.tasks[subtask] = SimTask(self._jobs.world, place, name, partial(self._own_end, place))

    def _own_end(self, place: SubtaskPlace, outcome: str | None) -> None:
        """A task has ended by itself; one that was given up before is nobody's any more."""
        if not self.tasks[place.subtask].outlives and self.tasks[place.subtask].place is place:
            self._task_over(place.subtask, outcome)

    def _task_over(self, subtask: int, outcome: str | None) -> None:
        if self.ended:
            return
        if self._waiting:
            self._later(self._waiting.pop(0))
        if outcome is not None:
            self._done.add(subtask)
            if len(self._done) == self.spec.subtasks:
                self.end(None)
        elif self._tries[subtask] >= _TRIES:
            self.end(f"task {subtask} failed {_TRIES} times")
        else:
            self._later(subtask)


class SimJobs:
    """See `lakeward.ports.Jobs`: one coordinator's Spark."""

    def __init__(self, world: World, loop: SimLoop, slots: int) -> None:
        """Run nothing yet."""
        self.world = world
        self.loop = loop
        self.slots = slots
        self.jobs: list[SimJob] = []

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`; here the JVM goes with its driver."""
        return None

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See Protocol."""
        self.world.checks.launching(self.loop, job)
        self.jobs = [one for one in self.jobs if not one.ended]
        self.jobs.append(SimJob(self, job, on_done))

    def cancel(self, job: JobSpec) -> None:
        """See Protocol."""
        for one in self.jobs:
            if one.spec is job:
                scheduler = self.world.scheduler
                scheduler.after(scheduler.random.random() * _START_S, partial(one.end, "cancelled"))

    def let_die(self, task: SimTask) -> None:
        """Kill a task that the driver has given up: at once, or when its executor gets to know of it."""
        task.outlives = True
        random = self.world.random
        if random.random() < 0.5:
            task.kill()
            return
        asleep = max(0.0, task.frozen_until - task.scheduler.now)
        task.scheduler.after(min(asleep, 15.0) + random.random() * 12.0, task.kill)

    def running(self) -> list[SimTask]:
        """Return the tasks that live."""
        return [task for job in self.jobs if not job.ended for task in job.tasks.values() if task.alive]

    def die(self) -> None:
        """The application is gone; its executors notice that one by one."""
        for job in self.jobs:
            for task in [] if job.ended else job.tasks.values():
                task.outlives = True
                task.scheduler.after(task.random.random() * 10.0, task.kill)
            job.ended = True
