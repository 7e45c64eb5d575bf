"""Spark's scheduler: launches tasks, tries them again, gives a job up, and dies with the coordinator's process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakeward.model.jobs import SubtaskPlace
from lakeward_simulator.subtask import SimTask
from lakeward_simulator.upkeep import SimUpkeepJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import JobSpec, UpkeepJob, UpkeepJobEnd
    from lakeward_simulator.loop import SimLoop
    from lakeward_simulator.world import World

_TRIES = 3
_START_S = 0.5
_OFFER_S = 1.0
"""Seconds between two looks of Spark for free slots."""
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
        self._stage = 0
        """Of a gang, whose tasks start together and fail together: how often they were started again."""
        self.ended = False
        self.reserved = 0
        """Slots of a gang whose tasks start, or run."""
        if spec.exchange:
            self._begin_stage(self._stage)
            return
        for subtask in range(spec.subtasks):
            self._later(subtask)

    @property
    def occupied(self) -> int:
        """How many slots it has."""
        living = sum(task.alive and not task.outlives for task in self.tasks.values())
        return 0 if self.ended else max(self.reserved, living)

    def _begin_stage(self, stage: int, within_s: float = _START_S, after_s: float = 0.0) -> None:
        """Start all tasks of a gang once all have a slot; Spark refuses what can never have them."""
        if self.ended or stage != self._stage:
            return
        if not self._jobs.has_room(self.spec.subtasks):
            if self.spec.subtasks > self._jobs.slots_there:
                self.end("it requires more slots than the total number of slots in the cluster currently")
            else:
                self._jobs.world.scheduler.after(_OFFER_S, self._begin_stage, stage, within_s, after_s)
            return
        self.reserved = self.spec.subtasks
        for subtask in range(self.spec.subtasks):
            self._later(subtask, within_s, after_s)

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
            if self.spec.exchange:
                continue
            if self._tries[subtask] >= _TRIES:
                self.end(f"task {subtask} failed {_TRIES} times")
            elif retried:
                self._later(subtask, _EXECUTOR_S)
            else:
                self._waiting.append(subtask)
        if self.spec.exchange:
            self._stage_over(_EXECUTOR_S)

    def _stage_over(self, within_s: float = _START_S) -> None:
        """One task of a gang has failed: Spark kills the others, and starts all of them again."""
        if self.ended:
            return
        for task in self.tasks.values():
            if task.alive and not task.outlives:
                self._jobs.let_die(task)
        self._stage += 1
        self.reserved = 0
        self._done.clear()
        if self._stage >= _TRIES:
            self.end(f"its stage failed {_TRIES} times")
            return
        seconds = self._jobs.world.random.random() * within_s
        self._begin_stage(self._stage, after_s=seconds)

    def _later(self, subtask: int, within_s: float = _START_S, after_s: float = 0.0) -> None:
        scheduler = self._jobs.world.scheduler
        seconds = after_s + scheduler.random.random() * within_s
        scheduler.after(seconds, partial(self._start, subtask, self._stage))

    def _start(self, subtask: int, stage: int) -> None:
        if self.ended or stage != self._stage:
            return
        if not self.spec.exchange and not self._jobs.has_room(1):
            self._jobs.world.scheduler.after(_OFFER_S, self._start, subtask, stage)
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
        if outcome is None and self.spec.exchange:
            self._stage_over()
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
        self.slots = self.slots_there = slots
        self.most_slots = 0
        """The most that a rescaling has left: they may not have been counted anew."""
        self.limited = False
        """Whether no more tasks run at once than `slots_there`."""
        self.jobs: list[SimJob] = []
        self.upkeep: list[SimUpkeepJob] = []

    @property
    def every(self) -> tuple[SimJob | SimUpkeepJob, ...]:
        """All jobs, those of upkeep among them."""
        return (*self.jobs, *self.upkeep)

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`; here the JVM goes with its driver."""
        return None

    def has_room(self, count: int) -> bool:
        """Return whether so many slots are free."""
        return not self.limited or sum(one.occupied for one in self.every) + count <= self.slots_there

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See Protocol."""
        self.world.checks.launching(self.loop, job)
        self.jobs = [one for one in self.jobs if not one.ended]
        self.jobs.append(SimJob(self, job, on_done))

    def launch_upkeep(self, job: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None]) -> None:
        """See Protocol."""
        self.world.checks.launching_upkeep(self.loop, len(job.orders))
        self.upkeep = [one for one in self.upkeep if not one.ended]
        self.upkeep.append(SimUpkeepJob(self.world, self.loop, job, on_done))

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        """See Protocol."""
        for one in self.every:
            if one.spec is job:
                scheduler = self.world.scheduler
                scheduler.after(scheduler.random.random() * _START_S, partial(one.end, "cancelled"))

    def lose_upkeep(self) -> bool:
        """Lose a task of each job of upkeep; return whether there was any."""
        lost = [one.lose_task() for one in self.upkeep]
        return any(lost)

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
        for upkeep in self.upkeep:
            upkeep.die()
        for job in self.jobs:
            for task in [] if job.ended else job.tasks.values():
                task.outlives = True
                task.scheduler.after(task.random.random() * 10.0, task.kill)
            job.ended = True
