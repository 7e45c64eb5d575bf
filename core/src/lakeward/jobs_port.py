"""The port of whatever runs a round's job; `lakeward.ports` names it with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import JobSpec


class Jobs(Protocol):
    """Where a round's job runs: Spark, or a fake in tests."""

    slots: int
    """How many subtasks may run at once, over all rounds."""

    def gone(self) -> str | None:
        """Return in one sentence why no job can run any more, None while they can. Costs next to nothing."""
        ...

    def launch(self, job: JobSpec, over: Callable[[str | None], None]) -> None:
        """Start a job and return at once.

        Args:
            job: the launch.
            over: called once, from any thread, when the job is over: None, or one sentence that says why it failed.
        """
        ...

    def cancel(self, job: JobSpec) -> None:
        """Cancel a job; one that is over is no error. `over` is still called."""
        ...
