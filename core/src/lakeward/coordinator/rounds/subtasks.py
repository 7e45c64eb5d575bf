"""The subtasks of a round's launches: each by itself, or as a gang (`coordinator.rounds.gang`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from lakeward.errors import ProtocolError
from lakeward.machines.checkpoints.messages import SubtaskRegistered
from lakeward.machines.transport.channel import ChannelKey
from lakeward.model.exchange import RECOVERY_PHASES
from lakeward.model.results import sum_timings
from lakeward.model.status import ExchangeReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.rounds.plan import ExchangePlan, JobPlan
    from lakeward.coordinator.rounds.progress import RoundProgress
    from lakeward.coordinator.rounds.task_attempt import TaskAttempt
    from lakeward.model.events import Deploy, Register, WriterFinished
    from lakeward.model.status import SubtaskReport
    from lakeward.ports import Connection

PATIENCE_S = 15.0
"""Seconds without any slot after which that is worth a warning: a cold start of Spark's executors takes less."""
_log = structlog.get_logger("lakeward.job")


class SlotWatch:
    """The slots of one round's job. Used on the event loop only."""

    def __init__(self) -> None:
        self.asked = 0
        self.there = 0
        self._needed = 1
        self._empty_since: float | None = None
        self._warned = False

    def launched(self, asked: int, now: float, *, needed: int = 1) -> None:
        """Note a launch of `asked` subtasks: `needed` of them have to be there before any works. `now`: seconds."""
        self.asked, self._needed = asked, needed
        self.update(0, now)

    def update(self, there: int, now: float) -> None:
        """Note how many subtasks of the launch are there: registered, and neither lost nor given up. `now`: seconds."""
        self.there = there
        if there >= self._needed:
            self._empty_since, self._warned = None, False
        elif self._empty_since is None:
            self._empty_since = now

    def should_warn(self, now: float) -> bool:
        """Return True once for each time that slots were missing for `PATIENCE_S`. `now`: seconds."""
        if self._warned or self._empty_since is None or now - self._empty_since < PATIENCE_S:
            return False
        self._warned = True
        return True

    @property
    def message(self) -> str:
        """What is waited for, in words; empty while as many slots are there as are needed."""
        if self.there >= self._needed or not self.asked:
            return ""
        return f"waiting for Spark: {self.there} of {self.asked} slots"


@dataclass(frozen=True, slots=True)
class Registration:
    """A subtask that has registered and is not deployed yet."""

    key: ChannelKey
    connection: Connection
    host: str
    data_address: str

    @property
    def attempt(self) -> tuple[int, int]:
        """Its subtask and the number of its attempt."""
        return self.key.subtask, self.key.task_attempt


