"""How far the service is, and what ends it: a request, a failure, a later start, or a Spark that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.errors import SparkError

if TYPE_CHECKING:
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.model.settings import ServiceSettings
    from lakeward.ports import Clock, Jobs

_log = structlog.get_logger("lakeward.service")


class Life:
    """The service's life. Used on the event loop only."""

    def __init__(
        self, clock: Clock, loop: EventLoop, jobs: Jobs, persistence: StatePersistence, settings: ServiceSettings
    ) -> None:
        self.state = "starting"
        """Starting, serving, stopping or stopped."""
        self.stop_requested = False
        self.stop_timeout_s = settings.stop_timeout_s
        self.error: BaseException | None = None
        """What has failed unexpectedly."""
        self._clock = clock
        self._loop = loop
        self._jobs = jobs
        self._persistence = persistence
        self._fence_s = settings.fence_s
        self._turned_at: float | None = None
        self._jobs_gone = False
        self._end_by = float("inf")

    @property
    def is_over(self) -> bool:
        """True once a service that failed ends even if something is still pending."""
        return self._clock.now() >= self._end_by

    def request_stop(self, timeout_s: float | None) -> bool:
        """Note that the service is to end, within this time or that of the settings; return False if that was known."""
        if self.stop_requested or self.state == "stopped":
            return False
        self.stop_requested = True
        self.stop_timeout_s = self.stop_timeout_s if timeout_s is None else timeout_s
        return True

    async def check_state(self) -> None:
        """Check whether a later start has taken over: first of all after a pause of this process, else beside it."""
        now, last = self._clock.now(), self._turned_at
        if last is not None and now - last > self._fence_s:
            await self._persistence.check()
        elif now - self._persistence.checked_at > self._fence_s / 2:
            self._persistence.checked_at = now
            self._loop.spawn(self._persistence.check)
        self._turned_at = now

    def has_failed(self) -> bool:
        """Look for what makes it impossible to go on; return whether something new has to stop the service."""
        failed = self._loop.failure is not None and self.error is None
        if failed:
            self.error = self._loop.failure
            # The machine may wait for the task that failed: allow two time limits of a stop, and one for last messages.
            self._end_by = min(self._end_by, self._clock.now() + self.stop_timeout_s * 3)
        return self._has_lost_jobs(stopping=self.stop_requested or failed) or failed

    def _has_lost_jobs(self, *, stopping: bool) -> bool:
        gone = None if self._jobs_gone else self._jobs.gone()
        if gone is None:
            return False
        self._jobs_gone = True
        if stopping:
            # A signal to the whole process group also ends Spark's Java; the next start resumes from checkpoints.
            _log.warning("no job can run any more, while the service stops", reason=gone)
            return False
        _log.error("no job can run any more, the service stops", reason=gone)
        self.error = SparkError(gone)
        return True
