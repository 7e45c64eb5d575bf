"""KV snapshots: files fetched side by side, and RocksDB read to Arrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

from lakeward.errors import CorruptFileError, SnapshotGoneError, StorageError
from lakeward_source_fluss.formats import kvsnapshot
from lakeward_source_fluss.formats.kvsnapshot import SnapshotFiles, read
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind

ID = FlussField("id", FlussType(Kind.INTEGER, nullable=False), None, 0)
TEXT = FlussField("s", FlussType(Kind.STRING), None, 1)
OLD = FlussSchema((ID, TEXT), ("id",))
NEW = FlussSchema((ID, TEXT, FlussField("x", FlussType(Kind.BIGINT), None, 2)), ("id",))
ROWS = 5000


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as Fluss leaves it: updates and deletes over several files, two schemas, no log of its own."""
    where = tmp_path_factory.mktemp("remote") / "db"
    database = Rdict(str(where), Options(raw_mode=True))
    for start in range(0, ROWS, 1000):
        for key in range(start, start + 1000):
            database[key.to_bytes(2, "big")] = b"\1\0" + b"\0" + varint(key) + b"\3old"
        database.flush()
    for key in range(0, ROWS, 10):
        database[key.to_bytes(2, "big")] = b"\2\0" + b"\0" + varint(key) + b"\3new" + varint(key * 2)
    for key in range(5, ROWS, 10):
        del database[key.to_bytes(2, "big")]
    database.flush()
    database.close()
    return where


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def files(remote: Path, form: str = "file:{}") -> SnapshotFiles:
    wanted = [
        path for path in remote.iterdir() if path.name.startswith(("CURRENT", "MANIFEST")) or path.suffix == ".sst"
    ]
    return SnapshotFiles(tuple((form.format(path), path.name) for path in wanted))


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}"])
def test_a_snapshot_is_fetched_and_read_whatever_the_server_calls_its_files(
    remote: Path, tmp_path: Path, form: str
) -> None:
    snapshot = files(remote, form)
    assert snapshot.download(tmp_path, parallel=3) == sum(snapshot.sizes())
    table = pa.Table.from_batches(read(tmp_path, {1: OLD.seen_as(NEW), 2: NEW}, NEW.to_arrow(), batch_rows=777))
    ids = [key for key in range(ROWS) if key % 10 != 5]
    assert table.column("id").to_pylist() == ids
    assert table.column("s").to_pylist() == ["old" if key % 10 else "new" for key in ids]
    assert table.column("x").to_pylist() == [None if key % 10 else key * 2 for key in ids]


@pytest.mark.parametrize("skipped", [0, 1, 1024, 4321, 4499, 4500])
def test_rows_that_are_passed_over_are_not_decoded(remote: Path, tmp_path: Path, skipped: int) -> None:
    files(remote).download(tmp_path)
    decoded = [
        batch.num_rows
        for batch in read(tmp_path, {1: OLD.seen_as(NEW), 2: NEW}, NEW.to_arrow(), batch_rows=777, skip_rows=skipped)
    ]
    assert sum(decoded) == 4500 - skipped
    whole = pa.Table.from_batches(read(tmp_path, {1: OLD.seen_as(NEW), 2: NEW}, NEW.to_arrow()))
    rest = pa.Table.from_batches(
        read(tmp_path, {1: OLD.seen_as(NEW), 2: NEW}, NEW.to_arrow(), skip_rows=skipped), schema=whole.schema
    )
    assert rest.equals(whole.slice(skipped))


def test_rows_of_a_schema_that_is_not_known_can_be_passed_over(remote: Path, tmp_path: Path) -> None:
    files(remote).download(tmp_path)
    first = next(iter(read(tmp_path, {1: OLD.seen_as(NEW)}, NEW.to_arrow(), batch_rows=8, skip_rows=1)))
    assert first.column("id").to_pylist() == [1, 2, 3, 4, 6, 7, 8, 9]


def test_passing_over_more_rows_than_there_are_is_an_error(remote: Path, tmp_path: Path) -> None:
    files(remote).download(tmp_path)
    with pytest.raises(CorruptFileError, match="at least 4501 rows"):
        list(read(tmp_path, {1: OLD, 2: NEW}, NEW.to_arrow(), skip_rows=4501))


def test_batches_have_the_rows_asked_for_and_end_at_their_bytes(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(remote).download(tmp_path)
    schemas = {1: OLD, 2: NEW}
    assert [batch.num_rows for batch in read(tmp_path, schemas, NEW.to_arrow(), batch_rows=2000)] == [2000, 2000, 500]
    monkeypatch.setattr(kvsnapshot, "BATCH_BYTES", 1)
    assert max(batch.num_rows for batch in read(tmp_path, schemas, NEW.to_arrow(), batch_rows=2000)) == 1


def test_a_file_that_is_gone_is_a_snapshot_that_is_gone(remote: Path, tmp_path: Path) -> None:
    snapshot = SnapshotFiles((*files(remote).files, (f"file:{remote}/999999.sst", "999999.sst")))
    with pytest.raises(SnapshotGoneError, match=r"999999\.sst"):
        snapshot.download(tmp_path)


def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvsnapshot, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(StorageError, match="free disk"):
        files(remote).download(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_a_named_error(remote: Path, tmp_path: Path) -> None:
    files(remote).download(tmp_path)
    for path in tmp_path.glob("*.sst"):
        whole = path.read_bytes()
        for position in (0, len(whole) // 3, len(whole) // 2):
            path.write_bytes(whole[:position] + bytes(99) + whole[position + 99 :])
            with pytest.raises(CorruptFileError, match="RocksDB"):
                list(read(tmp_path, {1: OLD, 2: NEW}, NEW.to_arrow()))
        path.write_bytes(whole)


def test_a_directory_without_a_database_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="RocksDB"):
        list(read(tmp_path, {}, NEW.to_arrow()))


def test_a_schema_that_is_not_known_is_a_named_error(remote: Path, tmp_path: Path) -> None:
    files(remote).download(tmp_path)
    with pytest.raises(CorruptFileError, match="schema id 2"):
        list(read(tmp_path, {1: OLD}, NEW.to_arrow()))


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x"])
def test_local_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="plain names"):
        SnapshotFiles((("file:/x", name),))


def test_a_reader_that_stops_early_lets_the_database_go(remote: Path, tmp_path: Path) -> None:
    files(remote).download(tmp_path)
    batches = read(tmp_path, {1: OLD, 2: NEW}, NEW.to_arrow(), batch_rows=10)
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # a generator, as the doc string does not promise
    assert sum(batch.num_rows for batch in read(tmp_path, {1: OLD, 2: NEW}, NEW.to_arrow())) == ROWS * 9 // 10


def test_storage_that_is_not_known_is_refused() -> None:
    for uri in ("relative/path", "file:relative", "file://elsewhere/x", "gopher://x/y"):
        with pytest.raises(StorageError):
            Storage().locate(uri)


def test_object_stores_are_named_by_bucket_and_key() -> None:
    store = Storage({"access_key": "a", "secret_key": "b", "region": "eu-west-1", "other": "ignored"})
    for scheme in ("s3", "s3a"):
        filesystem, path = store.locate(f"{scheme}://bucket/dir/file")
        assert (filesystem.type_name, path) == ("s3", "bucket/dir/file")
