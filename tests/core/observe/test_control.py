from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakeward.errors import CorruptFileError
from lakeward.model.tables import TablePath
from lakeward.observe.control import CONTROL_FILE, Control, ControlReader, pause, read_control, resume

if TYPE_CHECKING:
    from pathlib import Path

FLIGHTS = TablePath("nyc", "flights")


def test_without_a_file_nothing_is_asked(tmp_path: Path) -> None:
    assert read_control(str(tmp_path), "nyc") == Control()


def test_a_pause_is_read_back_until_it_is_taken_back(tmp_path: Path) -> None:
    assert pause(str(tmp_path), "nyc", FLIGHTS)
    assert read_control(str(tmp_path), "nyc").paused == {"nyc.flights"}
    assert resume(str(tmp_path), "nyc", FLIGHTS)
    assert read_control(str(tmp_path), "nyc").paused == frozenset()


def test_asking_twice_changes_nothing(tmp_path: Path) -> None:
    pause(str(tmp_path), "nyc", FLIGHTS)
    assert not pause(str(tmp_path), "nyc", FLIGHTS)
    assert not resume(str(tmp_path), "nyc", TablePath("nyc", "other"))


def test_each_resume_is_another_request_though_nothing_is_paused(tmp_path: Path) -> None:
    resume(str(tmp_path), "nyc", FLIGHTS)
    pause(str(tmp_path), "nyc", TablePath("nyc", "other"))
    resume(str(tmp_path), "nyc", FLIGHTS)
    assert read_control(str(tmp_path), "nyc") == Control(frozenset({"nyc.other"}), {"nyc.flights": 2})


def test_services_do_not_see_each_others_requests(tmp_path: Path) -> None:
    pause(str(tmp_path), "nyc", FLIGHTS)
    assert read_control(str(tmp_path), "other") == Control()


def test_requests_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    tables = [TablePath("db", f"t{number}") for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda table: pause(str(tmp_path), "nyc", table), tables))
    assert read_control(str(tmp_path), "nyc").paused == {str(table) for table in tables}


def test_a_service_goes_on_with_what_it_read_last_and_warns_once(tmp_path: Path) -> None:
    reader = ControlReader(str(tmp_path), "nyc")
    pause(str(tmp_path), "nyc", FLIGHTS)
    assert reader.read().paused == {"nyc.flights"}
    file = tmp_path / "nyc" / CONTROL_FILE
    with capture_logs() as said:
        for damage in (b"", b"", b"{}"):
            file.write_bytes(damage)
            assert reader.read().paused == {"nyc.flights"}
        file.unlink()
        file.mkdir()
        assert reader.read().paused == {"nyc.flights"}
        file.rmdir()
        assert reader.read() == Control()
    assert [one["log_level"] for one in said] == ["warning", "warning", "warning", "info"]
    assert all("control.json" in one["reason"] for one in said[:3])


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version":2,"paused":[]}', b'{"version":1,"paused":[],"x":1}'])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "nyc").mkdir()
    (tmp_path / "nyc" / CONTROL_FILE).write_bytes(damage)
    with pytest.raises(CorruptFileError, match=r"control\.json"):
        read_control(str(tmp_path), "nyc")
