"""What went wrong in systems of this kind, each told once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LakeError, SourceError, StorageError
from lakeward_simulator.case import TABLE
from lakeward_simulator.loop import SimLoop
from lakeward_simulator.scheduler import FENCE_S, Killed

if TYPE_CHECKING:
    from lakeward_simulator.case import Case
    from lakeward_simulator.scheduler import Process

ERRORS = {"source": SourceError, "lake": LakeError, "store": StorageError, "lease": SourceError}


def once(case: Case, service: str, what: str, how: str | None = None, action: object = None) -> list[str]:
    """Let the first call of that name go wrong, or do something before it; return the calls that were met."""
    met: list[str] = []

    def before(found: str, name: str, caller: Process) -> str | None:
        if found != service or not name.startswith(what) or met:
            return None
        met.append(caller.name)
        if callable(action):
            action(caller)
        return how

    case.world.before_call = before
    return met


def sleep(case: Case, caller: Process, seconds: float = 60.0) -> None:
    """Stand still in the middle of a call, while a successor starts."""
    caller.freeze(seconds)
    case.world.scheduler.after(5.0, case.world.start)
    case.world.block(caller, 0.0)


def die(case: Case, caller: Process) -> None:
    """Die in the middle of a call; a successor starts."""
    next(one for one in case.world.coordinators if one.loop is caller).crash()
    case.world.restart_later("svc", 3.0)
    raise Killed


def test_a_fenced_committer_that_wakes_up_commits_nothing(case: Case) -> None:
    case.table()
    met = once(case, "lake", "commit", action=lambda caller: sleep(case, caller))
    first = case.world.start()
    case.until(lambda: first.end is not None)
    assert met
    assert first.end is not None
    assert first.end.superseded_by == str(case.world.coordinators[1].incarnation)
    assert str(first.incarnation) not in case.commits()
    case.rest()


def test_a_committer_that_wakes_up_before_its_successor_has_committed_commits_nothing_either(case: Case) -> None:
    """No commit has landed meanwhile: the stamp alone says that another start has the table."""
    case.world.read_s = 6.0
    case.table(rows=40)

    def doze(caller: Process) -> None:
        caller.freeze(6.0)
        case.world.scheduler.after(1.0, case.world.start)
        case.world.block(caller, 0.0)

    met = once(case, "lake", "commit", action=doze)
    first = case.world.start()
    case.until(lambda: first.end is not None)
    assert met
    assert str(first.incarnation) not in case.commits()
    case.rest()


def test_a_committer_that_sleeps_between_fence_check_and_swap_loses_the_swap(case: Case) -> None:
    case.table()
    first = case.world.start()
    slept: list[str] = []

    def at_point(service: str, caller: Process) -> None:
        if service == "lake" and not slept:
            slept.append(caller.name)
            sleep(case, caller)

    case.world.at_point = at_point
    case.until(lambda: first.end is not None)
    assert slept
    assert str(first.incarnation) not in case.commits()
    case.rest()


def test_offsets_that_an_old_coordinator_rewinds_are_put_right(case: Case) -> None:
    case.table()
    first = case.world.start()
    table = case.world.source.tables_by_path[TABLE]
    records: list[tuple[str, int]] = []

    def doze(caller: Process) -> None:
        case.world.scheduler.after(20.0, partial(case.world.append, TABLE, 6))
        sleep(case, caller, 120.0)

    def at_point(service: str, caller: Process) -> None:
        if service == "source" and table.record is not None:
            records.append((caller.name, table.record.snapshot_id))

    met = once(case, "source", "complete", action=doze)
    case.world.at_point = at_point
    case.until(lambda: first.end is not None)
    newest = case.world.lake.tables[TABLE].newest
    assert newest is not None
    assert newest.request is not None
    assert newest.request.incarnation == case.world.coordinators[1].incarnation
    rewound = records.index((met[0], min(number for _, number in records)))
    assert newest.number in {number for _, number in records[:rewound]}
    case.until(lambda: table.record is not None and table.record.snapshot_id == newest.number)
    case.rest()
    assert len(set(case.commits())) == 2


@pytest.mark.parametrize("commit_every", [0.0, 1.0])
def test_a_file_is_not_committed_twice_after_a_change_of_coordinator(case: Case, commit_every: float) -> None:
    case.world.commit_every = commit_every
    case.world.slots = 1
    case.table(rows=40)
    met = once(case, "source", "complete", action=lambda caller: die(case, caller))
    case.world.start()
    case.until(lambda: bool(met))
    committed = case.world.lake.tables[TABLE].named()
    named = case.metadata
    case.until(lambda: len(case.world.coordinators) > 1)
    case.rest()
    assert committed
    assert named  # a checkpoint that names the very files was there


def test_two_coordinators_after_one_failover_tier_each_record_once(case: Case) -> None:
    case.table(keyed=True, rows=30)
    first = case.world.start()
    case.until(lambda: len(case.metadata) > 0)
    first.crash()
    case.world.start()
    case.world.scheduler.after(0.3, case.world.start)
    case.until(lambda: sum(one.running for one in case.world.coordinators) == 1)
    ended = [one.end for one in case.world.coordinators[1:] if one.end is not None]
    assert all(end.superseded_by for end in ended)
    case.rest()


def test_write_results_of_two_rounds_of_one_table_are_never_mixed(case: Case) -> None:
    case.table(rows=30)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read" and len(first.network.connections) == 1)
    old = first.jobs.running()
    for connection in first.network.connections:
        connection.stalled_until["up"] = case.world.scheduler.now + 8.0
    case.world.source.restart()  # the round is refused; the table comes back under another epoch
    case.rest()
    assert old
    for one in case.world.lake.tables[TABLE].log:
        for file in one.request.files if one.request is not None else ():
            assert one.request is not None
            assert f"/{one.request.round_id.name}/" in file.path


def test_epochs_that_start_again_at_0_after_a_restart_of_the_source_are_no_harm(case: Case) -> None:
    case.table(rows=60)
    first = case.world.start()
    case.until(lambda: len(case.metadata) > 0)
    case.world.source.restart()
    case.until(lambda: any("-0/chk-" in name for name in case.metadata))
    case.world.source.restart()
    case.world.append(TABLE, 5)
    first.crash()
    case.world.restart_later("svc", 1.0)
    case.until(lambda: len(case.world.coordinators) > 1)
    case.rest()


@pytest.mark.parametrize(
    ("service", "what"),
    [
        ("source", "table"), ("source", "buckets"), ("source", "heartbeat"), ("source", "prepare"),
        ("source", "complete"), ("source", "pending"), ("source", "verify"), ("lake", "open table"),
        ("lake", "stamp"), ("lake", "commit"), ("store", "write"), ("store", "list"), ("store", "delete"),
        ("lease", "acquire"), ("lease", "release"),
    ],
)  # fmt: skip
def test_one_transient_error_never_ends_the_service(case: Case, service: str, what: str) -> None:
    case.world.keep_alive = False
    case.table(keyed=True, rows=20)
    first = case.world.start()
    case.until(lambda: first.service.state == "serving")
    met: list[str] = []

    def before(found: str, name: str, caller: Process) -> str | None:
        if found == service and name.startswith(what) and not met and isinstance(caller, SimLoop):
            met.append(name)
            message = f"{name}: a hiccup"
            raise ERRORS[service](message)
        return None

    case.world.before_call = before
    case.until(lambda: bool(met) and case.world.checks.caught_up())
    assert first.running
    case.rest()


@pytest.mark.parametrize("how", ["fails", "unknown", "torn"])
def test_a_store_that_throttles_in_the_last_step_of_an_upload_costs_one_checkpoint(case: Case, how: str) -> None:
    case.table(rows=40)
    case.world.slots = 1
    first = case.world.start()
    met: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        del caller
        if service == "store" and name.startswith("write") and name.endswith("/_metadata") and not met:
            met.append(name)
            return how
        return None

    case.world.before_call = before
    case.until(lambda: len(case.metadata) > 0)
    first.crash()
    case.world.restart_later("svc", 2.0)
    case.until(lambda: len(case.world.coordinators) > 1)
    assert met
    case.rest()


def test_control_state_older_than_the_lake_doubles_nothing(case: Case) -> None:
    case.world.commit_every = 1.0
    case.world.slots = 1
    case.table(rows=40)
    first = case.world.start()
    case.until(lambda: len(case.metadata) > 0)
    backup = dict(case.world.files._files)  # somebody restores the folder from a backup
    case.until(lambda: len(case.commits()) > 1)
    first.crash()
    case.world.files._files = backup
    case.world.start()
    case.rest()


def test_what_a_step_committed_is_not_read_again(case: Case) -> None:
    case.world.commit_every = 1.0
    case.table(rows=60, buckets=1)
    first = case.world.start()
    case.until(lambda: TABLE in case.world.lake.tables and bool(case.commits()) and case.step(first) == "read")
    for job in first.jobs.jobs:
        job.end("the stage was lost")
    case.rest()
    assert len(case.commits()) > 1


def test_no_snapshot_is_given_up_before_the_checkpoint_that_holds_its_end_has_completed(case: Case) -> None:
    case.table(keyed=True, rows=30)
    first = case.world.start()
    held: list[int] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "store" and name.startswith("write") and name.endswith("/_metadata"):
            held.append(sum(len(buckets) for buckets in case.world.source.leases.held().values()))
        return None

    case.world.before_call = before
    case.until(lambda: bool(held))
    table = first.tables.get(1)
    assert table is not None
    assert held[0] == len(table.snapshots) == 2
    case.rest()


def test_a_step_of_unknown_outcome_is_not_taken_for_the_one_before(case: Case) -> None:
    case.world.commit_every = 1.0
    case.table(rows=60, buckets=1)
    case.world.start()
    lost: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        landed = TABLE in case.world.lake.tables and bool(case.commits())
        if service != "lake" or name != "commit" or not landed or len(lost) == 6:
            return None
        lost.append(name)
        return "unknown"

    case.world.before_call = before
    case.rest()
    assert lost


def test_a_step_that_is_due_while_no_heartbeat_is_answered_waits_for_a_renewal(case: Case) -> None:
    """It would be fenced once the newest renewal is too old, and all of the table's checkpoints dropped with it."""
    case.world.commit_every, case.world.slots, case.world.read_s, case.world.target_rows = 1.0, 1, 3.0, 2
    case.table(rows=90, buckets=1)
    first = case.world.start()
    case.until(lambda: TABLE in case.world.lake.tables and bool(case.commits()) and case.step(first) == "read")
    landed = len(case.commits())
    case.world.source.away_until = case.world.scheduler.now + FENCE_S + 12.0
    case.world.run(FENCE_S + 10.0)
    assert case.step(first) == "read"
    before = len(case.commits())
    assert before > landed  # those that were due within the fence time
    case.until(lambda: len(case.commits()) > before + 1)
    case.rest()
    rounds = {one.request.round_id for one in case.world.lake.tables[TABLE].log if one.request is not None}
    assert len(rounds) == 1


@pytest.mark.parametrize("retried", [True, False])
def test_a_round_outlives_an_executor_whose_tasks_are_tried_again_or_not(case: Case, *, retried: bool) -> None:
    """The other subtask reads what came back, in the same launch; a silent subtask would end that after 12 s."""
    case.world.slots, case.world.read_s, case.world.max_split_rows = 3, 1.6, 5
    case.table(rows=60)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read" and sum(one.work is not None for one in first.jobs.running()) == 2)
    (job,) = first.jobs.jobs
    lost = first.jobs.running()[0]
    lost_at = case.world.scheduler.now
    job.lose([lost], retried=retried)
    case.until(lambda: bool(case.commits()))
    launches = [one for one in first.jobs.jobs if one.spec.round_name == job.spec.round_name]
    assert launches == [job]
    assert (job.tasks[lost.place.subtask] is not lost) == retried, "without a slot it waits until the other one ends"
    assert case.world.scheduler.now - lost_at < 60.0
    case.rest()
