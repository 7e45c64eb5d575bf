"""Mutants of rounds that have one queue: what a round does with answers, and with its end. For the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.coordinator.effects.items import OfRound
from lakeward.coordinator.rounds.effects import CompleteCheckpoint, Plan
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.round import Round
from lakeward.coordinator.service.all_tables import AllTables
from lakeward.machines.launches import CancelLaunch, StoreAnswered
from lakeward.machines.rounds import CommitRound
from lakeward_mutants.changed import handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import pytest

    from lakeward.coordinator.rounds.effects import EffectDone


def commits_though_a_step_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last commit of a round does not wait for what the commit of a step adds."""

    def commit(one: Round, command: CommitRound) -> Iterable[Any]:
        pending, one._pending = one._pending, 0
        follows = [*original(one, command)]
        one._pending += pending
        return follows

    original = Round._EVENTS[CommitRound]
    handle(monkeypatch, Round._EVENTS, CommitRound, commit)


def launches_a_round_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a job is taken though its round has ended meanwhile."""

    def planned(one: Round, done: EffectDone) -> Iterable[Any]:
        over, one.ended = one.ended, False
        follows = [*original(one, done)]
        one.ended = over
        return follows

    original = Round._DONE[Plan]
    handle(monkeypatch, Round._DONE, Plan, planned)


def leaves_the_launch_of_a_round_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks read and write on, and are waited for."""

    def cancel(job: Job, command: CancelLaunch, event: object) -> Iterable[Any]:
        return () if job.launches.ended else original(job, command, event)

    original = Job._COMMANDS[CancelLaunch]
    handle(monkeypatch, Job._COMMANDS, CancelLaunch, cancel)


def loses_the_answer_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that has to know which checkpoint is the newest waits for ever."""

    def without(original: Callable[..., Iterable[Any]]) -> Callable[..., Iterable[Any]]:
        return lambda *answer: [follows for follows in original(*answer) if not isinstance(follows, StoreAnswered)]

    for handlers in (Round._DONE, Round._NOT_DONE):
        handle(monkeypatch, handlers, CompleteCheckpoint, without(handlers[CompleteCheckpoint]))


def hears_what_older_rounds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a round said last, before it was over, is taken for the next round of its table."""

    def take(self: AllTables, item: object) -> None:
        if isinstance(item, OfRound):
            self.post(item.event)
        else:
            original(self, item)

    original = AllTables._take
    monkeypatch.setattr(AllTables, "_take", take)


QUEUES = (
    commits_though_a_step_is_under_way,
    launches_a_round_that_is_over,
    leaves_the_launch_of_a_round_that_is_over,
    loses_the_answer_of_the_store,
    hears_what_older_rounds_say,
)
