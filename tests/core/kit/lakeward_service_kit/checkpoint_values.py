"""Checkpoints to test stores with, and checks: a round of two buckets, half read by two subtasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakeward.model.checkpoints import (
    BlockedEvent,
    CheckpointRef,
    LeaseCopy,
    Origin,
    PartFile,
    RoundSnapshot,
    SplitProgress,
    SubtaskSnapshot,
)
from lakeward.model.exchange import ChannelState, ExchangeState, OpenRows, Segment, Side
from lakeward.model.identity import Incarnation
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket, TablePath
from lakeward_testing.expectations import mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.model.checkpoints import CheckpointState
    from lakeward.ports import CheckpointStore
    from lakeward.storage.small_files import SmallFiles

One = TypeVar("One")
SERVICE = "svc"
FIRST = Incarnation(SERVICE, 1000, "00000000000000aa")
SECOND = Incarnation(SERVICE, 2000, "00000000000000bb")
THIRD = Incarnation(SERVICE, 3000, "00000000000000cc")
PATH = TablePath("shop", "orders")
BUCKETS = (TableBucket(7, None, 0), TableBucket(7, 3, 1))
LOG = LogSplit("7-0-log-100", BUCKETS[0], (), 100, 900)
SNAPSHOT = SnapshotSplit("7-3-1-snapshot-5", BUCKETS[1], ("emea",), 5, 4000)
LEASE = LeaseCopy("server", f"{FIRST}-1", b"\x00lease\xff")


def reference(number: int = 1, start: Incarnation = FIRST, table_id: int = 7, epoch: int = 3) -> CheckpointRef:
    """Name a checkpoint."""
    return CheckpointRef(start.service, str(start), table_id, epoch, number)


def round_snapshot(ref: CheckpointRef) -> RoundSnapshot:
    """Make the coordinator's part of a checkpoint."""
    return RoundSnapshot(
        incarnation=ref.incarnation,
        number=1,
        path=PATH,
        table_id=ref.table_id,
        epoch=ref.epoch,
        schema_id=1,
        base_snapshot=2**62,
        base_commit=None,
        step=2,
        splits=(LOG, SNAPSHOT),
        before=((BUCKETS[0], 100), (BUCKETS[1], 0)),
        behind=True,
        finished=(_result("7-0-log-0", rows=100),),
        committed=("w/a.parquet", "w/b.parquet"),
        progress=(SplitProgress(LOG, 250, (_file(),), 150, 1_700_000_000_000, {"read": 0.25}),),
    )


def subtask_snapshot(subtask: int = 0, attempt: int = 1) -> SubtaskSnapshot:
    """Make a subtask's part."""
    blocked = BlockedEvent(Origin(1, subtask, attempt, 4), _result(LOG.split_id, rows=800))
    progress = SplitProgress(SNAPSHOT, 1234, (_file(), _file()), 1234, -1)
    return SubtaskSnapshot(subtask, attempt, (progress,), (blocked,))


@dataclass(frozen=True, slots=True)
class Written:
    """What was put into a store. `size_bytes` is what `complete` gave back."""

    ref: CheckpointRef
    parts: tuple[PartFile, ...]
    size_bytes: int


def write_parts(store: CheckpointStore, ref: CheckpointRef, subtasks: int = 2) -> tuple[PartFile, ...]:
    """Write the parts of a checkpoint, as subtasks do."""
    return tuple(store.write_part(ref, subtask_snapshot(number)) for number in range(subtasks))


def write_checkpoint(
    store: CheckpointStore, ref: CheckpointRef, subtasks: int = 2, lease: LeaseCopy | None = LEASE
) -> Written:
    """Write a whole checkpoint."""
    parts = write_parts(store, ref, subtasks)
    return Written(ref, parts, store.complete(ref, round_snapshot(ref), parts, lease))


def batches(*counts: int) -> tuple[pa.RecordBatch, ...]:
    """Make batches of so many rows each."""
    return tuple(
        pa.record_batch(
            {"id": pa.array(range(count), pa.int64()), "name": pa.array([f"name {number}"] * count, pa.string())}
        )
        for number, count in enumerate(counts)
    )


def write_segment(store: CheckpointStore, ref: CheckpointRef, n: int = 1) -> Segment:
    """Write rows beside a checkpoint, as its subtask 0 does."""
    return store.write_segment(ref, f"{ref.number}-0-1-{n}.arrow", batches(3, 2))


def exchange_snapshot(*segments: Segment) -> SubtaskSnapshot:
    """Make the part of a subtask of an exchange: the first segment is of an open file, the others of a channel."""
    state = ExchangeState(
        subtask=0,
        subtasks=2,
        files=(_file(),),
        rows=12,
        left_out=1,
        open_rows=tuple(OpenRows(b"\x01emea", (segment,)) for segment in segments[:1]),
        channels=tuple(ChannelState(1, 0, Side.IN, segment) for segment in segments[1:]),
        unaligned=True,
        blocked_s=0.5,
    )
    return SubtaskSnapshot(0, 1, (), (), state)


def write_exchange(store: CheckpointStore, ref: CheckpointRef, *segments: Segment) -> None:
    """Write a whole checkpoint of one subtask that refers to segments."""
    part = store.write_part(ref, exchange_snapshot(*segments))
    store.complete(ref, round_snapshot(ref), (part,), None)


def _file() -> LakeFile:
    return LakeFile("w/data/part-00000.parquet", "data", 617, 90_000, b"\x93\x01\x02\x03")


def _result(split_id: str, rows: int) -> WriteResult:
    return WriteResult(split_id, BUCKETS[0], 900, 1_700_000_000_123, rows, (_file(),), {"encode": 0.5, "read": 1.0})


def file_name(ref: CheckpointRef, name: str) -> str:
    """Return the name of a checkpoint's file within the store."""
    return f"{ref.service}/{ref}/{name}"


def change_file(files: SmallFiles, name: str, change: Callable[[bytes], bytes]) -> None:
    """Put other bytes in a file's place."""
    data = files.read(name)
    assert data is not None, f"read of {name}: expected bytes, found None"
    files.write(name, change(data))


def newest_of(store: CheckpointStore) -> CheckpointRef | None:
    """Return the newest checkpoint of the table that the values are of."""
    info = store.newest(SERVICE, 7)
    return None if info is None else info.ref


def state_of(store: CheckpointStore, ref: CheckpointRef) -> CheckpointState | None:
    """Return what a list says of a checkpoint."""
    return next((info.state for info in store.list(ref.service) if info.ref == ref), None)


def check(where: str, expected: object, found: object) -> None:
    """Check that two values are equal."""
    __tracebackhide__ = True
    assert found == expected, mismatch(where, expected, found)


def check_rows(where: str, expected: set[str], files: SmallFiles) -> None:
    """Check which files with rows are left."""
    __tracebackhide__ = True
    found = {entry.name for entry in files.entries(SERVICE) if "/segments/" in entry.name}
    assert found == expected, mismatch(f"{where}: files with rows that are left", sorted(expected), sorted(found))


def check_end(where: str, expected: str, found: str) -> None:
    """Check how a text ends."""
    __tracebackhide__ = True
    assert found.endswith(expected), mismatch(f"{where}, at its end", expected, found)


def check_text(where: str, expected: str, found: str) -> None:
    """Check what a text contains."""
    __tracebackhide__ = True
    assert expected in found, mismatch(f"{where}, in it", expected, found)


def only(where: str, values: Sequence[One]) -> One:
    """Return the one value that there has to be."""
    __tracebackhide__ = True
    assert len(values) == 1, f"{where}: expected one, found {len(values)}: {values!r}"
    return values[0]
