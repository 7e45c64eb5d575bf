"""What many seeds found in the product, each told once as a case of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.machines.rounds import FinishRoundEarly
from lakeward.model.checkpoints import CheckpointState
from lakeward_simulator.case import TABLE
from lakeward_simulator.scenario import run_seed
from lakeward_simulator.scheduler import FENCE_S

if TYPE_CHECKING:
    from lakeward_simulator.case import Case
    from lakeward_simulator.coordinator import Coordinator
    from lakeward_simulator.scheduler import Process


def blocked(case: Case) -> bool:
    """Say whether the newest checkpoint holds a finish that its subtask was not let to send."""
    found = [info for info in case.world.store.list("svc") if info.state is CheckpointState.COMPLETE]
    if not found:
        return False
    checkpoint = case.world.store.load(found[-1].ref)
    return bool(CheckpointContents.of(checkpoint.coordinator, checkpoint.subtasks).blocked)


def has_stepped(case: Case, coordinator: Coordinator) -> bool:
    """Say whether a step of the round in work is in the lake."""
    return TABLE in case.world.lake.tables and bool(case.commits()) and case.step(coordinator) == "read"


async def passed(seconds: float) -> None:
    """Let virtual time pass."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


def test_a_cut_that_leaves_out_what_a_step_has_committed_takes_nothing_back(case: Case) -> None:
    """Whoever read the split dies before it can say how far it came; the checkpoint of the step knew it."""
    case.world.commit_every = 1.0
    case.table(rows=60, buckets=1)
    first = case.world.start()
    case.until(lambda: has_stepped(case, first))
    first.executor.pass_on(FinishRoundEarly(case.world.source.tables_by_path[TABLE].spec.table_id, "asked to"))
    for job in first.jobs.jobs:
        job.end("the stage was lost")
    case.rest()
    assert len(case.commits()) > 1


def test_a_finish_to_be_sent_again_counts_though_whoever_had_it_is_replaced_before_it_is_sent(case: Case) -> None:
    """The newer attempt registers before anybody knows that the older one is lost."""
    case.world.latency_s, case.world.max_split_rows, case.world.slots = 1.0, 3, 1
    case.table(buckets=1, rows=60)
    first = case.world.start()
    case.until(lambda: blocked(case))
    first.crash()
    second = case.world.start()
    case.until(lambda: bool(second.network.connections))
    for connection in second.network.connections:  # the finish is on its way for long
        connection.stalled_until["up"] = case.world.scheduler.now + 9.0
    case.until(lambda: any(task.gateway is not None for task in second.jobs.running()))
    for job in second.jobs.jobs:
        for task in [*job.tasks.values()]:
            job.replace(task)
    case.rest()
    assert any("goes on from a checkpoint" in line for line in case.world.story.lines)


def test_a_finish_to_be_sent_again_counts_though_whoever_had_it_is_lost_and_no_other_attempt_registers(
    case: Case,
) -> None:
    """The slot that its next try waits for is that of a subtask which has nothing to read."""
    case.world.latency_s, case.world.max_split_rows, case.world.slots = 1.0, 3, 3
    case.table(buckets=1, rows=30)
    first = case.world.start()
    case.until(lambda: blocked(case))
    first.crash()
    second = case.world.start()
    case.until(lambda: any(task.gateway is not None for task in second.jobs.running()))
    for connection in second.network.connections:  # the finish is on its way for long
        connection.stalled_until["up"] = case.world.scheduler.now + 9.0
    case.until(lambda: sum(task.gateway is not None for task in second.jobs.running()) > 1)
    run = second.tables.round(case.world.source.tables_by_path[TABLE].spec.table_id)
    assert run is not None
    assert run.job is not None
    splits = run.job.splits
    had = {splits.holders[split_id][0] for split_id in splits.restored_withheld}
    for job in second.jobs.jobs:
        job.lose([job.tasks[subtask] for subtask in had], retried=False)
    case.rest()


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


