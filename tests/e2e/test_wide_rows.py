"""Wide rows from the embedded source to a lake's files: as many rows come out as went in (no Spark needed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.clock import SystemClock
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TablePath
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read
from lakeward.subtask.work import SplitWork
from lakeward.threads import ThreadExecutor
from lakeward_e2e.lakes import AnyTables, IcebergTables, PaimonTables
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.results import WriteResult
    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow
PATH = TablePath("shop", "documents")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
KIB, MIB = 1 << 10, 1 << 20
MANY, SOME, LONG = (60_000, 40 * KIB), (6_000, 40 * KIB), (3, 100 * MIB)
CASES: list[tuple[type[AnyTables], str, int, int]] = [
    *((IcebergTables, kind, *size) for size in (MANY, LONG) for kind in ("log", "changes", "snapshot")),
    *((PaimonTables, kind, *SOME) for kind in ("log", "changes")),
    *((PaimonTables, kind, *LONG) for kind in ("changes", "snapshot")),
]


@pytest.mark.parametrize(("lake", "kind", "rows", "width"), CASES, ids=lambda one: getattr(one, "name", str(one)))
def test_as_many_wide_rows_come_out_as_went_in(
    tmp_path: Path, lake: type[AnyTables], kind: str, rows: int, width: int
) -> None:
    with EmbeddedStore.create(tmp_path / "store") as store:
        key = () if kind == "log" else ("id",)
        table = store.create_table(PATH, SCHEMA, key, properties={"table.kv.snapshot.interval-s": "0"})
        text = pa.array(["x" * width])
        for start in range(0, rows, 3000):
            ids = np.arange(start, min(start + 3000, rows))
            for part in np.array_split(ids, -(-len(ids) * width // (128 * MIB))):
                texts = text.take(pa.array(np.zeros(len(part), dtype=np.int64)))
                store.load(PATH, pa.table([pa.array(part), texts], schema=SCHEMA))
        if kind == "snapshot":
            store.snapshot(PATH)
        (state,) = store.buckets(PATH)
        split: Split = LogSplit("s", state.bucket, (), 0, state.end)
        if state.snapshot is not None:
            split = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
        result = _write(lake(tmp_path), store, table, split)

    assert result.rows == rows
    data = [file.path for file in result.files if file.kind == "data"]
    found = [pq.read_table(path, columns=["id"]).column("id").to_pylist() for path in data]
    assert sorted(one for part in found for one in part) == list(range(rows))


def _write(tables: AnyTables, store: EmbeddedStore, table: TableSpec, split: Split) -> WriteResult:
    clock = SystemClock()
    lake = tables.open(clock)
    who = Incarnation("wide", 1, "0" * 16)
    lake.open_table(table, who)
    task = lake.writer_task(table, lake.stamp(PATH, who), RoundId(who, table.table_id, 1, 1))
    writer = tables.plugin.writer(task, table, split, 1)
    mailbox = Mailbox()
    work = SplitWork(
        table,
        SplitProgress.beginning(split),
        EmbeddedReader(store.root, table),
        writer,
        clock,
        ThreadExecutor(),
        mailbox,
    )
    while isinstance(read := mailbox.get(60), Read) and read.batch is not None:
        work.write(read.batch, read.read_s)
        work.read_on()
    assert isinstance(read, Read)
    assert read.error is None
    lake.close()
    return work.close()
