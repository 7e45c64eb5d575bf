"""The lock by which a service is seen before its first report."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakeward.errors import StorageError
from lakeward.observe.presence import LOCK_FILE, no_start_meanwhile, show_presence
from lakeward_testing.waiting import LIMIT_S


def alone(root: Path) -> bool:
    with no_start_meanwhile(str(root), "tier") as found:
        return found


def test_a_service_is_there_until_its_last_process_has_gone(tmp_path: Path) -> None:
    first, second = (show_presence(str(tmp_path), "tier") for _ in range(2))
    assert not alone(tmp_path)
    first()
    assert not alone(tmp_path)
    second()
    assert alone(tmp_path)


def test_a_killed_process_is_not_there_any_more(tmp_path: Path) -> None:
    code = "from lakeward.observe.presence import show_presence; import sys"
    code += "; close = show_presence(sys.argv[1], 'tier'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert not alone(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    assert alone(tmp_path)


def test_a_start_waits_for_a_command_that_deletes(tmp_path: Path) -> None:
    show_presence(str(tmp_path), "tier")()
    begun, there = threading.Event(), threading.Event()

    def start() -> None:
        begun.set()
        close = show_presence(str(tmp_path), "tier")
        there.set()
        close()

    starting = threading.Thread(target=start)
    with no_start_meanwhile(str(tmp_path), "tier") as found:
        assert found
        starting.start()
        assert begun.wait(LIMIT_S)
        with pytest.raises(StorageError, match=f"{LOCK_FILE}: a command that deletes"):
            show_presence(str(tmp_path), "tier", limit_s=0)
        assert not there.is_set()
    assert there.wait(LIMIT_S)
    starting.join(LIMIT_S)


def test_a_command_makes_no_folder_for_a_service_that_has_none(tmp_path: Path) -> None:
    assert alone(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_has_no_locks(tmp_path: Path) -> None:
    show_presence("s3://bucket/state", "tier")()
    with no_start_meanwhile("s3://bucket/state", "tier") as found:
        assert found
    assert list(tmp_path.iterdir()) == []
