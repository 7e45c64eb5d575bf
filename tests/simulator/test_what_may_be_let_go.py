"""Snapshots that the simulator once called let go too early, though nobody could need them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_simulator.case import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_simulator.case import Case
    from lakeward_simulator.coordinator import Coordinator
    from lakeward_simulator.scheduler import Process


def start_while_the_source_is_away(case: Case, listing_s: float = 0.0) -> Coordinator:
    """Start again: no table of the last start can be renewed, so what it held is let go unless somebody needs it.

    Args:
        case: the world.
        listing_s: seconds that each look for checkpoints takes.
    """
    second = case.world.start()
    failed: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "source" and name == "heartbeat" and caller is second.loop and not failed:
            failed.append(name)
            return "fails"
        if service == "store" and name.startswith("list") and failed and not second.checkpoints.was_read:
            case.world.block(caller, listing_s)
        return None

    case.world.before_call = before
    case.until(lambda: bool(failed) and second.service.state == "serving")
    return second


def table_id(case: Case) -> int:
    return case.world.source.tables_by_path[TABLE].spec.table_id


def needed(case: Case, coordinator: Coordinator) -> set[int]:
    """Return the snapshots that the newest checkpoint which a coordinator heard of has still to read."""
    run = coordinator.tables.round(table_id(case))
    if run is None or run.facts.newest is None:
        return set()
    return {one.snapshot_id for one in run.facts.newest.state.enumeration().snapshots}


def test_what_a_later_checkpoint_has_read_goes_though_its_start_died_before_it_heard_of_it(case: Case) -> None:
    case.world.slots, case.world.read_s = 1, 1.6
    case.table(keyed=True, buckets=3, rows=40)
    first = case.world.start()
    storing: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        run = first.tables.round(table_id(case))
        if service == "store" and name.startswith("write") and name.endswith("/_metadata") and caller is first.loop:
            whole = run.facts.newest.state.results() if run is not None and run.facts.newest is not None else None
            if (
                whole is not None
                and run is not None
                and run.job is not None
                and len(run.job.progress.results) > len(whole)
            ):
                storing.append(name)
        return None

    def at_point(service: str, caller: Process) -> None:
        if (
            service == "store"
            and storing
            and caller is first.loop
            and storing[0].removeprefix("write ") in case.metadata
        ):
            first.crash()

    case.world.before_call, case.world.at_point = before, at_point
    case.until(lambda: first.over)
    heard = needed(case, first)
    second = start_while_the_source_is_away(case)
    left = {one.snapshot_id for one in second.checkpoints.needed(table_id(case))}
    assert left < heard
    case.rest()


def test_an_older_snapshot_of_a_bucket_that_a_round_reads_goes_with_the_last_starts_lease(case: Case) -> None:
    case.world.read_s = 1.6
    case.table(keyed=True, rows=40)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read" and not case.metadata)
    first.crash()
    case.world.append(TABLE, 9)
    case.world.take_snapshots(TABLE)
    drops: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "lease" and name == "drop":
            drops.append(case.step(second))
            return "fails" if len(drops) == 1 else None
        del caller
        return None

    case.world.before_call = before
    second = case.world.start()
    case.until(lambda: "read" in drops)
    case.rest()


def test_an_overtaken_start_lets_go_of_what_its_round_was_reading(case: Case) -> None:
    """No checkpoint needs it, and its successor does not know of the lease that it has begun meanwhile."""
    case.world.slots, case.world.read_s, case.world.checkpoint_s = 1, 3.0, 90.0
    case.table(keyed=True, buckets=3, rows=40)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read")
    slow: list[str] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service == "source" and name == "heartbeat" and caller is second.loop and not slow:
            slow.append(name)
            case.world.append(TABLE, 9)
            case.world.take_snapshots(TABLE)
            case.world.source.restart()
            case.world.block(caller, 9.0)
        return None

    second = case.world.start()
    case.world.before_call = before
    case.until(lambda: first.end is not None)
    assert slow
    case.rest()


def test_what_ran_out_and_was_cleaned_up_goes_before_it_is_known_that_a_checkpoint_needs_it(case: Case) -> None:
    case.world.read_s = 1.6
    case.table(keyed=True, rows=40)
    first = case.world.start()
    case.until(lambda: bool(needed(case, first)))
    first.crash()
    case.world.source.leases.expire_all()
    case.world.append(TABLE, 9)
    case.world.take_snapshots(TABLE)
    start_while_the_source_is_away(case, listing_s=3.0)
    case.rest()


def test_what_a_checkpoint_that_was_whole_too_late_has_still_to_read_goes_with_its_starts_lease(case: Case) -> None:
    """Its successor had read the store before, and is about to store the first checkpoint of a round begun afresh."""
    case.world.random.seed(2)  # in one of a few, the first checkpoint holds no file yet
    case.world.read_s = 3.0
    case.table(keyed=True, rows=40)
    first = case.world.start()
    case.until(lambda: case.step(first) == "read" and not case.metadata)
    drops: list[str] = []
    stored: list[int] = []

    def before(service: str, name: str, caller: Process) -> str | None:
        if service != "lease" or name != "drop" or caller is not second.loop:
            return None
        drops.append(name)
        if len(drops) > 1:  # the first one is on its way
            return None if len(stored) > 2 else "fails"
        stored.append(len(case.metadata))
        wait(caller, lambda: first.over)
        stored.append(len(case.metadata))
        case.world.append(TABLE, 9)
        case.world.take_snapshots(TABLE)
        case.world.source.restart()
        wait(caller, lambda: bool(second.checkpoints.holding))
        stored.append(len(case.metadata))
        return None

    def wait(caller: Process, seen: Callable[[], bool]) -> None:
        while not seen():
            case.world.block(caller, 0.01)

    case.world.source.away_until = case.world.scheduler.now + 5.0
    second = case.world.start()
    case.world.before_call = before
    case.until(lambda: len(stored) > 2)
    assert stored == [0, 2, 2]
    second.crash()
    case.world.append(TABLE, 9)
    case.world.take_snapshots(TABLE)
    case.world.start()  # it finds the late one, whose snapshots are gone, and reads everything again
    case.rest()
    assert any("a snapshot is gone" in line for line in case.world.story.lines)
