"""What the simulator found in the product, each told once as a case of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.gateway import GatewayPhase
from lakeward.machines.rounds import FinishRoundEarly
from lakeward_simulator.case import TABLE
from lakeward_simulator.scheduler import Killed

if TYPE_CHECKING:
    from lakeward.model.results import CommitRequest
    from lakeward_simulator.case import Case
    from lakeward_simulator.lake import LakeTable
    from lakeward_simulator.scheduler import Process
    from lakeward_simulator.subtask import SimTask


def test_a_commit_whose_journal_is_slow_names_no_file_that_the_next_round_swept(case: Case) -> None:
    """The source takes the table back meanwhile, and hands it out anew."""
    case.table()
    case.world.start()
    met: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        landing = TABLE in case.world.lake.tables and not case.commits() and case.step(first) == "commit"
        if service == "store" and name.startswith("write") and name.endswith("/journal") and landing and not met:
            met.append(name)
            case.world.source.restart()
            case.world.block(caller, 15.0)
        return None

    first = case.world.coordinators[0]
    case.world.before_call = before
    case.until(lambda: bool(met))
    case.rest()
    assert case.commits() == [str(first.incarnation)]


def test_adopted_files_stay_when_their_table_was_committed_and_is_created_anew(case: Case) -> None:
    case.table(rows=40)
    first = case.world.start()
    case.until(lambda: len(case.metadata) > 0 and case.step(first) == "read")
    first.crash()
    second = case.world.start()
    case.until(lambda: TABLE in case.world.lake.tables and bool(case.commits()) and case.step(second) == "idle")
    named = case.world.lake.tables[TABLE].named()
    assert any(str(first.incarnation) in file for file in named)
    case.world.source.drop(TABLE)
    case.table(rows=10)
    case.rest()
    assert named <= case.world.lake.files.keys()


def test_a_split_that_is_whole_behind_one_that_a_cut_stopped_leaves_no_files(case: Case) -> None:
    """The offsets end where the earlier split was stopped: no commit names the files of the later one."""
    case.world.max_split_rows, case.world.slots, case.world.target_rows = 6, 3, 2
    case.table(buckets=1, rows=12)
    first = case.world.start()
    table_id = case.world.source.tables_by_path[TABLE].spec.table_id

    def done() -> set[str]:
        run = first.tables.round(table_id)
        return set() if run is None or run.job is None else set(run.job.progress.results)

    def reader_of_the_first() -> list[SimTask]:
        works = ((task, task.work) for task in first.jobs.running())
        return [task for task, work in works if work is not None and work.split.split_id == "b0-0"]

    case.until(lambda: bool(reader_of_the_first()))
    reader_of_the_first()[0].freeze(5.0)
    case.until(lambda: "b0-6" in done())
    assert "b0-0" not in done()
    first.executor.pass_on(FinishRoundEarly(table_id, "asked to"))
    case.rest()


def test_files_behind_a_cut_that_a_checkpoint_still_names_go_once_that_is_dropped(case: Case) -> None:
    """The checkpoint cannot be dropped when its round has committed, so the sweep of that round spares its files."""
    case.world.max_split_rows, case.world.slots, case.world.target_rows, case.world.checkpoint_s = 24, 3, 2, 0.7
    case.table(buckets=1, rows=48)
    first = case.world.start()
    table_id = case.world.source.tables_by_path[TABLE].spec.table_id
    refused: list[str] = []

    def readers(split_id: str) -> list[SimTask]:
        works = ((task, task.work) for task in first.jobs.running())
        return [task for task, work in works if work is not None and work.split.split_id == split_id]

    def spared() -> set[str]:
        restorer = first.restorer
        return {file for file in restorer.named(table_id) if "/b0-24-" in file}

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "store" and name.startswith("list") and case.commits() and not refused:
            refused.append(f"{name} by {caller.name}")
            return "fails"
        return None

    case.until(lambda: bool(readers("b0-0")))
    readers("b0-0")[0].freeze(6.0)
    case.until(lambda: bool(case.metadata) and bool(spared()))
    files = spared()
    case.world.run(1.0)  # the commit holds more than the checkpoint, so that no round goes on from it
    first.executor.pass_on(FinishRoundEarly(table_id, "asked to"))
    case.world.before_call = before
    case.until(lambda: bool(case.commits()) and not case.metadata)
    assert refused
    assert files.isdisjoint(case.world.lake.tables[TABLE].named())
    case.rest()
    assert files.isdisjoint(case.world.lake.files)


def test_a_subtask_that_is_cut_off_while_its_round_ends_early_still_hears_that_no_checkpoint_runs(case: Case) -> None:
    """The word that its checkpoint was aborted goes with the connection; its finish would stay behind the gateway."""
    case.table(rows=40)
    first = case.world.start()
    table_id = case.world.source.tables_by_path[TABLE].spec.table_id
    case.until(lambda: any(task.gateway is GatewayPhase.CLOSED for task in first.jobs.running()))
    first.executor.pass_on(FinishRoundEarly(table_id, "asked to"))
    for connection in [*first.network.connections]:
        connection.cut()
    case.until(lambda: TABLE in case.world.lake.tables and bool(case.commits()))
    case.rest()


def test_a_commit_that_lands_while_its_successor_opens_the_table_is_not_behind_the_checkpoint(case: Case) -> None:
    """It lands between the look at the lake's head and the stamp: the checkpoint is based on what was there before."""
    case.table(buckets=1, rows=40)
    first = case.world.start()
    sent: list[tuple[LakeTable, CommitRequest]] = []
    landed: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        lake = case.world.lake
        if service == "lake" and name == "commit" and caller is first.loop:
            sent.append(lake.sent[-1])
            first.crash()
            case.world.restart_later("svc", 3.0)
            raise Killed
        if service == "lake" and name == "open table" and sent and not landed:
            landed.append(caller.name)
            lake.land(*sent[0])
        return None

    case.world.before_call = before
    case.until(lambda: bool(sent))
    assert case.metadata
    case.until(lambda: bool(landed))
    case.world.append(TABLE, 6)
    case.until(lambda: len(case.commits()) > 1)
    assert not any("goes on from a checkpoint" in line for line in case.world.story.lines)
    case.rest()


