"""Checkpoints as often as they can be, a small target file size: files keep at least half of it (no Spark needed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakeward.clock import SystemClock
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TablePath
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read
from lakeward.subtask.work import SplitWork
from lakeward.threads import ThreadExecutor
from lakeward_e2e.lakes import LAKES, AnyTables, lake_id
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.results import LakeFile

PATH = TablePath("shop", "orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("token", pa.int64())])
LOAD, LOADS = 70_000, 40
TARGET = 4_000_000


@pytest.mark.parametrize("kind", LAKES, ids=lake_id)
@pytest.mark.parametrize("keys", [0, 1_000_000], ids=["log", "changes"])
def test_files_keep_half_their_target_size_at_any_interval(tmp_path: Path, kind: type[AnyTables], keys: int) -> None:
    positions, files = _tier(tmp_path, kind(tmp_path), keys)
    data = [file for file in files if file.kind == "data"]
    sizes = [file.size_bytes for file in data]
    print(f"{len(data)} data files, smallest but the last {min(sizes[:-1])} of {TARGET} bytes, {len(files)} files")  # noqa: T201 - the figure
    assert len(data) > 3
    assert min(sizes[:-1]) >= TARGET / 2
    # Checkpoints that closed nothing, and some that did.
    assert len(data) <= len(set(positions)) + 1 < len(positions)
    assert positions == sorted(positions)


def _tier(tmp_path: Path, tables: AnyTables, keys: int) -> tuple[list[int], tuple[LakeFile, ...]]:
    """Write one bucket with a checkpoint after each batch; return the positions recorded, and the files."""
    source = np.random.default_rng(7)
    store = EmbeddedStore.create(tmp_path / "store")
    table = store.create_table(PATH, SCHEMA, primary_key=("id",) if keys else ())
    for load in range(LOADS):
        count = LOAD // 2 if keys else LOAD
        ids = source.choice(keys, count, replace=False) if keys else np.arange(load * LOAD, (load + 1) * LOAD)
        store.load(PATH, pa.table([pa.array(ids), pa.array(source.integers(1 << 62, size=count))], schema=SCHEMA))
    (state,) = store.buckets(PATH)
    clock = SystemClock()
    lake = tables.open(clock, target_file_size_bytes=TARGET)
    who = Incarnation("tier", 1, "0" * 16)
    lake.open_table(table, who)
    task = lake.writer_task(table, lake.stamp(PATH, who), RoundId(who, table.table_id, 1, 1))
    split = LogSplit("log-0", state.bucket, (), 0, state.end)
    mailbox = Mailbox()
    writer = tables.plugin.writer(task, table, split, 1)
    work = SplitWork(
        table,
        SplitProgress.beginning(split),
        EmbeddedReader(store.root, table),
        writer,
        clock,
        ThreadExecutor(),
        mailbox,
    )
    positions = []
    while isinstance(read := mailbox.get(60), Read) and read.batch is not None:
        work.write(read.batch, read.read_s)
        work.read_on()
        positions.append(work.roll().position)
    files = work.close().files
    lake.close()
    store.close()
    return positions, files
