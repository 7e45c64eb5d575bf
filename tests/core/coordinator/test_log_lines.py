"""Each line of the log that belongs to a round names it, whichever thread or task writes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars, get_contextvars, merge_contextvars
from structlog.testing import capture_logs

from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakeError, OutcomeUnknownError
from lakeward.model.settings import TableSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.results import CommitOutcome, CommitRequest
    from lakeward_service_kit.service_world import World


def once(world: World) -> list[dict[str, Any]]:
    with capture_logs(processors=[merge_contextvars]) as lines:
        world.once()
    return [dict(line) for line in lines]


def named(lines: Iterable[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


def test_a_round_is_logged_when_it_is_launched_and_when_it_has_committed(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)

    lines = once(world)

    (report,) = world.rounds
    (launched,), (committed,) = named(lines, "round launched"), named(lines, "round committed")
    assert (launched["round"], launched["table"], launched["splits"]) == (report.round_name, "t.log", 2)
    assert (committed["round"], committed["table"], committed["rows"]) == (report.round_name, "t.log", 10)
    assert (committed["snapshot_id"], committed["files"]) == (report.snapshot_id, report.files)


def test_a_line_that_a_worker_thread_writes_names_the_round_that_it_works_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    commit, lost = world.lake.commit, ["the first answer is lost"]

    def lose_one(request: CommitRequest) -> CommitOutcome:
        outcome = commit(request)
        if lost:
            raise OutcomeUnknownError(lost.pop())
        return outcome

    monkeypatch.setattr(world.lake, "commit", lose_one)

    (asking,) = named(once(world), "outcome of a lake commit unknown, asking back")

    assert (asking["round"], asking["table"]) == (world.rounds[0].round_name, "t.log")


def test_lines_of_two_tables_name_their_own_rounds_only(world: World) -> None:
    paths = [world.table(name) for name in ("a", "b", "c")]  # two rounds at once: the third starts as one ends
    for path in paths:
        world.load(path, 0, 10)

    lines = once(world)

    rounds = {report.round_name: report.table for report in world.rounds}
    told = [line for line in lines if line.get("round") in rounds]
    assert {line["round"] for line in told} == set(rounds)
    assert [line for line in told if line["table"] != rounds[line["round"]]] == []


def test_a_round_that_failed_is_a_warning_with_reason_and_code(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    commit, refusals = world.lake.commit, ["the lake is closed today"]

    def refuse_once(request: CommitRequest) -> CommitOutcome:
        if refusals:
            raise LakeError(refusals.pop())
        return commit(request)

    monkeypatch.setattr(world.lake, "commit", refuse_once)

    (failed,) = named(once(world), "round failed")

    assert (failed["log_level"], failed["code"]) == ("warning", LakeError.code)
    assert failed["reason"] == "the lake is closed today"


def test_a_step_of_a_round_and_its_checkpoints_name_the_round(world: World) -> None:
    world.rules = lambda _path: TableSettings(commit_every=0.01, max_split_rows=1)
    path = world.table("log", buckets=1)
    world.load(path, 0, 4)
    with capture_logs(processors=[merge_contextvars]) as lines:
        world.once(interval_s=0.02)
    rounds = {report.round_name for report in world.rounds}
    told = [dict(line) for line in lines if line["event"] in {"checkpoint completed", "checkpoint aborted"}]
    assert {line["round"] for line in told} <= rounds


def test_a_task_that_a_round_spawns_for_somebody_else_does_not_inherit_its_fields(world: World) -> None:
    seen: list[dict[str, Any]] = []
    loop = world.service_container().loop()

    async def note() -> None:
        seen.append(get_contextvars())

    async def run() -> None:
        loop.begin()
        with bound_contextvars(round="somebody's"):
            await loop.spawn(note)

    asyncio.run(run())
    assert seen == [{}]


def test_a_blocking_call_has_the_fields_of_the_task_that_made_it() -> None:
    async def run() -> dict[str, Any]:
        with bound_contextvars(round="mine"):
            return await call(structlog.contextvars.get_contextvars, what="look")

    assert asyncio.run(run()) == {"round": "mine"}
