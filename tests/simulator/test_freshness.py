"""Freshness is a deadline: 500 tables of mixed size and promise, against first in, first out on the same load."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakeward.machines.rounds import Rounds
from lakeward.model.settings import ServiceSettings
from lakeward_simulator.freshness import Delivered, FirstInFirstOut, FreshnessRun, Load, SourceQueue, mixed_load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.slow

BACKLOG = partial(SourceQueue, all_due=True)


def run(
    loads: Sequence[Load],
    seconds: float,
    *,
    policy: Callable[[ServiceSettings], Rounds] = Rounds,
    rounds: int = 4,
    yield_s: float = 60.0,
) -> Delivered:
    settings = ServiceSettings(rounds=rounds, yield_s=yield_s)
    return FreshnessRun(loads, settings, policy=policy, queue=BACKLOG).run(seconds)


def test_more_promises_are_kept_than_first_in_first_out() -> None:
    """All 500 are due at once, as after an outage; 83 % of the places are needed all the time."""
    loads = mixed_load()
    ours, fifo = run(loads, 300.0), run(loads, 300.0, policy=FirstInFirstOut)
    everyone = [load.table_id for load in loads]
    assert ours.share_kept > 0.97
    assert ours.share_kept > fifo.share_kept + 0.15
    assert ours.latest_s(everyone) < 30
    assert fifo.latest_s(everyone) > 150
    assert ours.missed == 0


def test_no_table_starves_within_more_than_the_longest_promise() -> None:
    """Half of them in half of the places, until each promise is due: who was not tiered by then was passed over."""
    loads = mixed_load()[::2]
    seconds = max(load.freshness_s for load in loads) + 60.0
    ours = run(loads, seconds, rounds=2)
    everyone = [load.table_id for load in loads]
    assert [table_id for table_id in everyone if table_id not in ours.late_s] == []
    assert ours.missed == 0
    assert ours.latest_s(everyone) < 15
    assert ours.share_kept > 0.95


def test_small_tables_do_not_wait_behind_the_rounds_of_big_ones() -> None:
    """Each place has a round of ten minutes when they fall due; the big tables are done in the end all the same."""
    big = [Load(number, 3600.0, 600.0) for number in range(2)]
    small = [Load(number, 60.0, 0.5) for number in range(2, 22)]
    names = [load.table_id for load in small]
    ours = run([*big, *small], 2400.0, rounds=2)
    fifo = run([*big, *small], 2400.0, rounds=2, policy=FirstInFirstOut)
    assert ours.latest_s(names) < 10
    assert fifo.latest_s(names) > 300
    assert all(load.table_id in ours.late_s for load in big)


def test_a_slow_commit_holds_no_place() -> None:
    """One round at a time, and commits of one table take a minute: the others do not notice."""
    slow, others = Load(0, 30.0, 0.5, commit_s=60.0), [Load(number, 20.0, 0.5) for number in range(1, 11)]
    delivered = run([slow, *others], 600.0, rounds=1)
    assert delivered.latest_s([load.table_id for load in others]) <= 0
    assert len(delivered.late_s[0]) > 5
