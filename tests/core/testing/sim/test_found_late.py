"""What many seeds found in the product, each told once as a case of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.coordinator.contents import Contents
from lakeward.model.checkpoints import CheckpointState
from lakeward.testing.sim.case import TABLE

if TYPE_CHECKING:
    from lakeward.testing.sim.case import Case
    from lakeward.testing.sim.coordinator import Coordinator
    from lakeward.testing.sim.scheduler import Process


def blocked(case: Case) -> bool:
    """Say whether the newest checkpoint holds a finish that its subtask was not let to send."""
    found = [info for info in case.world.store.list("svc") if info.state is CheckpointState.COMPLETE]
    if not found:
        return False
    checkpoint = case.world.store.load(found[-1].ref)
    return bool(Contents.of(checkpoint.coordinator, checkpoint.subtasks).blocked)


def has_stepped(case: Case, coordinator: Coordinator) -> bool:
    """Say whether a step of the round in work is in the lake."""
    return TABLE in case.world.lake.tables and bool(case.commits()) and case.step(coordinator) == "read"


def test_a_cut_that_leaves_out_what_a_step_has_committed_takes_nothing_back(case: Case) -> None:
    """Whoever read the split dies before it can say how far it came; the checkpoint of the step knew it."""
    case.world.commit_every = 1.0
    case.table(rows=60, buckets=1)
    first = case.world.start()
    case.until(lambda: has_stepped(case, first))
    first.service.desk.cut(case.world.source.tables_by_path[TABLE].spec.table_id)
    for job in first.jobs.jobs:
        job.end("the stage was lost")
    case.rest()
    assert len(case.commits()) > 1


def test_a_finish_to_be_sent_again_is_given_to_the_attempt_that_replaces_whoever_had_it(case: Case) -> None:
    """The newer attempt registers before anybody knows that the older one is lost."""
    case.world.latency_s, case.world.cut_rows, case.world.slots = 1.0, 3, 1
    case.table(buckets=1, rows=60)
    first = case.world.start()
    case.until(lambda: blocked(case))
    first.crash()
    second = case.world.start()
    case.until(lambda: bool(second.server.connections))
    for connection in second.server.connections:  # the finish is on its way for long
        connection.stalled_until["up"] = case.world.scheduler.now + 9.0
    case.until(lambda: any(task.gateway is not None for task in second.jobs.running()))
    for job in second.jobs.jobs:
        for task in [*job.tasks.values()]:
            job.replace(task)
    case.rest()
    assert any("goes on from a checkpoint" in line for line in case.world.story.lines)


def test_a_service_that_wakes_up_in_the_middle_of_its_own_sweep_deletes_nothing_of_its_successor(case: Case) -> None:
    case.world.read_s = 3.0
    case.table(rows=60)
    slept: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        lake = case.world.lake.tables.get(TABLE)
        if service == "store" and name.startswith("list") and lake is not None and not slept:
            stamped = next(one for one in case.world.coordinators if one.incarnation == lake.stamp)
            if stamped.loop is caller:
                slept.append(caller.name)
                caller.freeze(25.0)
                case.world.scheduler.after(2.0, case.world.start)
                case.world.block(caller, 0.0)
        return None

    case.world.before_call = before
    first = case.world.start()
    case.until(lambda: first.end is not None)
    assert slept
    assert case.step(case.world.coordinators[1]) == "read"  # the successor was at work all the while
    case.rest()


def test_a_service_that_wakes_up_before_it_retains_checkpoints_deletes_none_of_its_successor(case: Case) -> None:
    """The successor has not come to retain its own: there are more of them than are kept."""
    case.world.read_s = 3.0
    case.table(rows=60)
    slept: list[str] = []
    seen: list[int] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service != "store" or name != "list svc" or not case.metadata:
            return None
        if caller is first.loop and not slept:
            slept.append(caller.name)
            caller.freeze(25.0)
            case.world.scheduler.after(2.0, case.world.start)
            case.world.block(caller, 0.0)
            seen.append(sum(str(case.world.coordinators[1].incarnation) in one for one in case.metadata))
        own = len(case.world.coordinators) > 1 and str(case.world.coordinators[1].incarnation)
        late = caller is not first.loop and own and any(own in one for one in case.metadata)
        return "fails" if late and not seen else None

    case.world.before_call = before
    first = case.world.start()
    case.until(lambda: first.end is not None)
    assert seen
    assert seen[0] > 2
    case.rest()
