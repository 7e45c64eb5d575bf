"""Another tiering service commits late, and the lake's newest offsets go back behind our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.tables import TableBucket, TablePath
from lakeward.storage.commit_records import CommitRecord, CommitRecords, stored_offsets
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.source import EmbeddedSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_service_kit.service_world import World

PATH = TablePath("t", "log")
OURS, LATE, MORE = 180, 90, 20


def bucket(world: World) -> TableBucket:
    return TableBucket(world.store.table(PATH).table_id, None, 0)


def tier(world: World) -> None:
    """Let our commit say 180."""
    world.table("log", buckets=1)
    world.load(PATH, 0, OURS)
    assert world.once().failed == ()


def commit_late(world: World) -> int:
    """Let another service, which was asleep, commit that it has tiered 90."""
    world.load(PATH, OURS, MORE)
    return world.lake.commit_elsewhere(PATH, {bucket(world): LATE})


def accept(world: World, snapshot_id: int, offsets: Mapping[TableBucket, int]) -> None:
    """Do what `lakeward tables accept` does."""
    records = CommitRecords(SmallFiles(str(world.directory / "state")), "svc")
    records.write(CommitRecord(PATH, bucket(world).table_id, snapshot_id, stored_offsets(offsets), 0, accepted=True))


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(PATH))


def test_no_row_is_tiered_twice_after_a_late_commit_of_another_service(world: World) -> None:
    tier(world)
    late = commit_late(world)
    for _ in range(2):  # and after a restart
        ((path, reason),) = world.once().failed
        assert path == PATH
        assert f"bucket {bucket(world)} went back from offset {OURS}" in reason
        assert f"to offset {LATE}, which the lake's newest commit {late}" in reason
        assert "lakeward tables accept t.log" in reason
        assert ids(world) == list(range(OURS))


def test_offsets_that_the_late_commit_leaves_in_a_file_of_the_source_are_read(world: World) -> None:
    tier(world)
    source = EmbeddedSource(world.store)
    world.load(PATH, OURS, MORE)
    world.lake.commit_elsewhere(PATH, source.prepare(source.table(PATH), {bucket(world): LATE}))
    ((_, reason),) = world.once().failed
    assert f"to offset {LATE}" in reason


def test_the_sources_record_is_not_taken_back_either(world: World) -> None:
    tier(world)
    commit_late(world)
    world.once()
    source = EmbeddedSource(world.store)
    record = source.lake_record(source.table(PATH))
    assert record is not None
    assert record.offsets == {bucket(world): OURS}


@pytest.mark.parametrize(("start", "twice"), [(LATE, range(LATE, OURS)), (OURS, range(0))])
def test_a_person_says_which_offsets_count(world: World, start: int, twice: range) -> None:
    tier(world)
    accept(world, commit_late(world), {bucket(world): start})
    assert world.once().failed == ()
    assert ids(world) == sorted([*range(OURS + MORE), *twice])
    assert world.once().failed == ()


def test_what_a_person_accepted_holds_for_that_commit_alone(world: World) -> None:
    tier(world)
    accept(world, commit_late(world), {bucket(world): LATE})
    commit_late(world)
    assert world.once().failed


def test_another_service_that_goes_forward_is_welcome(world: World) -> None:
    tier(world)
    world.load(PATH, OURS, MORE)
    world.lake.commit_elsewhere(PATH, {bucket(world): OURS + 5})
    assert world.once().failed == ()
    assert ids(world) == [*range(OURS), *range(OURS + 5, OURS + MORE)]


def test_a_commit_that_does_not_know_a_bucket_has_taken_it_back(world: World) -> None:
    tier(world)
    world.load(PATH, OURS, MORE)
    world.lake.commit_elsewhere(PATH, {})
    ((_, reason),) = world.once().failed
    assert "to offset 0" in reason


def test_a_late_commit_while_a_round_is_about_to_commit_stops_it(world: World) -> None:
    tier(world)
    world.load(PATH, OURS, MORE)
    late: list[int] = []

    def sleeper_wakes_up(_: object) -> None:
        if not late:
            late.append(world.lake.commit_elsewhere(PATH, {bucket(world): LATE}))

    world.lake.before_commit = sleeper_wakes_up
    assert world.once().failed
    assert ids(world) == list(range(OURS))
