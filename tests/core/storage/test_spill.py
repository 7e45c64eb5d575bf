"""Spill files: what is written is read once, in order, and nothing is left."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import CorruptFileError, StorageError
from lakeward.storage.spill import HEADER, SpillFiles, SpillWriter
from lakeward.storage.spill_disk import LocalSpillDisk, spark_directories
from lakeward.storage.spill_reader import Chunk, SpillReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Writes = list[tuple[int, bytes]]
BODY = bytes(range(50))
WHOLE = HEADER.size + len(BODY)


def writer(folder: Path, *, quota: int = 1 << 30, segment: int = 100, file: int = 1000) -> SpillWriter:
    return SpillWriter([str(folder)], quota_bytes=quota, segment_bytes=segment, file_bytes=file)


def sealed(folder: Path, writes: Sequence[tuple[int, bytes]], *, segment: int = 100, file: int = 1000) -> SpillFiles:
    spill = writer(folder, segment=segment, file=file)
    for channel, data in writes:
        spill.write(channel, data)
    return spill.seal()


def drain(reader: SpillReader, most: int = 16) -> Iterator[Chunk]:
    while (chunk := reader.read(most)) is not None:
        yield chunk


def shown(chunks: Iterator[Chunk]) -> list[tuple[int, bytes]]:
    return [(chunk.channel, bytes(chunk.data)) for chunk in chunks]


def everything(files: SpillFiles) -> list[tuple[int, bytes]]:
    """Read segments as they lie there."""
    return shown(drain(SpillReader(files), 1 << 20))


def opened(folder: Path) -> list[str]:
    """Return the files below a folder that this process has open; others come and go with the garbage."""
    found = (str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())
    return sorted(path for path in found if path.startswith(str(folder)))


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


# --- what is written --------------------------------------------------------------------------------------------


def test_52_the_bytes_of_a_channel_come_in_their_order(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(number % 2, bytes([number])) for number in range(10)])
    found = shown(drain(SpillReader(files)))
    assert [data for channel, data in found if channel == 0] == [bytes([number]) for number in range(0, 10, 2)]
    assert [channel for channel, _ in found] == [0, 1] * 5


def test_53_a_switch_of_the_channel_ends_a_segment_and_the_same_channel_goes_on_in_one(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, b"a"), (0, b"b"), (1, b"c"), (0, b"d")])
    assert everything(files) == [(0, b"ab"), (1, b"c"), (0, b"d")]
    assert files.size_bytes == 3 * HEADER.size + 4


def test_53_a_segment_is_no_longer_than_agreed_however_much_is_written_at_once(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(3, BODY)], segment=16)
    assert everything(files) == [(3, BODY[:16]), (3, BODY[16:32]), (3, BODY[32:48]), (3, BODY[48:])]


@pytest.mark.parametrize(("most", "files"), [(1, 3), (2 * (HEADER.size + 10), 2), (1000, 1)])
def test_54_files_are_rotated_between_segments_alone(tmp_path: Path, most: int, files: int) -> None:
    found = sealed(tmp_path, [(number, bytes(10)) for number in range(3)], file=most)
    assert [file.size_bytes for file in found.files] == [file.path.stat().st_size for file in found.files]
    assert len(found.files) == files
    assert everything(found) == [(number, bytes(10)) for number in range(3)]


def test_55_what_is_empty_makes_no_segment_no_file_and_no_folder(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, b""), (1, b"")])
    assert (files.files, left(tmp_path), everything(files)) == ((), [], [])


# --- what is read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "sizes"), [(50, [16, 16, 16, 2]), (48, [16, 16, 16]), (16, [16]), (1, [1])])
def test_56_a_segment_is_read_in_pieces_and_none_is_empty(tmp_path: Path, size: int, sizes: list[int]) -> None:
    reader = SpillReader(sealed(tmp_path, [(0, BODY[:size])]))
    chunks = list(drain(reader))
    assert [chunk.data.nbytes for chunk in chunks] == sizes
    assert b"".join(chunk.data for chunk in chunks) == BODY[:size]
    assert reader.read(16) is None


def undelivered(delivered: int, most: int, *, ahead: int = 0, file: int = 1000, folder: Path) -> int:
    """Return what is not delivered of two segments, after so many pieces; some more are read ahead."""
    reader = SpillReader(sealed(folder, [(0, BODY), (1, BODY)], file=file))
    assert reader.undelivered_bytes == 2 * WHOLE
    pieces = [chunk for _ in range(delivered + ahead) if (chunk := reader.read(most)) is not None]
    for piece in pieces[:delivered]:
        reader.commit(piece.end)
    return reader.undelivered_bytes


def test_57_what_is_undelivered_begins_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    assert undelivered(1, 16, folder=tmp_path) == 50 - 16 + WHOLE


def test_57_what_was_read_and_not_committed_is_undelivered(tmp_path: Path) -> None:
    assert undelivered(1, 16, ahead=5, folder=tmp_path) == 50 - 16 + WHOLE


@pytest.mark.parametrize("file", [1, 1000])
def test_57_what_is_undelivered_goes_over_segments_and_files(tmp_path: Path, file: int) -> None:
    assert undelivered(3, 40, file=file, folder=tmp_path) == 50 - 40


@pytest.mark.parametrize("file", [1, 1000])
def test_57_at_the_end_nothing_is_undelivered(tmp_path: Path, file: int) -> None:
    assert undelivered(4, 40, file=file, folder=tmp_path) == 0


def test_undelivered_bytes_open_no_file_and_read_no_byte(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY)])
    before = opened(tmp_path)
    readers = [SpillReader(files) for _ in range(5)]
    assert [reader.undelivered_bytes for reader in readers] == [WHOLE] * 5
    assert opened(tmp_path) == before


def test_a_drain_commits_forward_only(tmp_path: Path) -> None:
    reader = SpillReader(sealed(tmp_path, [(0, BODY)]))
    first, second = reader.read(10), reader.read(10)
    assert first is not None
    assert second is not None
    reader.commit(second.end)
    with pytest.raises(StorageError, match="committed"):
        reader.commit(first.end)


# --- damage -----------------------------------------------------------------------------------------------------


def test_58_each_byte_that_is_missing_or_changed_is_found(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY), (1, BODY)])
    path = files.files[0].path
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptFileError, match=r"\.spill: expected"):
            everything(files)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(CorruptFileError, match=r"\.spill: expected"):
            everything(files)


def test_58_no_byte_of_a_damaged_segment_is_handed_out(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY)])
    path = files.files[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptFileError):
        SpillReader(files).read(1)


def test_58_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY)])
    files.files[0].path.unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        SpillReader(files).read(1)


# --- life -------------------------------------------------------------------------------------------------------


def test_59_nothing_is_written_after_the_seal_or_the_close(tmp_path: Path) -> None:
    first, second = writer(tmp_path), writer(tmp_path)
    first.write(0, BODY)
    first.seal().release()
    second.close()
    for spill in (first, second):
        with pytest.raises(StorageError, match="after they were sealed or closed"):
            spill.write(0, BODY)
        with pytest.raises(StorageError, match="sealed or closed before"):
            spill.seal()


def test_59_closing_twice_is_harmless_and_leaves_nothing(tmp_path: Path) -> None:
    spill = writer(tmp_path, segment=10)
    spill.write(0, BODY)
    assert left(tmp_path) != []
    spill.close()
    spill.close()
    assert left(tmp_path) == []


def test_59_a_close_after_the_seal_leaves_the_files_to_their_new_owner(tmp_path: Path) -> None:
    spill = writer(tmp_path)
    spill.write(0, BODY)
    files = spill.seal()
    spill.close()
    assert everything(files) == [(0, BODY)]


def test_60_a_reader_outlives_another_one_and_their_owner(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY)])
    reader, other = SpillReader(files), SpillReader(files)
    reader.close()
    reader.close()
    files.release()
    assert shown(drain(other, 100)) == [(0, BODY)]
    other.close()
    assert (files.deleted, left(tmp_path)) == (True, [])


def test_60_files_are_deleted_once(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY)])
    files.release()
    folder = tmp_path / files.files[0].path.parent.name
    folder.mkdir()
    files.close()
    files.release()
    assert folder.exists(), "somebody else's by now"
    with pytest.raises(StorageError, match="after they were deleted"):
        SpillReader(files)


def test_60_a_forced_close_deletes_whoever_reads(tmp_path: Path) -> None:
    files = sealed(tmp_path, [(0, BODY), (1, BODY)], file=1)
    reader = SpillReader(files)
    files.close()
    files.close()
    assert left(tmp_path) == []
    with pytest.raises(StorageError):
        list(drain(reader))
    reader.close()


# --- disks ------------------------------------------------------------------------------------------------------


def test_61_no_directory_is_made_up(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    spill = writer(nowhere, segment=1)
    with pytest.raises(StorageError, match=r"checkpoint\.spill_dirs .*nowhere.*No such file"):
        spill.write(0, BODY)
    with pytest.raises(StorageError, match=r"checkpoint\.spill_dirs: no directory is named"):
        SpillWriter([], quota_bytes=1 << 30, segment_bytes=1).write(0, BODY)
    assert left(tmp_path) == []


def test_61_a_disk_that_is_full_is_the_cause(tmp_path: Path) -> None:
    """The limit of a process's files refuses as a full disk does: a part is written first."""
    spill = writer(tmp_path, segment=10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30, before[1]))
    try:
        with pytest.raises(StorageError, match=r"checkpoint\.spill_dirs .*File too large"):
            spill.write(0, BODY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    spill.close()
    assert left(tmp_path) == []


def test_61_a_quota_that_is_used_up_is_the_cause(tmp_path: Path) -> None:
    spill = writer(tmp_path, quota=2 * (HEADER.size + 10), segment=10)
    spill.write(0, BODY[:20])
    with pytest.raises(StorageError, match=r"checkpoint\.spill_quota: 52 bytes are not enough"):
        spill.write(0, BODY[:10])
    spill.close()
    assert left(tmp_path) == []


def test_files_go_to_the_directories_in_turn_as_long_as_there_is_room(tmp_path: Path) -> None:
    names = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    room = dict(zip(names, (1000, 10, 1000), strict=True))
    for name in names:
        name.mkdir()
    disk = LocalSpillDisk(free=room.__getitem__)
    spill = SpillWriter(list(map(str, names)), quota_bytes=1 << 30, segment_bytes=10, file_bytes=26, disk=disk)
    spill.write(0, BODY)
    room.update(dict(zip(names, (3, 5, 4), strict=True)))
    spill.write(0, BODY[:10])
    files = spill.seal()
    assert [file.path.parents[1].name for file in files.files] == ["a", "c", "a", "c", "a", "b"]
    assert everything(files) == [(0, BODY[start : start + 10]) for start in (*range(0, 50, 10), 0)]


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("/a/blockmgr-1,/b/blockmgr-2", ["/a", "/b"]),
        ("/a/blockmgr-1,/a/blockmgr-2", ["/a"]),
        ("/a", ["/a"]),
        ("", [tempfile.gettempdir()]),
    ],
)
def test_by_default_rows_are_spilled_beside_what_spark_has_on_its_disks(
    named: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", named)
    assert spark_directories() == found


def test_files_of_a_process_that_was_killed_are_deleted_by_the_next_and_those_of_a_living_one_are_not(
    tmp_path: Path,
) -> None:
    code = (
        "import os, sys; from lakeward.storage.spill import SpillWriter\n"
        "spill = SpillWriter([sys.argv[1]], quota_bytes=1 << 20, segment_bytes=1)\n"
        "spill.write(0, b'12'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    dead = left(tmp_path)
    living = sealed(tmp_path, [(0, BODY)])
    files = sealed(tmp_path, [(1, BODY)])
    assert dead
    assert not set(dead) & {path.name for path in tmp_path.iterdir()}
    assert everything(living) == [(0, BODY)]
    assert everything(files) == [(1, BODY)]


# --- a model ----------------------------------------------------------------------------------------------------


@settings(deadline=None)  # it writes files
@given(
    writes=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=40)), max_size=20),
    segment=st.integers(1, 30),
    file=st.integers(1, 120),
    steps=st.lists(st.tuples(st.sampled_from(["read", "commit"]), st.integers(1, 20)), max_size=60),
)
def test_what_was_delivered_what_is_ahead_and_what_is_left_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, writes: Writes, segment: int, file: int, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("spill")
    files = sealed(folder, writes, segment=segment, file=file)
    reader = SpillReader(files)
    ahead: list[Chunk] = []
    delivered: list[tuple[int, bytes]] = []
    for step, most in steps:
        if step == "read" and (chunk := reader.read(most)) is not None:
            assert 0 < chunk.data.nbytes <= most
            ahead.append(chunk)
        elif step == "commit" and ahead:
            chunk = ahead.pop(0)
            reader.commit(chunk.end)
            delivered.append((chunk.channel, bytes(chunk.data)))
    left_over = [*shown(iter(ahead)), *shown(drain(reader))]
    bytes_left = sum(len(data) for _, data in left_over)
    assert bytes_left <= reader.undelivered_bytes
    assert (bytes_left == 0) == (reader.undelivered_bytes == 0)
    assert _channels([*delivered, *left_over]) == _channels(writes)
    reader.close()
    files.release()
    assert left(folder) == []


def _channels(parts: Sequence[tuple[int, bytes]]) -> dict[int, bytes]:
    found: dict[int, bytes] = defaultdict(bytes)
    for channel, data in parts:
        found[channel] += data
    return {channel: data for channel, data in found.items() if data}
