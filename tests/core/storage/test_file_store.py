from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakeward.errors import StorageError
from lakeward.storage.small_files import SmallFiles

OLD, NEW = b"a" * 200_000, b"b" * 300_000


def test_what_is_written_is_read_back_and_replaced(root: str) -> None:
    store = SmallFiles(root)

    store.write("svc/start/state", b"one")
    store.write("svc/start/state", b"two")

    assert store.read("svc/start/state") == b"two"
    assert store.names("svc", "state") == ("svc/start/state",)


def test_what_is_not_there_is_none(root: str) -> None:
    store = SmallFiles(root)

    assert store.read("svc/state") is None
    assert store.names("svc", "state") == ()


def test_a_uri_names_the_same_files_as_its_path(tmp_path: Path) -> None:
    SmallFiles(tmp_path.as_uri()).write("svc/state", b"x")

    assert SmallFiles(str(tmp_path)).read("svc/state") == b"x"


def test_deleting_takes_empty_folders_along_and_may_be_repeated(tmp_path: Path) -> None:
    store = SmallFiles(str(tmp_path))
    store.write("svc/start/round/journal", b"x")
    store.write("svc/start/state", b"x")

    store.delete("svc/start/round/journal")
    store.delete("svc/start/round/journal")

    assert store.names("svc", "state") == ("svc/start/state",)
    assert not (tmp_path / "svc/start/round").exists()


def test_a_deleted_file_and_a_deleted_folder_are_gone_and_may_be_deleted_again(root: str) -> None:
    store = SmallFiles(root)
    store.write("svc/start/one", b"x")
    store.write("svc/start/two", b"x")
    store.write("svc/other", b"x")

    for _ in range(2):
        store.delete("svc/start/one")
        assert [entry.name for entry in store.entries("svc/start")] in (["svc/start/two"], [])
        store.delete_folder("svc/start")

    assert [entry.name for entry in store.entries("")] == ["svc/other"]


def test_a_listing_has_size_and_time_and_only_what_is_below_the_folder(root: str) -> None:
    store = SmallFiles(root)
    store.write("svc/a", b"12345")
    store.write("svc2/a", b"x")

    (entry,) = store.entries("svc")

    assert (entry.name, entry.size_bytes) == ("svc/a", 5)
    assert entry.written_ms > 0
    assert store.folders("") == ("svc", "svc2")


def test_a_half_written_file_is_none(tmp_path: Path) -> None:
    (tmp_path / ".state.new").write_bytes(b"half")

    assert SmallFiles(str(tmp_path)).names("", "state") == ()


def test_a_file_in_the_way_is_a_storage_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "svc").write_bytes(b"")

    with pytest.raises(StorageError, match=r"svc/state"):
        SmallFiles(str(tmp_path)).write("svc/state", b"x")


def test_an_unknown_scheme_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="gopher"):
        SmallFiles("gopher://host/root")


def test_writes_and_deletes_side_by_side_do_not_disturb_each_other(root: str) -> None:
    store = SmallFiles(root)
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for _ in range(50):
                store.write(f"svc/start/{name}/journal", b"x")
                store.delete(f"svc/start/{name}/journal")
        except StorageError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_writes_of_one_file_from_several_threads_leave_one_of_them_whole(root: str) -> None:
    store = SmallFiles(root)
    contents = [bytes([n]) * 500_000 for n in range(4)]

    def work(data: bytes) -> None:
        for _ in range(5):
            store.write("f", data)

    threads = [threading.Thread(target=work, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.read("f") in contents


def test_a_folder_is_deleted_and_listed_while_others_write_to_it(tmp_path: Path) -> None:
    store, stop = SmallFiles(str(tmp_path)), threading.Event()

    def write(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(StorageError):  # its folder is deleted under its hands
                store.write(f"svc/start/{number}/a/b", b"x")
            shutil.rmtree(tmp_path / f"svc/start/{number}", ignore_errors=True)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            store.entries("svc")
            store.delete_folder("svc/start/0/a")
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    store.delete_folder("svc/start/0")
    assert store.entries("svc/start/0") == ()


_WRITER = """
import sys
from lakeward.storage.small_files import SmallFiles
store = SmallFiles(sys.argv[1])
print("ready", flush=True)
while True:
    store.write("svc/state", b"b" * 300_000)
    store.write("svc/state", b"a" * 200_000)
"""


def test_a_writer_killed_in_the_middle_leaves_the_old_or_the_new_whole(tmp_path: Path) -> None:
    store = SmallFiles(str(tmp_path))
    store.write("svc/state", OLD)
    for wait_s in (0.001, 0.004, 0.007, 0.011, 0.017, 0.023):
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            threading.Event().wait(wait_s)  # not for something to happen: to be killed at another moment
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()

        assert store.read("svc/state") in (OLD, NEW)
        store.write("svc/state", OLD)
        assert store.read("svc/state") == OLD