def test_a_commit_that_hangs_beyond_the_end_of_its_table_names_no_file_that_later_starts_swept(case: Case) -> None:
    """Its table is dropped at the source, so nobody opens it any more and stamps it: the sweep at a start has to."""
    case.table(rows=40)
    first = case.world.start()
    hangs: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "lake" and name == "commit" and caller is first.loop and not hangs:
            hangs.append(name)
            case.world.source.drop(TABLE)
            caller.freeze(150.0)
            case.world.scheduler.after(5.0, case.world.start)
            case.world.scheduler.after(70.0, case.world.start)
            case.world.block(caller, 0.0)
        return None

    case.world.before_call = before
    case.until(lambda: bool(hangs))
    case.until(lambda: first.end is not None)
    assert case.commits() == []
    case.rest()


def test_a_start_holds_what_a_checkpoint_needs_that_completes_between_its_looks_at_state_and_store(case: Case) -> None:
    """The state names an older snapshot of the bucket: once that is let go, the checkpoint's has to be acquired."""
    case.world.slots, case.world.read_s = 1, 4.0
    case.table(keyed=True, buckets=3, rows=60)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read")
    before_restart = len(case.metadata)

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "source" and name == "heartbeat" and caller is second.loop and not slow:
            slow.append(name)
            case.world.append(TABLE, 9)
            case.world.take_snapshots(TABLE)
            case.world.source.restart()
            case.world.block(caller, 14.0)
        return None

    slow: list[str] = []
    second = case.world.start()
    case.world.before_call = before
    case.until(lambda: len(case.metadata) > before_restart and first.end is not None)
    assert slow
    table_id = case.world.source.tables_by_path[TABLE].spec.table_id
    needed = {one.bucket: one.snapshot_id for one in second.checkpoints.needed(table_id)}
    lease_id = second.leases.held_leases.lease_id
    case.until(lambda: needed.items() <= case.world.source.leases.held().get(lease_id, {}).items())
    assert needed
    assert not second.tables.rounds
    case.rest()
