"""Rows that do not fit, in a run: each record is in its table or a dead letter, never both, never neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.commits.letter_committer import LetterCommitter
from lakeward.model.dead_letters import path_of
from lakeward.model.tables import TablePath
from lakeward_simulator.faults import Faults
from lakeward_simulator.letters import is_unfit
from lakeward_simulator.scenario import come_to_rest
from lakeward_simulator.world import World

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.storage.round_journal import RoundJournal

PATH = TablePath("t", "t0")


def run(route: str = "") -> World:
    """Run a table with letters to its end, one service that nothing strikes."""
    world = World(1, Faults([]), story=False)
    world.keeps_letters = True
    world.commit_every = 1.0
    if route:
        world.partitioned.routes[PATH] = route
    with world.alive():
        world.source.create(PATH, buckets=2, keyed=False)
        world.append(PATH, 60)
        world.start()
        come_to_rest(world)
        for one in world.coordinators:
            one.loop.kill()
            one.loop.dispose()
    return world


@pytest.mark.parametrize("route", ["", "append", "keyed", "moving"])
def test_rows_that_do_not_fit_are_dead_letters_and_all_others_in_the_table(route: str) -> None:
    world = run(route)
    assert world.checks.failures == []
    letters = world.lake.tables[path_of(PATH)]
    rows = [row for file in letters.live() for row in world.lake.files[file]]
    log = world.source.tables_by_path[PATH].logs
    unfit = [is_unfit(key, offset) for keys in log.values() for offset, key in enumerate(keys)]
    assert len(rows) == sum(unfit) > 0


def test_letters_that_are_never_committed_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(_: LetterCommitter, table: TableSpec, journal: RoundJournal, may_commit: object) -> RoundJournal:
        del table, may_commit
        return journal

    monkeypatch.setattr(LetterCommitter, "commit", forget)
    assert any("missing" in sentence or "orphan" in sentence for sentence in run().checks.failures)
