"""Folders for temporary files: of one process, unreachable for other users, and gone once their owner is."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "lakeward-test-"
_KILLED = (
    "import os, sys; from pathlib import Path; from lakeward.owned_folder import OwnedFolder\n"
    f"folder = OwnedFolder({PREFIX!r}, Path(sys.argv[1])); (folder.path / 'file').touch(); os.kill(os.getpid(), 9)"
)


def test_a_folder_of_a_process_that_was_killed_is_deleted_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with OwnedFolder(PREFIX, tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [Path(folder)]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_living_process_stays(tmp_path: Path) -> None:
    with OwnedFolder(PREFIX, tmp_path) as first, OwnedFolder(PREFIX, tmp_path) as second:
        assert set(tmp_path.iterdir()) == {Path(first), Path(second)}


def test_no_other_user_can_enter_a_folder_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with OwnedFolder(PREFIX, tmp_path) as folder:
            assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    finally:
        os.umask(before)


def a_link(place: Path) -> None:
    place.parent.joinpath("elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.parent / "elsewhere")


def a_folder_that_others_may_enter(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


@pytest.mark.parametrize("trap", [os.mkfifo, a_link, a_folder_that_others_may_enter, Path.touch])
def test_what_another_user_puts_in_its_place_holds_up_nobody_and_stays(
    trap: Callable[[Path], None], tmp_path: Path
) -> None:
    place = tmp_path / f"{PREFIX}0"
    trap(place)
    OwnedFolder(PREFIX, tmp_path).delete()
    assert place.lstat()


def test_a_lock_of_another_user_on_the_directory_holds_up_nobody(tmp_path: Path) -> None:
    """A directory that others may read can be locked by them."""
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        OwnedFolder(PREFIX, tmp_path).delete()
    finally:
        os.close(handle)


def test_deleting_twice_is_harmless(tmp_path: Path) -> None:
    folder = OwnedFolder(PREFIX, tmp_path)
    folder.delete()
    folder.delete()
    folder.cleanup()
