"""Rows of partitions that the source has dropped come in one split, and lie in the partitions that they name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import LakeError, SchemaMismatchError
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.partitioning import PartitionField
from lakeward.model.results import CommitOutcome
from lakeward.model.splits import LogSplit
from lakeward.model.tables import Change, TableBucket
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import FanOutLimits, SplitFanOut
from lakeward_lake_paimon.binary_row import decode_row
from lakeward_lake_paimon.bucket_function import bucket_of
from lakeward_lake_paimon.kinds import Kind
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.table import Table
from lakeward_lake_paimon.task import unpack_task
from lakeward_paimon_kit.made import SYSTEM, create_as_fluss, required
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    check_each_record_is_accounted_for,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.manifests import Entry
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

    ReadTable = Callable[[TablePath], pa.Table]

DAILY = COLUMNS.append(pa.field("day", pa.string(), nullable=False))
DAY = [Kind("STRING")]
TYPES = {"id": "BIGINT", "name": "STRING", "day": "STRING"}
LATE = 99
"""The source's id of what holds late rows."""
Row = tuple[int, int, str, str]


def late_table(*, key: bool = False, buckets: int = 2, bucket_key: tuple[str, ...] = ("id",)) -> TableSpec:
    if key:
        made = key_table(DAILY, primary_key=("id", "day"), partition_keys=("day",), buckets=buckets)
    else:
        made = log_table(DAILY, partition_keys=("day",), bucket_key=bucket_key, buckets=buckets)
    return replace(made, late_rows=True)


@dataclass
class Late:
    """Rounds at a lake of tables with late rows."""

    plugin: PaimonLakePlugin
    lake: Lake
    options: PaimonOptions
    numbers: list[int] = field(default_factory=list)

    def begin(self, table: TableSpec) -> TieringRound:
        self.numbers.append(len(self.numbers) + 1)
        return TieringRound(self.plugin, self.lake, table, incarnation(), self.numbers[-1])

    def writer(self, tiering: TieringRound, bucket: int, before: tuple[LakeFile, ...] = ()) -> SplitFanOut:
        """Open the writer of a split of late rows, as a subtask does."""
        table, task = tiering.table, tiering.task
        partitioner = self.plugin.partitioner(task, table)
        files = PartitionFiles(
            lambda partition, name, known, memory: self.plugin.partition_writer(
                task, table, partition, name, tiering.attempt, known, memory
            ),
            f"p{LATE}-b{bucket}-{len(before)}",
            partitioner,
            before,
        )
        return SplitFanOut(RowDivider(partitioner, table, bucket=bucket), files, FanOutLimits(2, 0, 1 << 20))

    def tier(self, table: TableSpec, rows: dict[int, list[Row]]) -> None:
        """Write late rows by the source's bucket, and commit them."""
        tiering = self.begin(table)
        for bucket, some in rows.items():
            writer = self.writer(tiering, bucket)
            writer.write(batch(some))
            written = writer.close()
            check_each_record_is_accounted_for(len(some), written, writer)
            tiering.files += written
        self.commit(tiering)

    def tier_own(self, table: TableSpec, day: str, bucket: int, rows: list[Row]) -> None:
        """Write rows of a partition that is there, and commit them."""
        tiering = self.begin(table)
        tiering.write(log_split(table, bucket, (day,)), [batch(rows)])
        self.commit(tiering)

    def commit(self, tiering: TieringRound) -> None:
        offsets = {TableBucket(7, LATE, 0): tiering.number}
        assert self.lake.commit(tiering.request(offsets, source_path="/offsets")) is CommitOutcome.LANDED

    @property
    def folder(self) -> Path:
        return Path(self.options.warehouse) / "shop.db" / "orders"

    def entries(self) -> list[Entry]:
        found = Table.load(LocalStorage(), str(self.folder), PATH)
        assert found is not None
        return list(found.manifests.live(found.latest).values())

    def places(self) -> set[tuple[bytes, int, int]]:
        """Return partition, bucket and count of buckets of each data file."""
        return {(*decode_row(one.partition, DAY), one.bucket, one.total_buckets) for one in self.entries()}


@pytest.fixture
def late(plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions) -> Late:
    return Late(plugin, lake, options)


