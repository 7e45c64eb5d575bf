"""Gangs that go on from rows of a checkpoint, and take checkpoints meanwhile; no chance faults."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward_simulator.case import TABLE
from lakeward_simulator.cells import CELLS
from lakeward_simulator.faults import DISK, ROWS, Fault

if TYPE_CHECKING:
    from lakeward_simulator.case import Case
    from lakeward_simulator.coordinator import Coordinator

ALWAYS = (True,)


def lost_with_rows(case: Case, during_recovery: tuple[bool, ...] = ALWAYS) -> Coordinator:
    """Let a gang be lost whose newest checkpoint holds rows, up to the moment in which others restore them.

    Args:
        case: the world.
        during_recovery: by start, whether checkpoints are taken meanwhile.
    """
    world, tables = case.world, case.world.partitioned
    tables.routes[TABLE] = "append"
    tables.during_recovery, tables.aligned_timeout_s, tables.memory = during_recovery, 0.0, 1
    tables.limits = replace(tables.limits, restored_bytes=1)
    world.slots, world.checkpoint_s, world.target_rows, world.read_s = 3, 0.7, 30, 1.6
    case.table(buckets=3, rows=200)
    first = world.start()
    case.until(lambda: "rows" in first.has(1) and len(world.tasks(first)) > 1)
    world.tasks(first)[1].end(None)
    case.until(lambda: first.step(1) == "recover")
    return first


def test_a_checkpoint_completes_while_rows_of_the_one_before_are_restored(case: Case) -> None:
    lost_with_rows(case)
    case.until(lambda: case.world.checks.recovered > 1)
    case.rest()
    assert case.world.disks.folders == []


def test_a_second_loss_in_the_midst_of_a_recovery_goes_on_from_a_checkpoint_that_was_taken_there(case: Case) -> None:
    first = lost_with_rows(case)
    case.until(lambda: case.world.checks.recovered > 0)
    first.jobs.slots = first.jobs.slots_there = case.world.slots = 5
    for task in case.world.tasks(first):
        task.end(None)
    case.until(lambda: any(task.is_restoring for task in case.world.tasks(first)))
    case.rest()


def test_a_start_that_takes_none_meanwhile_restores_such_a_checkpoint(case: Case) -> None:
    first = lost_with_rows(case, (False, True))
    case.until(lambda: case.world.checks.recovered > 0)
    first.crash()
    case.world.start()
    case.rest()


@pytest.mark.parametrize("kind", DISK)
def test_a_disk_that_fails_costs_the_launch_and_no_row(case: Case, kind: str) -> None:
    """A slow one costs time."""
    lost_with_rows(case)
    case.world.faults.armed.append(Fault(kind, "recover"))
    case.until(lambda: case.world.faults.hits[kind, "recover"] > 0)
    case.rest()


@pytest.mark.parametrize("kind", ROWS)
def test_rows_that_are_damaged_while_they_are_read_back_cost_their_checkpoint(case: Case, kind: str) -> None:
    """The round goes on from an older one, or begins anew."""
    lost_with_rows(case)
    case.world.faults.armed.append(Fault(kind, "recover"))
    case.until(lambda: case.world.faults.hits[kind, "recover"] > 0)
    case.rest()


def test_a_spill_that_nobody_needs_is_noticed(case: Case) -> None:
    first = lost_with_rows(case)
    case.until(lambda: bool(case.world.disks.folders))
    folder = case.world.disks.folders[0]
    folder.delete = lambda: None  # type: ignore[method-assign] # of this one alone
    with pytest.raises(AssertionError, match=r"leaves its spill|nobody needs"):
        case.rest()
    assert first.running


def test_every_fault_of_a_round_in_work_can_strike_while_rows_are_restored() -> None:
    reading = {kind for kind, step in CELLS if step == "read"}
    recovering = {kind for kind, step in CELLS if step == "recover"}
    impossible = {kind for kind in reading if "lake" in kind} | {"other service"}  # a mirrored lake table has one
    assert recovering >= reading - impossible
    assert {kind for kind in recovering if kind not in reading} == set(DISK)
