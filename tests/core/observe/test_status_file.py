from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from lakeward.clock import SystemClock
from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.status import LakeAway, RoundReport, ServiceReport, TableReport
from lakeward.observe import status_file
from lakeward.observe.services import see_service_named
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from pathlib import Path

ROUND = RoundReport("7-1-1", "committed", 10, 1810, 12345, 4, 4, 4, 1000, 6858.3, 99, "", {"read": 0.5})
TABLE = TableReport("nyc.flights", 7, "idle", "", 0, 0.0, 3, 12345, ROUND)
REPORT = ServiceReport("nyc", "nyc-1-0123456789abcdef", os.getpid(), "serving", 5000, None, (TABLE,), "id", 4, 0)


def test_a_report_is_read_as_it_was_written(root: str) -> None:
    status_file.write(root, "nyc", REPORT)
    assert status_file.read(root, "nyc") == REPORT


def test_a_service_that_never_ran_has_no_report(root: str) -> None:
    assert status_file.read(root, "nyc") is None


def test_the_line_of_a_running_service_says_that_the_catalog_does_not_answer(root: str) -> None:
    now_ms = SystemClock().wall_ms()
    away = LakeAway(now_ms - 40_000, 31, "catalog.db: database is locked")
    status_file.write(root, "nyc", replace(REPORT, written_ms=now_ms, host=socket.gethostname(), lake_away=away))
    said = "catalog does not answer for 40 s, 31 tables wait: catalog.db: database is locked"
    assert see_service_named(root, "nyc").message == f"serving, process {os.getpid()}; {said}"


def test_a_file_uri_is_this_machine(tmp_path: Path) -> None:
    status_file.write(f"file://{tmp_path}", "nyc", REPORT)
    assert (tmp_path / "nyc" / "status.json").is_file()


def test_nothing_but_the_report_is_left_behind(tmp_path: Path) -> None:
    for _ in range(3):
        status_file.write(str(tmp_path), "nyc", REPORT)
    assert [path.name for path in (tmp_path / "nyc").iterdir()] == ["status.json"]


def test_a_damaged_report_names_the_file(tmp_path: Path) -> None:
    status_file.write(str(tmp_path), "nyc", REPORT)
    (tmp_path / "nyc" / "status.json").write_bytes(b'{"service": 1}')
    with pytest.raises(CorruptFileError, match=r"status\.json"):
        status_file.read(str(tmp_path), "nyc")


def test_a_store_of_an_unknown_kind_is_refused_without_telling_the_password() -> None:
    with pytest.raises(StorageError, match="gopher") as caught:
        status_file.write("gopher://me:hush@bucket/state", "nyc", REPORT)
    assert "hush" not in str(caught.value)


def test_a_damaged_report_in_a_store_names_the_file(s3_root: str) -> None:
    SmallFiles(s3_root).write("nyc/status.json", b'{"service": 1}')
    with pytest.raises(CorruptFileError, match=r"state/nyc/status\.json"):
        status_file.read(s3_root, "nyc")


def test_the_process_of_another_machine_is_not_looked_for_here() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    there = replace(REPORT, pid=child.pid, host="elsewhere")
    here = replace(REPORT, pid=child.pid, host=socket.gethostname())
    assert status_file.is_running(there, REPORT.written_ms)
    assert not status_file.is_running(here, REPORT.written_ms)
    assert not status_file.is_running(there, REPORT.written_ms + status_file.SILENT_AFTER_MS)


def test_a_root_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match="cannot be written"):
        status_file.write(str(tmp_path / "file"), "nyc", REPORT)


def test_a_service_that_just_wrote_runs() -> None:
    assert status_file.is_running(REPORT, REPORT.written_ms + 1000)


def test_a_service_that_stopped_does_not_run() -> None:
    assert not status_file.is_running(replace(REPORT, state="stopped"), REPORT.written_ms)


def test_a_service_that_has_been_silent_for_long_does_not_run() -> None:
    assert not status_file.is_running(REPORT, REPORT.written_ms + status_file.SILENT_AFTER_MS)


def test_a_service_whose_process_is_gone_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not status_file.is_running(replace(REPORT, pid=child.pid), REPORT.written_ms)