def batch(rows: list[Row], start: int = 0) -> source_batch:  # type: ignore[valid-type]
    named = [{"id": one, "day": day, "name": name} for _, one, day, name in rows]
    return source_batch(DAILY, named, changes=[change for change, *_ in rows], start=start)


def appended(*rows: tuple[int, str]) -> list[Row]:
    return [(Change.APPEND, number, day, f"n{number}") for number, day in rows]


def rows_of(table: pa.Table) -> list[tuple[int, str, str]]:
    return sorted((row["id"], row["day"], row["name"]) for row in table.to_pylist())


def test_late_rows_of_a_log_table_lie_in_their_partitions_and_the_sources_buckets(
    late: Late, read_table: ReadTable
) -> None:
    late.tier(late_table(), {0: appended((1, "mon"), (2, "tue")), 1: appended((3, "mon"))})

    assert late.places() == {(b"mon", 0, 2), (b"tue", 0, 2), (b"mon", 1, 2)}
    assert rows_of(read_table(PATH)) == [(1, "mon", "n1"), (2, "tue", "n2"), (3, "mon", "n3")]
    assert not [one for one in late.folder.iterdir() if "historical" in one.name]


def test_late_rows_of_a_log_table_without_buckets_are_in_bucket_0_and_keep_their_own_as_a_column(
    late: Late, read_table: ReadTable
) -> None:
    late.tier(late_table(bucket_key=()), {1: appended((1, "mon"), (2, "tue"))})

    assert late.places() == {(b"mon", 0, -1), (b"tue", 0, -1)}
    assert read_table(PATH)["__bucket"].to_pylist() == [1, 1]


def test_each_kind_of_change_reaches_the_partition_of_its_row(late: Late, read_table: ReadTable) -> None:
    table = late_table(key=True)
    late.tier_own(table, "mon", 1, [(Change.INSERT, 1, "mon", "old"), (Change.INSERT, 2, "mon", "gone")])
    late.tier_own(table, "tue", 1, [(Change.INSERT, 1, "tue", "stays")])

    late.tier(
        table,
        {
            1: [
                (Change.UPDATE_BEFORE, 1, "mon", "old"),
                (Change.UPDATE_AFTER, 1, "mon", "new"),
                (Change.DELETE, 2, "mon", "gone"),
                (Change.INSERT, 3, "tue", "late"),
            ]
        },
    )

    assert rows_of(read_table(PATH)) == [(1, "mon", "new"), (1, "tue", "stays"), (3, "tue", "late")]
    assert {bucket for _, bucket, _ in late.places()} == {1}


def test_changes_of_late_rows_are_in_the_changelog_of_their_partitions(late: Late) -> None:
    late.tier(late_table(key=True), {0: [(Change.INSERT, 1, "mon", "a"), (Change.INSERT, 1, "tue", "b")]})

    assert {one.parent.parent.name for one in late.folder.rglob("changelog-*")} == {"day=mon", "day=tue"}


def test_later_rows_of_a_key_win_over_all_before_them(late: Late, read_table: ReadTable) -> None:
    table = late_table(key=True)
    for name in ("first", "second", "third"):
        late.tier(table, {0: [(Change.INSERT, 1, "mon", name), (Change.INSERT, 1, "tue", name)]})

    assert rows_of(read_table(PATH)) == [(1, "mon", "third"), (1, "tue", "third")]


def rescale(late: Late, number: int, **more: str) -> None:
    """Give the table another count of buckets, as the coordinator does."""
    stored = json.loads((late.folder / "schema" / "schema-0").read_bytes())
    stored |= {"id": 1, "options": stored["options"] | {"bucket": str(number)} | more}
    (late.folder / "schema" / "schema-1").write_text(json.dumps(stored), encoding="utf-8")


def fluss_bucket(number: int, buckets: int) -> int:
    return bucket_of([number], [Kind("BIGINT")], buckets)