def leased_to(case: Case, start: Coordinator) -> bool:
    """Say whether the lease server holds snapshots for a start."""
    return any(lease.startswith(f"{start.incarnation}-") for lease in case.world.source.leases.held())


def test_a_start_drops_no_earlier_lease_before_it_has_read_the_checkpoints(case: Case) -> None:
    """An overtaken start held on, and completed one; its successor, which had read the store before, knew of none."""
    case.world.read_s, case.world.lease_s = 3.0, 9.0
    case.table(keyed=True, rows=40)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read" and leased_to(case, first))
    case.world.source.away_until = case.world.scheduler.now + 30.0
    second = case.world.start()
    case.until(lambda: not leased_to(case, first))
    assert not case.metadata
    case.until(lambda: first.over)
    assert case.metadata
    assert leased_to(case, first)
    second.crash()
    cleaned: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "lease" and name == "acquire" and caller is third.loop and not cleaned:
            cleaned.append(name)
            case.world.append(TABLE, 9)
            case.world.take_snapshots(TABLE)
        return None

    third = case.world.start()
    case.world.before_call = before
    case.until(lambda: case.step(third) == "read")
    assert cleaned
    assert any("goes on from a checkpoint" in line for line in case.world.story.lines)
    case.rest()


def test_a_checkpoint_that_completes_while_a_start_looks_at_the_lake_is_held_too(case: Case) -> None:
    """A step was committed from it meanwhile, so that none of those listed before is valid any more."""
    case.world.slots, case.world.read_s, case.world.commit_every = 1, 1.6, 1.0
    case.table(keyed=True, buckets=3, rows=40)
    first = case.world.start()
    case.until(lambda: bool(case.metadata) and case.step(first) == "read" and not has_stepped(case, first))
    case.world.source.away_until = case.world.scheduler.now + 30.0
    looked: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "lake" and name == "head" and caller is second.loop and not looked:
            looked.append(name)
            case.world.block(caller, 9.0)
        return None

    second = case.world.start()
    case.world.before_call = before
    case.until(lambda: second.service.state == "serving")
    assert looked
    assert case.commits()
    assert case.metadata
    case.rest()


def test_a_late_finish_that_no_round_counts_deletes_no_file_of_the_checkpoint_that_the_next_one_goes_on_from(
    case: Case,
) -> None:
    """Its round was cut in the middle of its only split, and had nothing to commit; its task lives on for a while."""
    case.world.slots, case.world.read_s, case.world.target_rows, case.world.checkpoint_s = 1, 5.0, 2, 0.7
    case.table(keyed=True, buckets=1, rows=40)
    first = case.world.start()
    table_id = case.world.source.tables_by_path[TABLE].spec.table_id
    refused: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "store" and name.startswith("list") and caller is first.loop and not refused:
            refused.append(name)  # the checkpoint is not dropped before the next round goes on from it
            return "fails"
        return None

    case.until(lambda: bool(case.metadata) and bool(first.restorer.named(table_id)))
    files = first.restorer.named(table_id)
    case.world.run(0.5)
    case.world.before_call = before
    first.executor.pass_on(FinishRoundEarly(table_id, "asked to"))
    for job in first.jobs.jobs:
        job.end("the stage was lost")
    case.rest()
    assert refused
    assert any("goes on from a checkpoint" in line for line in case.world.story.lines)
    assert files <= case.world.lake.tables[TABLE].named()


def test_an_overtaken_start_lets_its_subtasks_write_no_more(case: Case) -> None:
    """It wakes up within its fence time, and what is left to do before it ends takes longer than that."""
    case.world.read_s, case.world.target_rows, case.world.slots = 1.0, 2, 3
    case.table(rows=90)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read")
    slow: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "store" and caller is first.loop and first.is_overtaken and not slow:
            slow.append(name)
            case.world.block(caller, 5.5)
        return None

    case.world.before_call = before
    first.loop.freeze(FENCE_S - 0.5)
    case.world.scheduler.after(1.0, case.world.start)
    case.until(lambda: first.end is not None)
    assert slow
    case.rest()


