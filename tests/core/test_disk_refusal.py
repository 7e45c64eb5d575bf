"""What a disk says that refuses: its words once, and what is left of it where it is full."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from lakeward.local_files import refusal

FULL = Path("/dev/full")
LEFT = r"No space left on device: [\d.,]+ of [\d.,]+ MiB and [\d,]+ of [\d,]+ files are free in (.*)"


def write_by_python() -> None:
    with FULL.open("wb", buffering=0) as out:
        out.write(b"x")


def write_by_arrow() -> None:
    with pafs.LocalFileSystem().open_output_stream(str(FULL)) as out:
        out.write(b"x")


@pytest.mark.parametrize("write", [write_by_python, write_by_arrow])
def test_a_full_disk_says_what_is_left_of_it_whoever_wrote(write: object, tmp_path: Path) -> None:
    assert callable(write)
    with pytest.raises(OSError, match="No space left") as refused:
        write()
    missing = tmp_path / "warehouse" / "data" / "1.parquet"
    for place in (missing, str(missing), missing.as_uri()):
        found = re.fullmatch(LEFT, refusal(refused.value, place))
        assert found is not None
        assert found[1] == str(tmp_path)


def test_another_error_is_told_without_its_number_and_path() -> None:
    with pytest.raises(OSError, match="Not a directory") as refused:
        Path("/dev/full/x").read_bytes()
    assert refusal(refused.value, "/dev/full/x") == "Not a directory"


def test_of_a_store_elsewhere_nothing_is_said_but_its_words() -> None:
    assert refusal(OSError(errno.ENOSPC, "the bucket is full"), "s3://bucket/key") == "the bucket is full"
    assert refusal(OSError("AWS Error SLOW_DOWN"), "s3://bucket/key") == "AWS Error SLOW_DOWN"
