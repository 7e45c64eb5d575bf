"""Files of state: for their user alone whatever the umask, and plain files only."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import StorageError
from lakeward.local_files import locked, open_private
from lakeward.model.status import RoundReport
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
        RoundReport("svc-1/7-1-1", "committed", 1, 2, 0, 1, 0, 0, 0, 0.0, None, table="shop.orders", table_id=7)
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


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv, which takes root's rights away, is not installed")
def test_a_folder_that_may_not_be_entered_is_no_internal_error(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o000)
    look = "print(reached_by_others(*sys.argv[1:]), writable(sys.argv[1]))"
    program = f"import sys; from lakeward.observe.files import reached_by_others, writable; {look}"
    without_rights = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.getuid() == 0 else []
    command = [*without_rights, sys.executable, "-c", program, str(state), "lakeward"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("None (False, ")
    assert f"{state} cannot be written" in done.stdout