def test_a_start_that_is_overtaken_while_it_launches_a_job_launches_it_no_more(case: Case) -> None:
    """The journal of its round is on disk, and its successor may have swept that for the second time."""
    case.world.read_s = 12.0
    case.table(rows=60)
    launching: list[str] = []
    ending: list[str] = []

    def at_point(service: str, caller: Process) -> None:
        journals = [name for name in case.world.files.all if name.endswith("/journal")]
        if service == "store" and caller is first.loop and journals and not launching:
            launching.extend(journals)
            caller.freeze(FENCE_S - 0.5)
            case.world.scheduler.after(1.0, case.world.start)
            while not first.is_overtaken:
                case.world.block(caller, 0.01)

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "store" and caller is first.loop and first.is_overtaken and not ending:
            ending.append(name)
            case.world.block(caller, 1.0)
        return None

    case.world.at_point, case.world.before_call = at_point, before
    first = case.world.start()
    case.until(lambda: first.end is not None)
    assert launching
    assert ending
    case.rest()


def test_a_start_that_knows_that_it_is_overtaken_gives_its_subtasks_no_work(case: Case) -> None:
    """A write of the service's state has told it; it has slept, and waits for its own look at that state first."""
    case.world.read_s, case.world.lease_s = 12.0, 9.0
    case.table(keyed=True, rows=60)
    first = case.world.start()
    look = first.components.state.overtaken
    asleep: list[str] = []
    looked: list[bool] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        del service
        if name == "acquire" and caller is first.loop and case.step(first) == "read" and not asleep:
            asleep.append(name)
            case.world.scheduler.after(1.0, case.world.start)
            caller.freeze(FENCE_S + 1.0)
            case.world.block(caller, 0.0)
        return None

    async def look_slowly() -> str:
        while not first.is_overtaken:
            await passed(0.1)
        looked.append(any(run.job is not None and not run.job.splits.done for run in first.tables.rounds))
        for job in first.jobs.jobs:
            job.end("the stage was lost")
        await passed(1.0)
        looked.append(first.over)
        return await look()

    case.world.before_call = before
    first.components.state.overtaken = look_slowly  # type: ignore[method-assign] # a store that takes its time
    case.until(lambda: first.end is not None)
    assert looked == [True, False]
    case.rest()


def test_a_step_takes_nothing_back_of_what_an_earlier_one_has_committed(case: Case) -> None:
    """A checkpoint held the finish of a snapshot, which was lost with a connection; then the job was lost as well."""
    case.world.random.seed(3)  # one in forty loses that finish
    case.world.slots, case.world.latency_s, case.world.read_s = 3, 0.2, 2.0
    case.world.checkpoint_s, case.world.commit_every = 0.7, 0.1
    case.table(keyed=True, rows=40)
    first = case.world.start()
    case.until(lambda: bool(case.metadata))
    case.world.lose_data, case.world.overtaken_s = 2, 60.0  # the part of the checkpoint arrives before the finish
    case.until(lambda: blocked(case) and has_stepped(case, first))
    table_id = case.world.source.tables_by_path[TABLE].spec.table_id
    run = first.tables.round(table_id)
    assert run is not None
    job = run.job
    assert job is not None
    assert not job.progress.results
    for one in first.jobs.jobs:
        one.end("the stage was lost")
    newest = {*case.metadata}
    case.until(lambda: not newest.issuperset(case.metadata))
    assert not job.progress.results  # nobody has said that finish again
    case.rest()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(2010904, id="a delete of a checkpoint takes effect after a round went on from it"),
        pytest.param(2052632, id="another service takes a table over while letters wait"),
        pytest.param(2007520, id="a slow start writes its journal after a later one has committed its letters"),
        pytest.param(2016898, id="a commit with letters lands once a later round was opened"),
        pytest.param(2058389, id="a table is made anew while letters of the old one wait"),
        pytest.param(2010637, id="letters of an earlier round have the id of a round of ours"),
    ],
)
def test_what_a_hundred_thousand_seeds_found_holds(seed: int) -> None:
    assert run_seed(seed).failures == []
