from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lakeward.local_files import free_bytes, replacing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_once_it_is_whole(tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with replacing(target, tmp_path / ".new", durable=durable) as temporary:
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_whose_writer_fails_stays_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def write_half() -> None:
        with replacing(target, tmp_path / ".new", durable=True) as temporary:
            temporary.write_bytes(b"ne")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write_half()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_error_that_is_raised_is_the_first_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "file", tmp_path / "no" / ".new", durable=False) as new:
        new.write_bytes(b"x")


def test_the_free_bytes_of_a_disk_are_told_and_of_a_store_or_no_folder_nothing(tmp_path: Path) -> None:
    free = free_bytes(str(tmp_path))
    assert free is not None
    assert 0 <= free <= shutil.disk_usage(tmp_path).total
    assert free_bytes("s3://state/here") is None
    assert free_bytes(str(tmp_path / "not there")) is None
