"""How one commit is settled: asked twice whether it may be sent, sent, and looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeward.coordinator.commits.committer import Committer, CommitWork
from lakeward.errors import FencedError, LakeError, OutcomeUnknownError
from lakeward.model.backoff import RetryPauses
from lakeward.model.identity import RoundId
from lakeward.model.results import CommitIds, CommitRequest
from lakeward.model.tables import TableBucket, TablePath
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import COLUMNS, PATH, incarnation

Commit = Callable[..., int]


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now=0.0)


@pytest.fixture
def commit(lake: FolderLake, clock: FakeClock, tmp_path: Path) -> Commit:
    """Commits a round without files: `commit(journal=..., may_commit=...)`; returns the snapshot id."""
    store = EmbeddedStore.create(tmp_path / "store")
    table = store.create_table(PATH, COLUMNS)
    who = incarnation()
    lake.open_table(table, who)
    lake.stamp(PATH, who)
    offsets = {TableBucket(table.table_id, None, 0): 5}

    def run(
        journal: Callable[[CommitIds], None] = lambda _: None,
        may_commit: Callable[[], None] = lambda: None,
        hurry: Callable[[], bool] = lambda: False,
    ) -> int:
        round_id = RoundId(who, table.table_id, 1, 1)
        work = CommitWork(round_id, 1, None, who, table, (), offsets, journal, may_commit, hurry)
        return Committer(EmbeddedSource(store), lake, clock, RetryPauses(1.0, 5.0)).commit(work).snapshot_id

    return run


def test_a_table_that_is_lost_while_the_journal_is_written_gets_no_commit(lake: FolderLake, commit: Commit) -> None:
    journals: list[CommitIds] = []

    def may_commit() -> None:
        if journals:
            message = "the table is no longer in hand"
            raise FencedError(message)

    with pytest.raises(FencedError, match="no longer in hand"):
        commit(journals.append, may_commit)
    head = lake.head(PATH)
    assert head is not None
    assert head.commit is None
    assert len(journals) == 1


def test_a_commit_of_unknown_outcome_that_fences_the_next_try_is_found(lake: FolderLake, commit: Commit) -> None:
    lost: list[CommitRequest] = []

    def lose(request: CommitRequest) -> None:
        if not lost:
            lost.append(request)
            message = "no answer"
            raise OutcomeUnknownError(message)

    def land_late(_: CommitIds) -> None:
        if lost:
            lake.commit(lost[0])

    lake.before_commit = lose
    assert commit(land_late) == lost[0].ids.snapshot_id
    head = lake.head(PATH)
    assert head is not None
    assert head.commit is not None
    assert head.commit.snapshot_id == lost[0].ids.snapshot_id


def test_a_lake_that_does_not_answer_is_called_again_after_pauses_that_grow(
    lake: FolderLake, clock: FakeClock, commit: Commit
) -> None:
    times: list[float] = []

    def lose(_: CommitRequest) -> None:
        times.append(clock.now())
        message = "no answer"
        raise OutcomeUnknownError(message)

    lake.before_commit = lose
    with pytest.raises(OutcomeUnknownError, match="may still land"):
        commit()
    assert times == [0.0, 0.0, 1.0, 3.0, 7.0, 12.0, 17.0, 22.0]


def test_a_pause_ends_when_there_is_a_hurry(lake: FolderLake, clock: FakeClock, commit: Commit) -> None:
    times: list[float] = []

    def lose(_: CommitRequest) -> None:
        times.append(clock.now())
        message = "no answer"
        raise OutcomeUnknownError(message)

    lake.before_commit = lose
    with pytest.raises(OutcomeUnknownError, match="may still land"):
        commit(hurry=lambda: clock.now() >= 5.0)
    assert times == [0.0, 0.0, 1.0, 3.0, 5.0, 5.0, 5.0, 5.0]


def test_a_table_that_is_lost_in_a_pause_gets_no_commit(lake: FolderLake, clock: FakeClock, commit: Commit) -> None:
    sent: list[CommitRequest] = []

    def lose(request: CommitRequest) -> None:
        sent.append(request)
        message = "no answer"
        raise OutcomeUnknownError(message)

    def may_commit() -> None:
        if clock.now() > 2.0:
            message = "the table is no longer in hand"
            raise FencedError(message)

    lake.before_commit = lose
    with pytest.raises(FencedError, match="no longer in hand"):
        commit(may_commit=may_commit)
    assert len(sent) == 3


def test_a_commit_of_unknown_outcome_is_found_once_the_lake_can_be_asked_again(
    lake: FolderLake, clock: FakeClock, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[CommitRequest] = []
    find = lake.find

    def land_without_an_answer(request: CommitRequest) -> None:
        sent.append(request)
        lake.before_commit = lambda _: None
        lake.commit(request)
        message = "no answer"
        raise OutcomeUnknownError(message)

    def find_later(path: TablePath, round_id: RoundId, step: int) -> int | None:
        if clock.now() < 3.0:
            message = "connection refused"
            raise LakeError(message)
        return find(path, round_id, step)

    lake.before_commit = land_without_an_answer
    monkeypatch.setattr(lake, "find", find_later)
    assert commit() == sent[0].ids.snapshot_id
    assert clock.now() == 3.0
