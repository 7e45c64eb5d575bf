"""Rows that are restored through several recoveries: each piece belongs to one subtask, whatever was written of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LakewardError
from lakeward_mutants import recovery_shells as bugs
from lakeward_service_kit.exchange_world import APPEND, EVERY, KEYED, rows_of
from lakeward_service_kit.recovering_world import (
    Checkpoint,
    checkpointed,
    figures,
    killed_under_back_pressure,
    narrow,
    recovery,
    restored,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow

COUNTS = [(1, 3, 2), (3, 1, 4), (3, 2, 3)]
RECOVERED = [(0, 4000), (2, 4000), (15, 1000)]
"""Turns of the recovery before it is checkpointed, and bytes of a piece."""
CASES = [
    (counts, recovered, KEYED if (one + other) % 2 else APPEND)
    for one, counts in enumerate(COUNTS)
    for other, recovered in enumerate(RECOVERED)
]
"""Any two of them meet: all three would take twice as long and say no more."""


def keep_in_pieces(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    """Keep rows in small pieces, so that most are on disk while few are in memory. Each turn writes some of them."""
    monkeypatch.setattr("lakeward.subtask.exchange.spilled_rows.SEGMENT_BYTES", piece_bytes)


@pytest.mark.parametrize(("counts", "recovered", "table"), CASES)
def test_84_rows_that_are_restored_through_rescales_each_in_a_recovery_have_one_owner(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int, int, int],
    recovered: tuple[int, int],
    table: TableSpec,
) -> None:
    """A share of a share: each recovery ends before it has written everything. The last one is off, then on."""
    after, piece_bytes = recovered
    keep_in_pieces(monkeypatch, piece_bytes)
    assert_one_owner(tmp_path, table, counts, after)


def assert_one_owner(tmp_path: Path, table: TableSpec, counts: tuple[int, int, int], after: int) -> None:
    """Restore rows twice, each time checkpointed after some turns of the recovery, then to the end."""
    found = killed_under_back_pressure(tmp_path, table)
    going_on = found.splits
    for count in counts[:2]:
        world = restored(tmp_path, table, count, found.states)
        world.turn(after)
        checkpointed(world, 2, unaligned=False)
        assert [one.recovery for one in figures(world)] == ["draining"] * count
        world.turn()
        found = Checkpoint(world, 2)
    segments = [segment for state in found.states for segment in state.segments()]
    assert any(segment.kept is not None for segment in segments)
    for feature in (None, recovery(tmp_path)):
        last = narrow(tmp_path, table, counts[2], found.states, recovery=feature)
        last.assign(going_on)
        states = last.finish()
        assert rows_of(states) == EVERY
        assert sum(state.rows for state in states) == len(EVERY)


@pytest.mark.parametrize(
    "bug", [bugs.restores_whole_segments, bugs.counts_own_rows_alone], ids=lambda one: one.__name__
)
@pytest.mark.mutant
def test_each_known_bug_of_a_share_of_a_share_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    bug(monkeypatch)
    keep_in_pieces(monkeypatch, 1000)
    own = tmp_path / "own"  # nothing that the bug has touched is gone on with elsewhere
    own.mkdir()
    with pytest.raises((AssertionError, LakewardError)):
        assert_one_owner(own, APPEND, (3, 1, 4), 15)
