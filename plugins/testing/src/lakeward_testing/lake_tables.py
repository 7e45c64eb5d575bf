"""Tables, batches and rounds for `LakeConformance` and for a lake's own tests."""

# ruff: noqa: S101 - a step of a test asserts what it builds on
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.model.batches import SYSTEM_FIELDS
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import CommitOutcome, CommitRequest
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import (
    NO_OFFSET,
    Change,
    TableBucket,
    TablePath,
    TableSpec,
)
from lakeward.ports import SourceBatch
from lakeward_testing.expectations import mismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.results import CommitIds, LakeFile, LakeHead, OffsetCommit
    from lakeward.model.splits import Split
    from lakeward.ports import Lake, LakeWriter

PATH = TablePath("shop", "orders")
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def log_table(schema: pa.Schema = COLUMNS, **changes: Any) -> TableSpec:  # noqa: ANN401 - fields of `TableSpec`
    """Return a log table; `changes` replace fields of the spec."""
    fields: dict[str, Any] = {
        "path": PATH,
        "table_id": 7,
        "schema_id": 1,
        "schema": schema,
        "primary_key": (),
        "partition_keys": (),
        "bucket_key": (),
        "buckets": 2,
        "freshness_s": 60.0,
    }
    return TableSpec(**(fields | changes))


def key_table(schema: pa.Schema = COLUMNS, **changes: Any) -> TableSpec:  # noqa: ANN401 - fields of `TableSpec`
    """Return a primary-key table with the key `id`; `changes` replace fields of the spec."""
    return log_table(schema, **({"primary_key": ("id",), "bucket_key": ("id",)} | changes))


def incarnation(started_ms: int = 1000, service: str = "tiering") -> Incarnation:
    """Return one start of a service."""
    return Incarnation(service, started_ms, f"{started_ms:016x}")


def source_batch(
    schema: pa.Schema,
    rows: Sequence[Mapping[str, object]],
    *,
    changes: Sequence[int] | None = None,
    start: int = 0,
    snapshot: bool = False,
) -> SourceBatch:
    """Make a batch as a source gives it: a mapping for each row, and a change, APPEND where left out.

    `schema` has the user's columns; `start` is the offset of the first row. With `snapshot`, rows are of a KV snapshot:
    offset and timestamp are -1. The batch's next offset is that of the row after the last.
    """
    count = len(rows)
    offsets = [NO_OFFSET] * count if snapshot else list(range(start, start + count))
    times = [-1000] * count if snapshot else [1_700_000_000_000_000 + offset for offset in offsets]
    columns = [pa.array([row.get(one.name) for row in rows], one.type) for one in schema]
    system = (changes or [Change.INSERT if snapshot else Change.APPEND] * count, offsets, times)
    columns += [pa.array(values, one.type) for values, one in zip(system, SYSTEM_FIELDS, strict=True)]
    names = [*schema.names, *(one.name for one in SYSTEM_FIELDS)]
    return SourceBatch(pa.RecordBatch.from_arrays(columns, names=names), start + count)


def log_split(table: TableSpec, bucket: int = 0, partition: tuple[str, ...] = (), partition_id: int = 0) -> LogSplit:
    """Return a log split of one bucket."""
    where = TableBucket(table.table_id, partition_id if partition else None, bucket)
    return LogSplit(f"log-{where}", where, partition, 0, 1_000_000)


def snapshot_split(table: TableSpec, bucket: int = 0) -> SnapshotSplit:
    """Return a snapshot split of one bucket."""
    where = TableBucket(table.table_id, None, bucket)
    return SnapshotSplit(f"snapshot-{where}", where, (), 1, 100)


def check_each_record_is_accounted_for(taken: int, files: Iterable[LakeFile], writer: LakeWriter) -> None:
    """Assert that the records which a writer took are rows of its files, or that it counts them as left out."""
    rows = sum(file.rows for file in files if file.kind == "data")
    assert rows + writer.left_out == taken, (
        f"writer: expected each of its {taken} records to be a row of a data file or counted by `left_out`, "
        f"found {taken} records: {rows} rows, {writer.left_out} left out"
    )


def head_of(lake: Lake, path: TablePath = PATH) -> LakeHead:
    """Return the head of a table that is there."""
    __tracebackhide__ = True
    head = lake.head(path)
    assert head is not None, f"head: expected the head of table {path}, which was created, found None"
    return head


def newest_commit(lake: Lake, path: TablePath = PATH) -> OffsetCommit:
    """Return the newest commit of a table that has one."""
    __tracebackhide__ = True
    commit = head_of(lake, path).commit
    assert commit is not None, f"head: expected the newest commit of table {path}, found a head without one"
    return commit


def check_landed(outcome: object, where: str = "commit") -> None:
    """Assert that a commit landed."""
    __tracebackhide__ = True
    assert outcome is CommitOutcome.LANDED, mismatch(where, CommitOutcome.LANDED, outcome)


def check_values(table: pa.Table, column: str, expected: Sequence[object], where: str) -> None:
    """Assert that a column of a table which was read back holds these values."""
    __tracebackhide__ = True
    found = table.column(column).to_pylist()
    assert found == expected, mismatch(f"{where}: column {column!r} of the table as a reader sees it", expected, found)


def check_row_count(table: pa.Table, expected: int, where: str) -> None:
    """Assert how many rows a table has which was read back."""
    __tracebackhide__ = True
    found = table.num_rows
    assert found == expected, mismatch(f"{where}: rows of the table as a reader sees it", expected, found)


@dataclass(slots=True)
class TieringRound:
    """One round against a lake, as the service would do it: open, stamp, write, commit."""

    plugin: LakePlugin
    lake: Lake
    table: TableSpec
    who: Incarnation
    number: int = 1
    attempt: int = 1
    head: LakeHead = field(init=False)
    task: bytes = field(init=False)
    files: list[LakeFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take the table over and ask for the writers' task."""
        self.lake.open_table(self.table, self.who)
        self.head = self.lake.stamp(self.table.path, self.who)
        self.task = self.lake.writer_task(self.table, self.head, self.round_id)

    @property
    def round_id(self) -> RoundId:
        """The round's id."""
        return RoundId(self.who, self.table.table_id, 1, self.number)

    def write(self, split: Split, batches: Iterable[SourceBatch]) -> tuple[LakeFile, ...]:
        """Write one split; its files are committed later."""
        writer = self.plugin.writer(self.task, self.table, split, self.attempt)
        taken = 0
        for batch in batches:
            writer.write(batch)
            taken += batch.records.num_rows
        written = writer.close()
        check_each_record_is_accounted_for(taken, written, writer)
        self.files += written
        return written

    def request(
        self,
        offsets: Mapping[TableBucket, int] | None = None,
        *,
        ids: CommitIds | None = None,
        source_path: str | None = None,
        complete_ms: int | None = None,
    ) -> CommitRequest:
        """Return the request that commits what was written."""
        return CommitRequest(
            path=self.table.path,
            table_id=self.table.table_id,
            incarnation=self.who,
            round_id=self.round_id,
            step=0,
            ids=ids or self.lake.new_ids(self.table.path),
            base_commit=None if self.head.commit is None else self.head.commit.snapshot_id,
            files=tuple(self.files),
            offsets=offsets or {TableBucket(self.table.table_id, None, 0): self.number * 100},
            source_path=source_path,
            complete_ms=complete_ms,
        )
