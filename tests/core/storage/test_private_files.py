"""Files of state: for their user alone whatever the umask, and plain files only."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import StorageError
from lakeward.local_files import locked, open_private
from lakeward.model.round_record import RoundRecord
from lakeward.model.tables import TablePath
from lakeward.observe import control
from lakeward.observe.control import pause
from lakeward.observe.files import read_small, replace_small
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLE = TablePath("shop", "orders")


@pytest.fixture(params=[0, 0o002, 0o022], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def write_a_small_file(root: Path) -> None:
    SmallFiles(str(root)).write("tier/1-2/state", b"state")


def write_a_large_file(root: Path) -> None:
    with SmallFiles(str(root)).writing("tier/1-2/chk-1/segment") as out:
        out.write(b"rows")


def write_the_history(root: Path) -> None:
    RoundHistory(SmallFiles(str(root)), "tier").add(
        RoundRecord("shop.orders", 7, "svc-1/7-1-1", "committed", "log", 1, 2, 0, 1, 0, 0, 0)
    )


def write_a_request(root: Path) -> None:
    pause(str(root), "tier", TABLE)


def write_the_status(root: Path) -> None:
    replace_small(str(root), "tier", "status.json", b"{}")


WRITES = [write_a_small_file, write_a_large_file, write_the_history, write_a_request, write_the_status]


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("write", WRITES)
def test_state_is_for_its_user_alone_whatever_the_umask(write: Callable[[Path], None], tmp_path: Path) -> None:
    root = tmp_path / "deep" / "state"
    write(root)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert any(path.is_file() for path in modes)
    assert modes == {path: 0o600 if path.is_file() else 0o700 for path in modes}


def a_pipe(place: Path) -> None:
    os.mkfifo(place)


def a_link(place: Path) -> None:
    other = place.with_name("elsewhere")
    other.write_bytes(b"kept")
    place.symlink_to(other)


@pytest.mark.parametrize("trap", [a_pipe, a_link])
def test_what_is_no_plain_file_is_refused_at_once_and_never_followed(
    trap: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "tier"
    folder.mkdir()
    for name in ("status.json", "control.lock", ".state.new"):
        trap(folder / name)
    for refused in (
        lambda: read_small(str(tmp_path), "tier", "status.json"),
        lambda: SmallFiles(str(tmp_path)).read("tier/status.json"),
        lambda: SmallFiles(str(tmp_path)).write("tier/state", b"mine"),
        lambda: pause(str(tmp_path), "tier", TABLE),
    ):
        with pytest.raises(StorageError, match=r"(status\.json|control\.lock|state).*\w"):
            refused()
    assert {path.read_bytes() for path in folder.glob("elsewhere")} <= {b"kept"}


def test_a_lock_that_another_process_holds_for_too_long_is_an_error_that_names_it(tmp_path: Path) -> None:
    with open_private(tmp_path / "control.lock", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with (
            pytest.raises(BlockingIOError, match=r"held its lock for 0 s.*control\.lock"),
            locked(tmp_path / "control.lock", 0, waiting=lambda _s: None),
        ):
            pass


def test_a_command_says_which_lock_it_does_not_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_LOCK_S", 0.0)
    (tmp_path / "tier").mkdir()
    with locked(tmp_path / "tier" / "control.lock", 0), pytest.raises(StorageError, match=r"control\.lock.*locked"):
        pause(str(tmp_path), "tier", TABLE)
