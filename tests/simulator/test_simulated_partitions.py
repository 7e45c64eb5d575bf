"""Tables with a lake partitioning of their own, without faults: each route, both kinds of barriers, small channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.tables import TablePath
from lakeward.subtask.ports import OutputLimits
from lakeward_simulator.case import TABLE
from lakeward_simulator.cuts import wrong_in_cut, wrong_in_lake
from lakeward_simulator.partitions import ROUTES

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.rounds.checkpoints import CompletedCheckpoint
    from lakeward_simulator.case import Case

NARROW = OutputLimits(window_bytes=200, channel_bytes=300, subtask_bytes=600, gathered_bytes=1, gathered_rows=3)


def partitioned(case: Case, route: str, *, rows: int = 60) -> None:
    """Create a table of a route; four slots for its round."""
    case.world.partitioned.routes[TABLE] = route
    case.world.slots, case.world.checkpoint_s = 5, 0.7
    case.table(keyed=ROUTES[route].keyed, buckets=3, rows=rows)


def checkpoints(case: Case) -> list[CheckpointContents]:
    """Return the list that each checkpoint which completes is put into."""
    found: list[CheckpointContents] = []
    check = case.world.checks.completed

    def completed(done: CompletedCheckpoint) -> None:
        found.append(done.state)
        check(done)

    case.world.checks.completed = completed  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("route", ROUTES)
def test_every_row_is_once_in_its_partition(case: Case, route: str) -> None:
    partitioned(case, route)
    case.world.start()
    case.rest()
    files = {file.detail for one in case.world.lake.tables[TABLE].log if one.request for file in one.request.files}
    assert len(files) > 2


@pytest.mark.parametrize(("timeout_s", "unaligned"), [(0.0, True), (60.0, True), (0.0, False)])
def test_checkpoints_of_both_kinds_complete_over_narrow_channels(
    case: Case, timeout_s: float, *, unaligned: bool
) -> None:
    partitioned(case, "append", rows=600)
    world = case.world
    world.partitioned.limits, world.exchange.window_bytes = NARROW, NARROW.window_bytes
    world.partitioned.aligned_timeout_s, world.partitioned.unaligned = timeout_s, unaligned
    world.exchange.latency_s = 0.5
    found = checkpoints(case)
    world.start()
    case.rest()
    overtakes = unaligned and not timeout_s
    assert {state.unaligned for done in found for state in done.exchange} == {overtakes}
    sides = {channel.side.value for done in found for state in done.exchange for channel in state.channels}
    assert sides == ({"in", "out"} if overtakes else set())


def test_a_gang_that_loses_a_subtask_goes_on_from_its_newest_checkpoint(case: Case) -> None:
    partitioned(case, "keyed", rows=160)
    case.world.random.seed(5)  # one in three takes a checkpoint before it has read everything
    found = checkpoints(case)
    first = case.world.start()
    case.until(lambda: bool(found) and len(case.world.tasks(first)) > 1)
    case.world.tasks(first)[1].end(None)
    case.rest()
    restored = [line for line in case.world.story.lines if "launching the job again" in line]
    assert len(restored) == 1


def test_a_step_of_a_round_is_committed_from_a_cut_with_all_files_closed(case: Case) -> None:
    partitioned(case, "append", rows=160)
    case.world.commit_every = 1.0
    case.world.start()
    case.rest()
    assert len(case.commits()) > 1


def test_a_row_in_another_partition_is_noticed(case: Case) -> None:
    partitioned(case, "keyed")
    case.world.start()
    case.rest()
    world = case.world
    lake, source = world.lake.tables[TABLE], world.source.tables_by_path[TABLE]
    route = ROUTES["keyed"]
    assert list(wrong_in_lake(world, lake, source, route)) == []
    one, other = (file.path for file in lake.log[-1].request.files[:2])  # type: ignore[union-attr]
    world.lake.files[one], world.lake.files[other] = world.lake.files[other], world.lake.files[one]
    assert any("belongs to" in wrong for wrong in wrong_in_lake(world, lake, source, route))


def test_a_cut_that_lacks_rows_is_noticed(case: Case) -> None:
    partitioned(case, "append", rows=120)
    found = checkpoints(case)
    case.world.start()
    case.until(lambda: any(state.segments() for done in found for state in done.exchange))
    done = found[-1]
    source = case.world.source.tables_by_path[TABLE]
    assert wrong_in_cut(case.world, source, done) is None
    segment = next(segment for state in done.exchange for segment in state.segments())
    case.world.files.lose(segment.name)
    assert "it lacks" in (wrong_in_cut(case.world, source, done) or "")


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_no_gang_waits_for_ever_though_more_slots_are_asked_for_than_there_are(
    case: Case, slots: int, missing: int
) -> None:
    world, other = case.world, TablePath("t", "t1")
    partitioned(case, "append")
    world.partitioned.routes[other] = "keyed"
    world.source.create(other, buckets=2, keyed=True)
    world.append(other, 60)
    world.slots, world.partitioned.missing_slots = slots, missing
    first = world.start()
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, sum(job.occupied for job in first.jobs.jobs))
        return world.checks.caught_up()

    case.until(over)
    assert most <= first.jobs.slots_there
    case.rest()


@pytest.mark.parametrize("route", ["append", "keyed"])
def test_files_of_an_earlier_layout_stay_and_later_rounds_write_in_the_new_one(case: Case, route: str) -> None:
    partitioned(case, route, rows=120)
    world = case.world
    world.partitioned.evolves = True
    first = world.start()
    case.until(lambda: TABLE in world.lake.tables and bool(case.commits()))
    first.crash()
    world.append(TABLE, 60)
    world.start()
    case.rest()
    starts = {one.number: str(one.incarnation) for one in world.coordinators}
    assert {number % 2 for number in starts if starts[number] in case.commits()} == {0, 1}
    lake, source = world.lake.tables[TABLE], world.source.tables_by_path[TABLE]
    assert list(wrong_in_lake(world, lake, source, ROUTES[route])) == []
    world.partitioned.evolves = False
    assert any("belongs to" in wrong for wrong in wrong_in_lake(world, lake, source, ROUTES[route]))
