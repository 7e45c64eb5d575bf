"""Real processes: killed in the middle, and several at once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import CHANGE_COLUMN, OFFSET_COLUMN, Change, TablePath
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PATH = TablePath("db", "t")
KEYS, SIZE = 500, 100
LOADER = """
import sys
import pyarrow as pa
from lakeward_source_embedded.store import EmbeddedStore
from lakeward.model.tables import TablePath

store = EmbeddedStore.open(sys.argv[1])
start, loads = int(sys.argv[2]), int(sys.argv[3])
for step in range(start, start + loads):
    ids = [(step * 37 + n) % 500 for n in range(100)]
    store.load(TablePath("db", "t"), pa.table({"id": ids, "step": [step] * 100}))
    print(step, flush=True)
    if step % 7 == 0:
        store.maintain()
store.close()
"""


def new_store(root: Path) -> EmbeddedStore:
    store = EmbeddedStore.create(root)
    schema = pa.schema([("id", pa.int64()), ("step", pa.int64())])
    # A snapshot after nearly each load: kills hit snapshots and clean-up too.
    store.create_table(PATH, schema, primary_key=["id"], buckets=2, properties={"table.kv.snapshot.rows": "100"})
    return store


def start_loader(root: Path, start: int, loads: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOADER, str(root), str(start), str(loads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def check(store: EmbeddedStore) -> dict[int, int]:
    """Read everything back: contiguous offsets, whole batches, right chains, snapshot + log = table."""
    spec = store.table(PATH)
    reader = EmbeddedReader(store.root, spec)
    table: dict[int, int] = {}
    written: dict[int, int] = {}
    for state in store.buckets(PATH):
        rows: dict[int, int] = {}
        at_snapshot: dict[int, int] = {}
        for batch in reader.read_log(LogSplit("s", state.bucket, (), 0, state.end)):
            for row in batch.records.to_pylist():
                if state.snapshot and row[OFFSET_COLUMN] == state.snapshot.log_offset:
                    at_snapshot = dict(rows)
                if row[CHANGE_COLUMN] == Change.UPDATE_BEFORE:
                    assert rows.pop(row["id"]) == row["step"]
                else:
                    assert row["id"] not in rows
                    rows[row["id"]] = row["step"]
                    written[row["step"]] = written.get(row["step"], 0) + 1
        if state.snapshot and state.snapshot.log_offset == state.end:
            at_snapshot = dict(rows)
        if state.snapshot:
            split = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
            found = [row for batch in reader.read_snapshot(split) for row in batch.records.to_pylist()]
            assert {row["id"]: row["step"] for row in found} == at_snapshot
        table |= rows
    reader.close()
    assert set(written.values()) <= {SIZE}
    return table


def test_killed_loader_leaves_whole_batches_alone(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    choose = random.Random(7)  # noqa: S311 - moments, not secrets
    start = 0
    for _ in range(6):
        loader = start_loader(tmp_path, start, 1000)
        assert loader.stdout is not None
        confirmed = start
        for _ in range(choose.randrange(1, 12)):
            confirmed = int(loader.stdout.readline())
        try:
            # Some way into the next load.
            loader.wait(choose.random() * 0.03)
        except subprocess.TimeoutExpired:
            loader.send_signal(signal.SIGKILL)
        rest = loader.communicate()[0].split()
        confirmed = int(rest[-1]) if rest else confirmed
        assert loader.returncode == -signal.SIGKILL

        table = check(store)

        last = max(table.values())
        assert last in {confirmed, confirmed + 1}
        start = last + 1
    store.maintain()
    named = {"log": "segments", "kv": "snapshots", "index": "runs"}
    with store.database.read() as sql:
        for kind, rows in named.items():
            files = {f"{kind}/1/{file.name}" for file in (tmp_path / kind / "1").iterdir()}
            named_files = {row[0] for row in sql.execute(f"SELECT file FROM {rows}")}  # noqa: S608 - constant names
            assert files == named_files
    check(store)
    store.close()


def test_several_processes_load_one_table(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    loaders = [start_loader(tmp_path, number * 1000, 15) for number in range(3)]
    for loader in loaders:
        loader.communicate()
        assert loader.returncode == 0

    assert len(check(store)) == KEYS
    assert sum(state.end for state in store.buckets(PATH)) == 2 * 3 * 15 * SIZE - KEYS
    store.close()