class Subtasks:
    """Subtasks that write what they read: each works alone, and what one of them loses is read by others."""

    ends_together = False
    """Whether the loss of one subtask ends the launch.

    Then rows may be in no file yet when every split is finished: the gang says when they are.
    """

    def __init__(self, plan: JobPlan, first_attempt: int) -> None:
        """Begin before the first launch; `first_attempt` is a number that no attempt of the round had."""
        self.plan = plan
        self.attempts: dict[int, TaskAttempt] = {}
        """The newest attempt of each subtask of this launch that is deployed."""
        self.waiting: dict[tuple[int, int], Registration] = {}
        """By subtask and attempt: those that are not deployed yet."""
        self.slots = SlotWatch()
        self._next_attempt = first_attempt
        self._left_at: float | None = None
        """When an attempt was last given up that had not said that it writes nothing more."""

    def size(self, unfinished: int, free: int) -> int:
        """Return how many subtasks a launch has, of so many slots: one for each split that is not finished."""
        return min(free, max(1, unfinished))

    def begin(self, size: int, now: float) -> None:
        """Begin a launch."""
        self.give_up_all(now)
        self.waiting.clear()
        self.slots.launched(size, now, needed=self.needed)

    def register(self, register: Register, connection: Connection, job_attempt: int) -> Registration:
        """Give a new attempt its number."""
        number = self._next_attempt
        self._next_attempt += 1
        key = ChannelKey(self.plan.round_name, job_attempt, register.subtask, number)
        registration = Registration(key, connection, register.host, register.data_address)
        self.waiting[registration.attempt] = registration
        return registration

    def registered(self, registration: Registration, now: float) -> Iterable[Any]:
        """Return what follows once a subtask has registered: it may be deployed."""
        subtask, attempt = registration.attempt
        return (SubtaskRegistered(now=now, subtask=subtask, attempt=attempt),)

    def find(self, subtask: int, attempt: int) -> TaskAttempt | None:
        """Return an attempt that is deployed and counts; None where another one counts, or none."""
        found = self.attempts.get(subtask)
        return found if found is not None and found.number == attempt else None

    def deployed(self, attempt: TaskAttempt, now: float) -> None:
        """Let a new attempt count, and the one that it replaces no more."""
        self.give_up(attempt.key.subtask, now)
        self.attempts[attempt.key.subtask] = attempt

    def give_up(self, subtask: int, now: float) -> None:
        """Let the attempt of a subtask count no more."""
        attempt = self.attempts.pop(subtask, None)
        if attempt is not None and not attempt.wrote_last:
            self._left_at = now

    def give_up_all(self, now: float) -> None:
        """Let no attempt count any more."""
        for subtask in tuple(self.attempts):
            self.give_up(subtask, now)

    def returned(self) -> None:
        """Note that each task of the launch has returned: none of them writes any more."""
        for attempt in self.attempts.values():
            attempt.wrote_last = True

    def may_write(self, now: float, fence_s: float) -> bool:
        """Return whether an attempt may still write, though Spark says that its job has ended.

        Spark says so when it has told the executors to kill the tasks of a job that has failed, or was cancelled.
        Without an answer of the coordinator, which tells those that it has given up to stop, a task writes no longer
        than for the fence time.
        """
        given_up = self._left_at is not None and now - self._left_at < fence_s
        return given_up or not all(attempt.wrote_last for attempt in self.attempts.values())

    def greet(self, registration: Registration) -> bool:
        """Return whether a subtask that has registered counts, deployed or not."""
        return registration.attempt in self.waiting or self.find(*registration.attempt) is not None

    def send_heartbeats(self, now: float, every_s: float) -> None:
        """Tell subtasks that wait for others that the coordinator is there: none does."""

    def deployment(self, deploy: Deploy) -> Deploy:
        """Return what a subtask is deployed with."""
        return deploy

    def connected(self, key: ChannelKey) -> Iterable[Any]:
        """Return what follows once a subtask has all of its channels.

        Raises:
            ProtocolError: there is no exchange.
        """
        message = f"subtask {key.subtask}: it says that it is connected, in a round without an exchange"
        raise ProtocolError(message)

    def written(self, key: ChannelKey, event: WriterFinished) -> Iterable[Any]:
        """Return what follows once a subtask has closed all files; raises as `connected`."""
        del event
        return self.connected(key)

    def lost(self, key: ChannelKey, reason: str) -> Iterable[Any] | None:
        """Return what follows from the loss of a subtask; None where its splits go to the others."""
        self.waiting.pop((key.subtask, key.task_attempt), None)
        del reason
        return None

    def restoring(self, key: ChannelKey) -> bool:
        """Return whether a subtask reads back what a checkpoint holds, so that an unreadable file is one of its."""
        del key
        return False

    def watch_slots(self, now: float, *, quiet: bool) -> None:
        """Warn once if slots are missing for long, unless it is known why."""
        self.slots.update(self.there, now)
        if self.slots.should_warn(now) and not quiet:
            _log.warning(self.slots.message, round=self.plan.round_name)

    def reports(self, now: float) -> tuple[SubtaskReport, ...]:
        """Return how far the subtasks of the present launch are."""
        return tuple(self.attempts[subtask].report(now) for subtask in sorted(self.attempts))

    @property
    def there(self) -> int:
        """How many subtasks of the launch are there."""
        return len(self.attempts)

    @property
    def needed(self) -> int:
        """How many subtasks have to be there before any of them works."""
        return 1

    @property
    def takes_checkpoints(self) -> bool:
        """Whether a checkpoint may start now."""
        return True

    @property
    def recovers(self) -> bool:
        """Whether checkpoints of this launch are taken while restored rows are still written: the first one at once."""
        return False

    def put_back(self, progress: RoundProgress, newest: CheckpointContents | None) -> RoundProgress:
        """Return the progress that the next launch goes on from: each subtask's splits came back with it."""
        del newest
        return progress

    def exchange(self, first_checkpoint_s: float | None) -> ExchangeReport | None:
        """Return what the exchange of this launch has moved, None without one."""
        planned = self.plan.exchange
        return None if planned is None else _exchange_report(planned, self.attempts.values(), first_checkpoint_s)


def _exchange_report(
    planned: ExchangePlan, attempts: Iterable[TaskAttempt], first_checkpoint_s: float | None
) -> ExchangeReport:
    """Return what the subtasks of a launch have moved between them; `attempts` has each subtask's newest.

    `first_checkpoint_s`: seconds to the completion of the launch's first checkpoint, None while it has none.
    """
    reports = (attempt.progress for attempt in attempts)
    figures = [report.exchange for report in reports if report is not None and report.exchange is not None]
    received = [one.received_bytes for one in figures]
    total = sum(received)
    return ExchangeReport(
        sent_bytes=sum(one.sent_bytes for one in figures),
        received_bytes=total,
        queued_bytes=sum(one.queued_bytes for one in figures),
        credit_wait_s=round(sum(one.credit_wait_s for one in figures), 3),
        skew=round(max(received) * len(received) / total, 2) if total else 1.0,
        first_checkpoint_s=first_checkpoint_s,
        recovery=min((one.recovery for one in figures if one.recovery), key=RECOVERY_PHASES.index, default=""),
        recovery_bytes=sum(one.recovery_bytes for one in figures),
        recovered_bytes=sum(one.recovered_bytes for one in figures),
        spill_bytes=sum(one.spill_bytes for one in figures),
        kept_spill_bytes=sum(one.kept_spill_bytes for one in figures),
        markers_missing=sum(one.markers_missing for one in figures),
        spill_places=planned.checkpoint.spill_places,
        spill_quota_bytes=planned.checkpoint.spill_quota,
        timings_s=sum_timings(one.timings_s for one in figures),
    )
