from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.coordinator.rounds.context import RoundContext
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.errors import CorruptFileError, SchemaMismatchError
from lakeward.machines.splits import Enumeration
from lakeward.model.identity import RoundId
from lakeward.model.results import CommitOutcome, CommitRequest, LakeHead, OffsetCommit
from lakeward.model.tables import BucketState, TableBucket, TablePath
from lakeward.model.tiering import TableAssignment
from lakeward.observe.condition import ConditionTracker
from lakeward_service_kit.checkpoint_values import FIRST, PATH
from lakeward_service_kit.service_world import World
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import log_table


def test_a_round_that_committed_is_recorded_with_what_it_did(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    log = world.table("log")
    world.load(log, 0, 40)
    world.once()
    (record,) = world.rounds
    assert (record.table, record.outcome, record.kind, record.rows) == ("t.log", "committed", "log", 40)
    assert (record.splits, record.splits_done, record.launches, record.failovers, record.code) == (2, 2, 1, 0, "")
    assert (sum(record.offsets.values()), record.end_offset) == (40, 40)
    assert record.snapshot_id is not None
    assert {"enumerate", "launch", "job", "commit"} <= record.timings_s.keys()


def test_a_round_from_snapshots_says_so_and_one_without_rows_is_not_recorded(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    keyed = world.table("keyed", key=True)
    world.load(keyed, 0, 40, "insert")
    world.store.snapshot(keyed)
    world.once()
    world.once()
    assert [(record.kind, record.outcome) for record in world.rounds] == [("snapshots", "committed")]
    assert "lease" in world.rounds[0].timings_s


def test_a_committed_round_records_up_to_when_the_lake_is_complete_and_what_was_promised(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    log = world.table("log")
    world.load(log, 0, 40)
    world.once()
    (record,) = world.rounds
    assert (record.complete_ms, record.freshness_s) == (record.started_ms, 0.2)
    assert complete_in_lake(world, log) == record.started_ms


def test_a_round_that_leaves_rows_which_it_knew_of_does_not_say_that_the_lake_is_complete(tmp_path: Path) -> None:
    """Those that a table got after its newest snapshot are left to the next round."""
    world = World.create(tmp_path)
    keyed = world.table("keyed", key=True, buckets=1)
    world.load(keyed, 0, 40, "insert")
    world.store.snapshot(keyed)
    world.load(keyed, 40, 5, "insert")
    in_lake: list[int | None] = []
    lake = FolderLake(world.lake.root, after_commit=lambda request: in_lake.append(request.complete_ms))
    world.once(lake=lake)
    first, second = world.rounds
    assert in_lake == [None, second.started_ms]
    assert (first.kind, first.complete_ms) == ("snapshots", None)
    assert (second.kind, second.complete_ms) == ("log", second.started_ms)


@pytest.mark.parametrize(("offset", "complete_ms"), [(9, 5_000), (10, 8_000)])
def test_a_commit_that_leaves_rows_says_up_to_when_the_one_before_had_completed_the_lake(
    offset: int, complete_ms: int
) -> None:
    bucket = TableBucket(7, None, 0)
    commit = OffsetCommit(5, {bucket: 4}, None, FIRST, "1-1-1", 1, 0, complete_ms=5_000)
    head = LakeHead(PATH, 7, "w", 5, FIRST, commit, commit)
    table, state = log_table(path=PATH, table_id=7), BucketState(bucket, (), 0, 10, None)
    facts = RoundFacts(TableAssignment(PATH, 7, 3, 0, 1.0), RoundId(FIRST, 7, 3, 2), started_ms=8_000)
    facts.start_from(RoundContext(table, head, {bucket: 4}, (state,), Enumeration((), {bucket: 4}, (), behind=False)))
    assert facts.complete_with({bucket: offset}) == complete_ms


def complete_in_lake(world: World, path: TablePath) -> int | None:
    head = world.lake.head(path)
    assert head is not None
    assert head.commit is not None
    return head.commit.complete_ms


class ClosedLake(FolderLake):
    """A lake that refuses every commit."""

    def commit(self, request: CommitRequest) -> CommitOutcome:
        message = f"{request.path}: does not fit"
        raise SchemaMismatchError(message)


def test_a_table_is_reported_as_never_tiered_until_its_first_commit(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    log, closed, never = world.table("log"), ClosedLake(world.lake.root), []
    for number, lake in enumerate((closed, world.lake, closed)):
        world.load(log, 40 * number, 40)
        world.once(lake=lake)
        never.append(world.reports[-1].tables[0].never_tiered)
    assert never == [True, False, False]


def test_a_round_that_failed_is_recorded_with_the_errors_code(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    log = world.table("log", buckets=1)
    world.load(log, 0, 40)
    world.once()
    world.load(log, 40, 5)
    world.store.trim_log(log, 0, 43)
    assert world.once().failed
    last = world.rounds[-1]
    assert (last.outcome, last.code, last.snapshot_id, last.end_offset) == ("failed", "LW-402", None, None)
    assert (last.complete_ms, last.freshness_s) == (None, 0.2)
    assert "cleaned from the log" in last.reason
    (table,) = world.reports[-1].tables
    assert (table.code, table.failure) == (last.code, last.reason)


def damage_a_segment(world: World) -> Path:
    """Flip a byte of the only file of the source's log; return the file."""
    (segment,) = (world.store.root / "log").rglob("*.arrow")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(bytes(content))
    return segment


def test_a_round_that_failed_by_its_splits_is_recorded_with_the_code_of_their_error(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    world.load(world.table("log", buckets=1), 0, 40)
    damage_a_segment(world)
    assert world.once().failed
    (record,) = world.rounds
    assert (record.outcome, record.code) == ("failed", CorruptFileError.code)
    assert [report.code for report in world.rounds] == [CorruptFileError.code]


def test_a_table_with_a_damaged_segment_is_shown_as_suspended_after_once(tmp_path: Path) -> None:
    """It is read once more, as in a service that goes on, and the last report says what waits for a person."""
    world = World.create(tmp_path)
    world.load(world.table("log", buckets=1), 0, 40)
    segment = damage_a_segment(world)
    assert world.once().failed
    (table,) = ConditionTracker(None).describe(world.reports[-1], ()).tables
    assert table.condition is not None
    assert table.condition.status == "suspended"
    assert str(segment) in table.condition.message
    assert "offset" in table.condition.message
    assert len(world.rounds) == 1


def test_a_table_that_the_lake_refuses_for_good_is_shown_as_suspended_after_once(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    world.load(world.table("log"), 0, 40)
    world.once(lake=ClosedLake(world.lake.root))
    (table,) = world.reports[-1].tables
    assert (table.status, "does not fit" in table.message) == ("suspended", True)
