"""Counts of buckets that change: while a round runs, while a checkpoint waits, and where the lake refuses the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import TableBucket, TablePath
from lakeward_simulator import rescaling
from lakeward_simulator.case import TABLE
from lakeward_simulator.faults import BUCKETS
from lakeward_simulator.rescaling import Division
from lakeward_simulator.scenario import run_seed

if TYPE_CHECKING:
    from lakeward_simulator.case import Case
    from lakeward_simulator.coordinator import Coordinator
    from lakeward_simulator.scheduler import Process
    from lakeward_simulator.source import SimTable

OTHER = TablePath("t", "t1")


def divided(case: Case, *, by_key: bool, partitions: int = 0, rows: int = 60) -> SimTable:
    """Create the table, of two buckets."""
    case.world.rescaling.divisions[TABLE] = Division(by_key=by_key, partitions=partitions)
    case.table(rows=rows)
    return case.world.source.tables_by_path[TABLE]


def raise_count(case: Case, table: SimTable, count: int = 5) -> None:
    """Raise the count of a table without partitions, and write to the new buckets; older ones get no more rows."""
    case.world.rescaling.changed = True
    table.spec = rescaling.with_count(table.spec, count)
    rescaling.grow(table, None, count)
    for bucket in table.logs:
        for _ in range(0 if table.logs[bucket] else 3):
            table.write(bucket, case.world.random)


def add_partition(case: Case, table: SimTable, count: int) -> None:
    """Raise the count of new partitions, and add one of these."""
    case.world.rescaling.changed = True
    table.spec = rescaling.with_count(table.spec, count)
    case.world.add_partition(table)


def committed(case: Case) -> dict[TableBucket, int]:
    """Return the offsets of the newest commit."""
    newest = case.world.lake.tables[TABLE].newest
    return {} if newest is None or newest.request is None else dict(newest.request.offsets)


def reads(case: Case, coordinator: Coordinator) -> bool:
    """Say whether the table's round reads."""
    return case.step(coordinator) == "read"


def goes_on(case: Case) -> bool:
    """Say whether some round has gone on from a checkpoint."""
    return any("goes on from a checkpoint" in line for line in case.world.story.lines)


def refused(case: Case, coordinator: Coordinator) -> bool:
    """Say whether the table waits for a person."""
    return case.world.source.tables_by_path[TABLE].spec.table_id in coordinator.suspended


@pytest.mark.parametrize("step", ["open", "read", "commit"])
def test_rows_of_buckets_that_come_in_the_midst_of_a_round_are_tiered(case: Case, step: str) -> None:
    table = divided(case, by_key=False)
    first = case.world.start()
    case.until(lambda: case.step(first) == step)
    raise_count(case, table)
    case.rest()
    assert {bucket.bucket for bucket in committed(case)} == {0, 1, 2, 3, 4}


def test_rows_of_a_partition_with_another_count_are_tiered_where_the_lake_divides_by_no_key(case: Case) -> None:
    table = divided(case, by_key=False, partitions=1)
    first = case.world.start()
    case.until(lambda: reads(case, first))
    add_partition(case, table, 4)
    case.rest()
    assert sum(bucket.partition_id == 2 for bucket in table.logs) == 4
    assert committed(case) == {bucket: len(log) for bucket, log in table.logs.items() if log}


def test_a_checkpoint_from_before_a_change_is_gone_on_from_and_new_buckets_are_read_from_their_first_record(
    case: Case,
) -> None:
    case.world.read_s = 3.0
    table = divided(case, by_key=False)
    first = case.world.start()
    case.until(lambda: bool(case.metadata) and reads(case, first))
    first.crash()
    raise_count(case, table)
    case.world.start()
    case.rest()
    assert goes_on(case)
    log = [one.request for one in case.world.lake.tables[TABLE].log if one.request is not None]
    assert {bucket.bucket for bucket in log[0].offsets} == {0, 1}  # what the checkpoint knew of
    assert {bucket.bucket for bucket in committed(case)} == {0, 1, 2, 3, 4}


