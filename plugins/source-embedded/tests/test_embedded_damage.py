"""Flipped bytes never come out of the store: each file has checksums, and the error names file and offset."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TablePath
from lakeward_source_embedded.arrow_files import CHECKED, ArrowFile, write_arrow
from lakeward_source_embedded.reader import EmbeddedReader

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_source_embedded.store import EmbeddedStore

PATH = TablePath("shop", "orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
ROWS = 3000


@pytest.fixture
def keyed(store: EmbeddedStore) -> EmbeddedStore:
    """A table of two buckets, with a log, an index and a snapshot."""
    store.create_table(PATH, SCHEMA, ("id",), buckets=2, properties={"table.kv.snapshot.interval-s": "0"})
    store.load(PATH, rows(0, ROWS))
    store.snapshot(PATH)
    return store


def rows(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table([pa.array(numbers), pa.array([f"text of {n}" for n in numbers])], schema=SCHEMA)


def flip(file: Path, at: int) -> bytes:
    """Flip a bit of one byte; return what was there."""
    whole = file.read_bytes()
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    return whole


def read_log(store: EmbeddedStore) -> int:
    reader = EmbeddedReader(store.root, store.table(PATH))
    splits = [LogSplit("s", state.bucket, (), 0, state.end) for state in store.buckets(PATH)]
    return sum(batch.records.num_rows for split in splits for batch in reader.read_log(split))


def read_snapshots(store: EmbeddedStore) -> int:
    reader = EmbeddedReader(store.root, store.table(PATH))
    states = [(state.bucket, state.snapshot) for state in store.buckets(PATH)]
    splits = [SnapshotSplit("s", bucket, (), one.snapshot_id, one.log_offset) for bucket, one in states if one]
    return sum(batch.records.num_rows for split in splits for batch in reader.read_snapshot(split))


def named_range(error: CorruptFileError) -> tuple[int, int]:
    found = re.search(r"bytes from offset (\d+) to (\d+)", str(error))
    return (int(found[1]), int(found[2])) if found else (0, 1 << 60)


@pytest.mark.parametrize("kind", ["log", "kv"])
def test_a_flipped_byte_anywhere_is_an_error_that_names_file_and_offset(keyed: EmbeddedStore, kind: str) -> None:
    read = read_log if kind == "log" else read_snapshots
    file = min((keyed.root / kind).rglob("*.arrow"))
    assert read(keyed) == ROWS
    for at in {*range(0, file.stat().st_size, 997), *range(file.stat().st_size - 200, file.stat().st_size)}:
        whole = flip(file, at)
        with pytest.raises(CorruptFileError, match="offset") as damaged:
            read(keyed)
        assert damaged.value.file == str(file)
        start, stop = named_range(damaged.value)
        assert start <= at < stop
        file.write_bytes(whole)
    assert read(keyed) == ROWS


def test_a_flipped_byte_of_the_key_index_stops_the_next_load(keyed: EmbeddedStore) -> None:
    (file,) = (keyed.root / "index").rglob("*.arrow")
    whole = flip(file, file.stat().st_size // 2)
    with keyed.open(keyed.root) as other:
        with pytest.raises(CorruptFileError, match="from offset") as damaged:
            other.load(PATH, rows(0, 5))
        assert damaged.value.file == str(file)
        file.write_bytes(whole)
        assert other.load(PATH, rows(0, 5)) == 10


def test_a_flipped_byte_of_an_old_row_stops_the_load_that_would_write_it_on(keyed: EmbeddedStore) -> None:
    files = sorted((keyed.root / "kv").rglob("*.arrow"))
    for file in files:
        flip(file, file.stat().st_size // 3)
    with keyed.open(keyed.root) as other, pytest.raises(CorruptFileError, match="from offset"):
        other.load(PATH, rows(0, 5))


def test_files_of_earlier_releases_are_read_without_checksums(keyed: EmbeddedStore) -> None:
    for file in (keyed.root / "log").rglob("*.arrow"), (keyed.root / "kv").rglob("*.arrow"):
        for path in list(file):
            older = path.with_name(path.name.replace(CHECKED, ".arrow"))
            with pa.memory_map(str(path)) as source, pa.OSFile(str(older), "wb") as sink:
                reader = pa.ipc.open_file(source)
                with pa.ipc.new_file(sink, reader.schema) as writer:
                    for number in range(reader.num_record_batches):
                        writer.write_batch(reader.get_batch(number))
            path.unlink()
    with keyed.database.write() as sql:
        for table in ("segments", "snapshots"):
            sql.execute(f"UPDATE {table} SET file = replace(file, '{CHECKED}', '.arrow')")  # noqa: S608 - two constants
    assert (read_log(keyed), read_snapshots(keyed)) == (ROWS, ROWS)


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_file_with_checksums_is_still_an_arrow_file(tmp_path: Path, batches: int) -> None:
    file = tmp_path / f"a{CHECKED}"
    parts = [rows(100 * n, 100).to_batches()[0] for n in range(batches)]
    write_arrow(file, SCHEMA, parts)
    with pa.memory_map(str(file)) as source:
        assert pa.ipc.open_file(source).read_all().equals(pa.Table.from_batches(parts, schema=SCHEMA))
    mapped = ArrowFile(file)
    assert [mapped.batch(number) for number in range(mapped.batches)] == parts
    with pytest.raises(CorruptFileError, match=f"a whole batch {batches}"):
        mapped.batch(batches)


def test_a_batch_that_was_found_whole_is_not_checked_again(tmp_path: Path) -> None:
    """Splits of one bucket share its batches; a reader lives as long as its subtask."""
    file = tmp_path / f"a{CHECKED}"
    write_arrow(file, SCHEMA, [rows(0, 100).to_batches()[0]])
    checked: set[tuple[str, int]] = set()
    ArrowFile(file, checked).batch(0)
    assert checked == {(file.name, 0)}
    flip(file, file.stat().st_size // 4)
    ArrowFile(file, checked).batch(0)
    with pytest.raises(CorruptFileError, match="from offset"):
        ArrowFile(file).batch(0)


def test_a_file_that_may_not_be_read_is_not_taken_for_damaged(
    keyed: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged one would suspend the table after a second try."""

    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(pa, "memory_map", refuse)
    with pytest.raises(StorageError, match=r"\.arrow: cannot be read: Permission denied$"):
        read_log(keyed)
