from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import NewerFormatError
from lakeward.storage.newer_formats import refuse_newer
from lakeward.storage.records import pack
from lakeward.storage.small_files import SmallFiles

PLACES = ["svc-1-00000000000000aa/service.state", "a/7-1-1/journal", "a/7-1/chk-3/_metadata", "a/7-1/chk-3/part-0-1"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("version", "refused"), [(1, False), (4, True), (65535, True)])
def test_a_later_version_is_refused_wherever_it_is(tmp_path: Path, place: str, version: int, *, refused: bool) -> None:
    files = SmallFiles(str(tmp_path))
    files.write(f"svc/{place}", pack(version, (b"",)))
    if not refused:
        refuse_newer(files, "svc")
        return
    with pytest.raises(NewerFormatError, match=rf"svc/{place}: expected a format version among \[1.*, found {version}"):
        refuse_newer(files, "svc")


@pytest.mark.parametrize("data", [b"", b"torn", b"LKWD", b"XXXX\xff\xff\x00\x01"])
def test_damage_is_no_later_version(tmp_path: Path, data: bytes) -> None:
    """What is damaged is told, or dropped, by whoever reads it."""
    files = SmallFiles(str(tmp_path))
    files.write(f"svc/{PLACES[2]}", data)
    refuse_newer(files, "svc")


def test_another_services_state_and_files_of_other_formats_do_not_matter(tmp_path: Path) -> None:
    files = SmallFiles(str(tmp_path))
    files.write("other/a/service.state", pack(9, ()))
    files.write("svc/spark/anything", pack(9, ()))
    refuse_newer(files, "svc")
