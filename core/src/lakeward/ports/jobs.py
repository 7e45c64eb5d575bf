"""The port of whatever runs the job of a round, and jobs of upkeep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import JobSpec, UpkeepJob, UpkeepJobEnd


class Jobs(Protocol):
    """Where jobs run: Spark, or a fake in tests."""

    @property
    def slots(self) -> int:
        """How many subtasks may run at once now, over all rounds. May block."""
        ...

    @property
    def slots_there(self) -> int:
        """How many tasks that have to start all at once can run on what is there now; at most `slots`. May block."""
        ...

    def gone(self) -> str | None:
        """Return why no job can run any more, None while jobs can run. It is asked often, and must cost little."""
        ...

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None], /) -> None:
        """Start a job and return at once.

        `on_done` is called once, from any thread, when the job has ended: with None, or with why it failed.
        """
        ...

    def launch_upkeep(self, job: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None], /) -> None:
        """Start a job of upkeep and return at once; `on_done` is called as that of `launch`.

        Each task is given one of the orders, and returns text.
        """
        ...

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        """Cancel a job; one that has ended is no error. `on_done` is still called."""
        ...
