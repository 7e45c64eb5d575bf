"""The spans of a round: the round, its phases, its commits and their parts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.rounds.trace import RoundTrace
from lakeward.errors import LakeError
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.settings import TableSettings
from lakeward.model.status import RoundReport
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward.model.results import CommitOutcome, CommitRequest
    from lakeward.model.spans import RoundSpan
    from lakeward_service_kit.service_world import World

PARTS = ["prepare", "commit to the lake", "register"]


def once(world: World, **options: object) -> list[RoundSpan]:
    spans: list[RoundSpan] = []
    world.once(on_span=spans.append, **options)
    return spans


def phases(spans: list[RoundSpan], of: RoundSpan) -> list[RoundSpan]:
    return [span for span in spans if span.parent == of.key and span.round_name == of.round_name]


def test_a_round_has_a_span_for_each_phase_one_after_the_other(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)

    spans = once(world)

    (whole,) = [span for span in spans if span.parent is None]
    children = phases(spans, whole)
    assert [span.name for span in children] == ["enumerate", "launch", "job", "commit"]
    assert whole.started_ms == children[0].started_ms
    assert all(before.ended_ms <= after.started_ms + 1 for before, after in pairwise(children))
    assert [span.error for span in spans] == [""] * len(spans)


def test_a_round_of_snapshots_has_the_phase_lease(world: World) -> None:
    path = world.table("keyed", key=True)
    world.load(path, 0, 10)
    world.store.snapshot(path)
    spans = once(world)
    (whole,) = [span for span in spans if span.parent is None]
    assert [span.name for span in phases(spans, whole)][:3] == ["enumerate", "lease", "launch"]


def test_the_span_of_a_round_says_what_it_did(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)

    (whole,) = [span for span in once(world) if span.parent is None]

    (report,) = world.rounds
    facts = whole.attributes
    assert (facts["lakeward.round"], facts["lakeward.table"]) == (report.round_name, "t.log")
    assert (facts["lakeward.outcome"], facts["lakeward.rows"]) == ("committed", 10)
    assert (facts["lakeward.bytes"], facts["lakeward.files"]) == (report.size_bytes, report.files)
    assert facts["lakeward.snapshot_id"] == report.snapshot_id


def test_a_commit_has_a_span_for_each_of_its_parts(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    spans = once(world)
    (commit,) = [span for span in spans if span.name == "commit"]
    assert [span.name for span in phases(spans, commit)] == PARTS


def test_a_commit_that_failed_is_an_error_and_so_is_its_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    commit, refusals = world.lake.commit, ["the lake is closed today"]

    def refuse_once(request: CommitRequest) -> CommitOutcome:
        if refusals:
            raise LakeError(refusals.pop())
        return commit(request)

    monkeypatch.setattr(world.lake, "commit", refuse_once)

    spans = once(world)

    failed, committed = [span for span in spans if span.parent is None]
    assert (failed.error, committed.error) == ("the lake is closed today", "")
    assert failed.attributes["error.type"] == LakeError.code
    assert [span.error for span in phases(spans, failed)] == ["", "", "", "the lake is closed today"]


def test_a_round_that_cannot_be_opened_failed_in_its_first_phase(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    open_table, refusals = world.lake.open_table, ["no lake"]

    def refuse_once(*words: object) -> object:
        if refusals:
            raise LakeError(refusals.pop())
        return open_table(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(world.lake, "open_table", refuse_once)

    spans = once(world)

    failed = next(span for span in spans if span.parent is None)
    assert [(span.name, span.error) for span in phases(spans, failed)] == [("enumerate", "no lake")]


def test_a_round_that_finds_nothing_new_has_no_spans(world: World) -> None:
    world.table("log")
    assert once(world) == []


def test_each_span_of_a_round_has_a_key_of_its_own(world: World) -> None:
    world.rules = lambda _path: TableSettings(max_split_rows=1)
    for name in ("a", "b"):
        world.load(world.table(name), 0, 10)
    keys = [(span.round_name, span.key) for span in once(world)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("outcome", "names"), [("idle", []), ("failed", ["enumerate", "launch", "round"])])
def test_the_spans_of_an_idle_round_are_left_out_and_those_of_another_are_not(outcome: str, names: list[str]) -> None:
    spans: list[RoundSpan] = []
    round_id = RoundId(Incarnation("svc", 1, "0123456789abcdef"), 7, 3, 2)
    trace = RoundTrace(round_id, TablePath("t", "log"), 1000, spans.append)
    trace.phase_ended("enumerate", 1500)
    report = RoundReport(str(round_id), outcome, 1000, 2000, 0, 0, 0, 0, 0, 0.0, None)
    trace.ended(report, running="launch", attempt=1)
    assert [span.name for span in spans] == names