@pytest.mark.parametrize("key", [False, True], ids=["log", "key"])
def test_late_rows_lie_by_the_count_of_buckets_that_their_partition_has(
    late: Late, read_table: ReadTable, *, key: bool
) -> None:
    """The source divides them by the count of now, and readers look by that of the partition."""
    keys = ["id", "day"] if key else ["day"]
    create_as_fluss(late.options, late_table(key=key), required(TYPES, keys))
    change = Change.INSERT if key else Change.APPEND
    olds = {bucket: [one for one in range(20) if fluss_bucket(one, 2) == bucket] for bucket in range(2)}
    for bucket, ids in olds.items():
        late.tier_own(late_table(key=key), "mon", bucket, [(change, one, "mon", "old") for one in ids])
    rescale(late, 4)

    news = {bucket: [one for one in range(20) if fluss_bucket(one, 4) == bucket] for bucket in range(4)}
    wider = late_table(key=key, buckets=4)
    late.tier(
        wider,
        {bucket: [(change, one, day, "new") for one in ids for day in ("mon", "tue")] for bucket, ids in news.items()},
    )

    places = {(b"mon", bucket, 2) for bucket in range(2)} | {(b"tue", bucket, 4) for bucket in range(4)}
    assert late.places() == places
    found = rows_of(read_table(PATH))
    assert len(found) == (40 if key else 60)
    assert {name for _, day, name in found if day == "tue" or key} == {"new"}


def test_late_rows_are_refused_where_their_bucket_needs_a_function_that_is_not_known(late: Late) -> None:
    create_as_fluss(late.options, late_table(key=True), required(TYPES, ["id", "day"]))
    late.tier_own(late_table(key=True), "mon", 0, [(Change.INSERT, 1, "mon", "old")])
    rescale(late, 4, **{"bucket-function.type": "mod"})

    with pytest.raises(SchemaMismatchError, match=r"bucket-function\.type = default, as its .*, found mod"):
        late.begin(late_table(key=True, buckets=4))


@pytest.mark.parametrize("key", [False, True], ids=["log", "key"])
def test_another_writer_goes_on_where_one_was_killed_and_no_row_is_twice(
    late: Late, read_table: ReadTable, *, key: bool
) -> None:
    change = Change.INSERT if key else Change.APPEND
    tiering = late.begin(late_table(key=key))
    killed = late.writer(tiering, 0)
    killed.write(batch([(change, 1, "mon", "old"), (change, 1, "tue", "old")]))
    before = killed.roll()
    killed.write(batch([(change, 2, "mon", "lost with the writer")], start=2))
    assert {file.rows for file in before if file.kind == "data"} == {1}

    split = LogSplit("s", TableBucket(7, LATE, 0), (), 0, 9)
    progress = SplitProgress(split, 2, before, 2, -1)
    other = late.writer(tiering, 0, progress.files)
    other.write(batch([(change, 1, "mon", "new"), (change, 2, "tue", "new")], start=2))
    tiering.files += other.close()
    late.commit(tiering)

    found = rows_of(read_table(PATH))
    old = [] if key else [(1, "mon", "old")]
    assert found == [(1, "mon", "new"), *old, (1, "tue", "old"), (2, "tue", "new")]


def test_files_of_another_layout_are_not_gone_on_from(late: Late) -> None:
    tiering = late.begin(late_table())
    writer = late.writer(tiering, 0)
    writer.write(batch(appended((1, "mon"))))
    (file,) = writer.close()
    own = replace(late_table(), lake_partition=(PartitionField.parse("name"),))

    with pytest.raises(LakeError, match="expected a file partitioned by name"):
        late.plugin.partitioner(tiering.task, own).partition_of(file)


def test_task_of_a_table_without_late_rows_says_no_counts_of_buckets(late: Late) -> None:
    create_as_fluss(late.options, late_table(key=True), required(TYPES, ["id", "day"]))
    late.tier_own(late_table(key=True), "mon", 0, [(Change.INSERT, 1, "mon", "old")])
    rescale(late, 4)

    plain = replace(late_table(key=True, buckets=4), late_rows=False)
    assert unpack_task(late.begin(plain).task).bucket_counts == {}
    counts = unpack_task(late.begin(late_table(key=True, buckets=4)).task).bucket_counts
    assert [(decode_row(row, DAY), count) for row, count in counts.items()] == [((b"mon",), 2)]


def test_system_columns_of_late_rows_are_those_of_the_source(late: Late, read_table: ReadTable) -> None:
    late.tier(late_table(key=True), {1: [(Change.INSERT, 1, "mon", "a"), (Change.INSERT, 2, "mon", "b")]})

    (first, second) = sorted(read_table(PATH).select(["id", *SYSTEM]).to_pylist(), key=lambda row: row["id"])
    assert (first["__bucket"], first["__offset"], second["__offset"]) == (1, 0, 1)
