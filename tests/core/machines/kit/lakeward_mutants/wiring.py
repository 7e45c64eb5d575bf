"""Mutants of the wiring: what driver, job and subtask pass on to a machine, or take from it. For the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.coordinator.checkpoints import contents
from lakeward.coordinator.effects.lease import LeaseProtection
from lakeward.coordinator.effects.store import Storing
from lakeward.coordinator.leases import driver
from lakeward.coordinator.rounds import messages
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.job_events import Deployable
from lakeward.coordinator.rounds.task_attempt import TaskAttempt
from lakeward.coordinator.service.housekeeping import Housekeeping
from lakeward.errors import LakewardError
from lakeward.machines.checkpoints.gateway import AbortFor
from lakeward.machines.checkpoints.messages import Declined
from lakeward.machines.transport.channel import Channel
from lakeward.model.events import NOT_READY, CheckpointAborted, CheckpointComplete, Deploy
from lakeward.subtask.checkpointing import Checkpointing
from lakeward.subtask.exchange import exchange_work
from lakeward.subtask.exchange.checkpoint_part import ExchangePart
from lakeward.subtask.exchange.exchange_work import ExchangeWork
from lakeward_mutants.changed import handle

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import pytest


# --- leases and what checkpoints need ---------------------------------------------------------------------------


def acquires_under_an_id_that_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is called although no later start could know the lease."""

    async def persist(write: Any) -> None:  # noqa: ANN401 - passed on
        try:
            await write()
        except LakewardError:
            return

    monkeypatch.setattr(driver, "_try", persist)


def ignores_another_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that was replaced may have lost the leases, and nobody asks."""
    monkeypatch.setattr(LeaseProtection, "note_coordinator", lambda *_: None)


def uses_no_copy_of_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the state file, what a checkpoint says of the lease is not looked at."""

    async def nothing(_housekeeping: object) -> None:
        return None

    monkeypatch.setattr(Housekeeping, "find_lease", nothing)


def holds_nothing_for_a_checkpoint_that_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that ends meanwhile gives up what the checkpoint may need."""
    monkeypatch.setattr(Storing, "_lease", lambda *_: None)


# --- gateways and channels --------------------------------------------------------------------------------------


def opens_for_the_end_of_any_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask's gateway: the abort of an older checkpoint opens it in the midst of a newer one."""
    original = Checkpointing.on_message

    def on_message(self: Checkpointing, message: Any) -> None:  # noqa: ANN401 - passed on
        if isinstance(message, CheckpointAborted | CheckpointComplete):
            message = msgspec.structs.replace(message, checkpoint=max(message.checkpoint, self._gateway.latest))
        original(self, message)

    monkeypatch.setattr(Checkpointing, "on_message", on_message)


def opens_the_coordinators_gateway_for_the_end_of_any_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, in front of the channel to a subtask."""

    def end(self: TaskAttempt, checkpoint: int) -> None:
        self._step(AbortFor(max(checkpoint, self.gateway.latest)))

    monkeypatch.setattr(TaskAttempt, "end_checkpoint", end)


def takes_sent_for_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut does not wait for the events that a subtask may not have."""
    monkeypatch.setattr(Channel, "acked", property(lambda self: self.sent))


def sends_a_subtask_nothing_again_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was on its way to the subtask is lost with the connection."""

    def reconnect(self: TaskAttempt, connection: Any, now: float) -> None:  # noqa: ANN401 - passed on
        self.connection, self.seen = connection, now
        self.acknowledge()

    monkeypatch.setattr(TaskAttempt, "reconnect", reconnect)


def starts_open_in_the_midst_of_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask is told nothing of the checkpoint that runs when it registers."""
    original = Checkpointing.__init__

    def init(self: Checkpointing, place: Any, deploy: Deploy, *others: Any) -> None:  # noqa: ANN401 - passed on
        original(self, place, msgspec.structs.replace(deploy, gateway_closed=None), *others)

    monkeypatch.setattr(Checkpointing, "__init__", init)


def starts_the_coordinators_gateway_open_in_the_midst_of_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, in front of the channel to the subtask."""
    original = Job._EVENTS[Deployable]

    def deploy(job: Job, event: Deployable) -> Iterable[Any]:
        return original(job, Deployable(msgspec.structs.replace(event.admit, closed_for=None)))

    handle(monkeypatch, Job._EVENTS, Deployable, deploy)


# --- the exchange -----------------------------------------------------------------------------------------------


def commits_a_cut_with_rows_in_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rows of open files keep a commit from being made."""
    monkeypatch.setattr(contents, "complete", lambda states: not any(state.open_rows for state in states))


def counts_no_missing_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter that must stay 0 stays 0."""

    def fail(self: ExchangeWork, checkpoint: int) -> None:
        missing = self._markers_missing
        original(self, checkpoint)
        self._markers_missing = missing

    original = ExchangeWork._fail_marker
    monkeypatch.setattr(ExchangeWork, "_fail_marker", fail)


def takes_a_missing_marker_for_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is declined as a checkpoint that comes too early, which counts for nothing."""
    monkeypatch.setattr(exchange_work, "MARKER_MISSING", NOT_READY)


def counts_no_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator takes every decline for one that comes too early."""
    original = messages.to_event

    def to_event(*message: Any, **when: Any) -> Any:  # noqa: ANN401 - passed on
        found = original(*message, **when)
        return msgspec.structs.replace(found, reason=NOT_READY) if isinstance(found, Declined) else found

    monkeypatch.setattr("lakeward.coordinator.rounds.round.to_event", to_event)


def forgets_what_is_held_at_the_own_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an exchange: a finish between the close and the subtask's own snapshot is in no part."""
    original = ExchangePart

    def part(checkpoint: int, progress: Any, _blocked: Any, *, close_files: bool) -> Any:  # noqa: ANN401 - passed on
        return original(checkpoint, progress, (), close_files=close_files)

    monkeypatch.setattr(exchange_work, "ExchangePart", part)


WIRING = (
    acquires_under_an_id_that_was_not_written,
    ignores_another_coordinator,
    uses_no_copy_of_the_lease,
    holds_nothing_for_a_checkpoint_that_is_being_written,
    opens_for_the_end_of_any_checkpoint,
    opens_the_coordinators_gateway_for_the_end_of_any_checkpoint,
    takes_sent_for_acknowledged,
    sends_a_subtask_nothing_again_after_a_reconnect,
    starts_open_in_the_midst_of_a_checkpoint,
    starts_the_coordinators_gateway_open_in_the_midst_of_a_checkpoint,
    commits_a_cut_with_rows_in_channels,
    counts_no_missing_marker,
    takes_a_missing_marker_for_not_ready,
    counts_no_decline,
    forgets_what_is_held_at_the_own_snapshot,
)