def test_a_new_bucket_of_a_mirrored_table_with_a_key_begins_with_its_snapshot(case: Case) -> None:
    case.world.partitioned.routes[TABLE] = "keyed"
    case.table(keyed=True)
    table = case.world.source.tables_by_path[TABLE]
    first = case.world.start()
    case.until(lambda: reads(case, first))
    raise_count(case, table)
    case.world.take_snapshots(TABLE)
    began: list[int] = []

    def new_snapshots() -> bool:
        run = first.tables.round(table.spec.table_id)
        splits = run.facts.context.enumeration.splits if run is not None and run.facts.context is not None else ()
        began.extend(one.bucket.bucket for one in splits if isinstance(one, SnapshotSplit) and one.bucket.bucket > 1)
        return bool(began)

    case.until(new_snapshots)
    case.rest()
    assert set(began) == {2, 3, 4}


def test_a_table_whose_count_the_lake_does_not_have_fails_alone_and_goes_on_from_its_checkpoint_once_it_is_back(
    case: Case,
) -> None:
    case.world.read_s = 3.0
    table = divided(case, by_key=True, partitions=1)
    case.world.source.create(OTHER, buckets=2, keyed=False)
    case.world.append(OTHER, 10)
    first = case.world.start()
    case.until(lambda: any("/1-" in name for name in case.metadata) and reads(case, first))
    first.crash()
    add_partition(case, table, 4)
    second = case.world.start()
    case.until(lambda: refused(case, second))
    case.world.append(OTHER, 10)
    other = case.world.source.tables_by_path[OTHER]
    case.until(lambda: other.record is not None and sum(other.record.offsets.values()) == 20)
    assert refused(case, second)
    assert not case.commits()
    assert any("/1-" in name for name in case.metadata)
    case.world.mend(table)
    case.until(lambda: bool(case.commits()))
    case.rest()
    assert goes_on(case)
    assert {bucket.partition_id for bucket in committed(case)} == {1}


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_count_that_changes_between_the_description_of_a_table_and_the_list_of_its_buckets_brings_no_row_to_the_lake(
    case: Case, partitions: int
) -> None:
    table = divided(case, by_key=True, partitions=partitions)
    met: list[str] = []

    def before(service: str, name: str, caller: Process) -> None:
        if (service, name) == ("source", "buckets") and not met:
            met.append(caller.name)
            if partitions:
                add_partition(case, table, 4)
            else:
                raise_count(case, table)

    case.world.before_call = before
    first = case.world.start()
    case.until(lambda: refused(case, first))
    assert met
    assert not case.commits()
    case.rest()


def test_a_row_that_is_divided_by_another_count_than_the_lakes_is_seen(case: Case) -> None:
    table = divided(case, by_key=True)
    first = case.world.start()
    case.until(lambda: TABLE in case.world.lake.tables)
    lake = case.world.lake.tables[TABLE]
    old, new = TableBucket(1, None, 0), TableBucket(1, None, 3)
    end = len(table.logs[old])
    raise_count(case, table)
    table.write(old, case.world.random)
    rows = [table.row(old, end - 1), table.row(old, end), table.row(new, 0)]
    wrong = list(rescaling.wrongly_divided(table, lake, rows, {}))
    assert wrong == [
        f"{old}@{end} is divided by [5], and the lake by 2",
        f"{new}@0 is divided by [5], and the lake by 2",
    ]
    first.crash()


@pytest.mark.parametrize("step", ["launch", "settle", "recover"])
@pytest.mark.parametrize("kind", BUCKETS)
def test_a_change_of_buckets_that_is_aimed_at_a_step_finds_it(kind: str, step: str) -> None:
    aim = (kind, step)
    assert any(run_seed(seed, aim=aim).hits[aim] for seed in range(20))
