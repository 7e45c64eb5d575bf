"""Executes what rounds want done: on workers, one at a time for each lake table, or at once."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from lakeward.coordinator.effects.items import ForRound, OfRound
from lakeward.coordinator.rounds.effects import CleanUp, EffectDone, EffectFailed, OpenTable, Tell
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.report import log_end, report
from lakeward.coordinator.rounds.round import Cancelled, Round, RoundTick
from lakeward.coordinator.rounds.trace import RoundTrace
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.log_fields import with_log_fields
from lakeward.errors import LakewardError
from lakeward.model.identity import Incarnation, RoundId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.effects.work import Handlers, Work
    from lakeward.coordinator.rounds.effects import Effect
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.coordinator.workers.table_locks import TableHold, TableLocks
    from lakeward.machines.rounds import CommitRound, EndRound, FinishRoundEarly, LaunchJob, OpenRound
    from lakeward.model.spans import RoundSpan
    from lakeward.ports import Clock

_log = structlog.get_logger("lakeward.rounds")


class RoundExecutor:
    """Gives each round its events, and executes the effects that it returns. Used on the event loop only."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        clock: Clock,
        tables: Tables,
        loop: EventLoop,
        locks: TableLocks,
        fence: CommitFence,
        handlers: Handlers,
        on_span: Callable[[RoundSpan], None] | None = None,
    ) -> None:
        """Begin without rounds; `on_span` takes the spans of rounds, None where nobody wants them."""
        self._incarnation = incarnation
        self._clock = clock
        self._tables = tables
        self._loop = loop
        self._locks = locks
        self._fence = fence
        self._handlers = handlers
        self._on_span = on_span
        self._number = 0

    # --- what the machine of all tables orders ----------------------------------------------------------------

    def start(self, command: OpenRound) -> None:
        """Start a round."""
        assignment = command.assignment
        self._number += 1
        round_id = RoundId(self._incarnation, assignment.table_id, assignment.epoch, self._number)
        facts = RoundFacts(assignment, round_id, self._clock.wall_ms(), command.attempt)
        if self._on_span is not None:
            facts.trace = RoundTrace(round_id, assignment.path, facts.started_ms, self._on_span)
        one = Round(facts, self._clock, self._fence)
        table = self._tables.known(assignment.table_id, assignment.path)
        table.round, table.newest_round = one, self._number
        self._fence.begin(round_id, assignment)
        self.take(one, command)

    def pass_on(self, command: LaunchJob | FinishRoundEarly | CommitRound) -> None:
        """Pass a command on to the table's round."""
        one = self._tables.round(command.table_id)
        if one is not None:
            self.take(one, command)

    def end(self, command: EndRound) -> Round | None:
        """End a round; return it."""
        table = self._tables.get(command.table_id)
        one = None if table is None else table.round
        if table is None or one is None:
            return None
        self._fence.end(one.facts.round_id)
        effects = one.process(command)
        table.end_round()
        self.execute(one, effects)
        if one.leaves_nothing:
            self._forget(one)
        log_end(one.facts, report(one, self._clock.wall_ms(), self._clock.now()))
        return one

    def cancel_all(self) -> None:
        """Cancel every job; the service ends."""
        for one in (*self._tables.rounds, *self._tables.ended):
            self.take(one, Cancelled())

    def tick(self) -> None:
        """Let checkpoints start and expire; look for hung subtasks."""
        for one in self._tables.rounds:
            self.take(one, RoundTick())

    def find(self, round_name: str, job_attempt: int) -> Round | None:
        """Return the round whose launch of this number is the one under way; none once a later start took over."""
        return None if self._loop.superseded_by else self._tables.find_launch(round_name, job_attempt)

    @property
    def busy(self) -> bool:
        """True while jobs of ended rounds still run, or their files are being deleted."""
        return bool(self._tables.ended)

    # --- effects ----------------------------------------------------------------------------------------------

    def take(self, one: Round, event: object) -> None:
        """Give a round an event, and execute what follows."""
        if isinstance(event, EffectDone) and event.result is not None:
            complete = self._handlers.works[type(event.effect)].complete
            event = event if complete is None else replace(event, result=complete(one, event.result))
        self.execute(one, one.process(event))

    def execute(self, one: Round, effects: Iterable[Effect]) -> None:
        """Execute what a round wants done, in this order."""
        for effect in effects:
            if isinstance(effect, Tell):
                self._loop.put(OfRound(one, effect.event))
            elif (handle := self._handlers.at_once.get(type(effect))) is not None:
                handle(one, effect)
            else:
                work = self._handlers.works[type(effect)]
                if work.at_once is not None:
                    work.at_once(one, effect)
                self._loop.spawn(with_log_fields(one.facts.log_fields, partial(self._perform, one, effect, work)))

    async def _perform(self, one: Round, effect: Effect, work: Work) -> None:
        if isinstance(effect, OpenTable):
            await self._wait_for_last_checkpoint(one, work.wait_s)
        began = self._clock.now()
        try:
            async with self._hold(one, work) as held:
                began = self._clock.now()
                given_up = one.ended and not work.also_when_ended
                blocking = None if given_up else work.begin(one, effect)
                result = None if blocking is None else await self._call(held, blocking, one, work)
        except Exception as error:  # noqa: BLE001 - one table's trouble, whatever it is, stays with that table
            self._answer(one, EffectFailed(effect, error, self._clock.now() - began), work)
        else:
            self._answer(one, EffectDone(effect, result, self._clock.now() - began), work)
        if isinstance(effect, CleanUp):
            self._forget(one)

    def _hold(self, one: Round, work: Work) -> AbstractAsyncContextManager[TableHold | None]:
        if not work.purpose:
            return nullcontext()
        purpose = f"{work.purpose} of round {one.facts.round_id}"
        return self._locks.hold(one.facts.assignment.path, purpose, wait_s=work.wait_s)

    @staticmethod
    async def _call(held: TableHold | None, blocking: Callable[[], Any], one: Round, work: Work) -> object:
        make = call if held is None else held.call
        return await make(blocking, what=f"{work.what} {one.facts.assignment.path}", timeout_s=work.limit_s)

    def _answer(self, one: Round, answer: EffectDone | EffectFailed, work: Work) -> None:
        if work.answered:
            self._loop.put(ForRound(one, answer))
        elif isinstance(answer, EffectFailed):
            unexpected = None if isinstance(answer.error, LakewardError) else answer.error
            _log.warning("left for the sweep", what=work.what, reason=str(answer.error), exc_info=unexpected)

    async def _wait_for_last_checkpoint(self, one: Round, wait_s: float | None) -> None:
        """Wait for the last checkpoint of the table's previous round: this round may resume from it."""
        table = self._tables.get(one.facts.table_id)
        for earlier in () if table is None else tuple(table.ended):
            if earlier.job is None:
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await earlier.job.checkpoints.answered.wait()
            except TimeoutError:
                _log.warning(
                    "it is unknown whether a checkpoint is whole; the round does not wait for it any longer",
                    checkpoint_of=str(earlier.facts.round_id),
                )

    def _forget(self, one: Round) -> None:
        table = self._tables.get(one.facts.table_id)
        if table is not None and one in table.ended:
            table.ended.remove(one)
        self._loop.wake()
