"""What surrounds a round, for tests of the round alone: a launcher that launches nothing, and its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.ports import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.events import Envelope
    from lakeward.model.jobs import JobSpec, UpkeepJob, UpkeepJobEnd


class IdleJobs:
    """A `lakeward.ports.Jobs` that runs nothing; what it was asked is in `launched` and `cancelled`."""

    slots = slots_there = 2

    def __init__(self) -> None:
        """Start with nothing asked."""
        self.launched: list[JobSpec] = []
        self.cancelled: list[JobSpec | UpkeepJob] = []

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See `Jobs`."""
        del on_done
        self.launched.append(job)

    def launch_upkeep(self, job: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None]) -> None:
        """See `Jobs`."""

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        """See `Jobs`."""
        self.cancelled.append(job)

    def gone(self) -> str | None:
        """See `Jobs`."""
        return None


class RecordingConnection(Connection):
    """A connection that leads nowhere; what went out is in `sent`."""

    def __init__(self) -> None:
        """Start open."""
        self.sent: list[Envelope] = []
        self.closed = False

    def send(self, envelope: Envelope) -> None:
        """See `Connection`."""
        self.sent.append(envelope)

    def close(self) -> None:
        """See `Connection`."""
        self.closed = True
