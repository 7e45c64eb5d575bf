from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lakeward.errors import CorruptFileError
from lakeward.model.dead_letters import LetterFilter, ReplayRequest
from lakeward.model.tables import TablePath
from lakeward.observe.control import (
    CONTROL_FILE,
    Control,
    ControlReader,
    ask_replay,
    ask_upkeep,
    pause,
    read_control,
    resume,
)
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from pathlib import Path

FLIGHTS = TablePath("nyc", "flights")


def test_without_a_file_nothing_is_asked(root: str) -> None:
    assert read_control(root, "nyc") == Control()


def test_a_pause_is_read_back_until_it_is_taken_back(root: str) -> None:
    assert pause(root, "nyc", FLIGHTS)
    assert read_control(root, "nyc").paused == {"nyc.flights"}
    assert resume(root, "nyc", FLIGHTS)
    assert read_control(root, "nyc").paused == frozenset()


def test_asking_twice_changes_nothing(root: str) -> None:
    pause(root, "nyc", FLIGHTS)
    assert not pause(root, "nyc", FLIGHTS)
    assert not resume(root, "nyc", TablePath("nyc", "other"))


def test_each_resume_is_another_request_though_nothing_is_paused(root: str) -> None:
    resume(root, "nyc", FLIGHTS)
    pause(root, "nyc", TablePath("nyc", "other"))
    resume(root, "nyc", FLIGHTS)
    assert read_control(root, "nyc") == Control(frozenset({"nyc.other"}), {"nyc.flights": 2})


def test_each_request_of_upkeep_is_another_one_and_changes_no_other_request(root: str) -> None:
    pause(root, "nyc", FLIGHTS)
    ask_upkeep(root, "nyc", FLIGHTS)
    ask_upkeep(root, "nyc", FLIGHTS)
    assert read_control(root, "nyc") == Control(frozenset({"nyc.flights"}), {}, {"nyc.flights": 2})
    resume(root, "nyc", FLIGHTS)
    assert read_control(root, "nyc") == Control(frozenset(), {"nyc.flights": 1}, {"nyc.flights": 2})


def test_each_request_of_a_replay_is_another_one_with_the_letters_that_were_meant_last(root: str) -> None:
    ask_upkeep(root, "nyc", FLIGHTS)
    ask_replay(root, "nyc", FLIGHTS, LetterFilter("name"))
    ask_replay(root, "nyc", FLIGHTS, LetterFilter(code="LW-406"))
    asked = Control(upkeep={"nyc.flights": 1}, replay={"nyc.flights": ReplayRequest(2, None, "LW-406")})
    assert read_control(root, "nyc") == asked
    pause(root, "nyc", FLIGHTS)
    assert read_control(root, "nyc").replay == asked.replay


def test_services_do_not_see_each_others_requests(root: str) -> None:
    pause(root, "nyc", FLIGHTS)
    assert read_control(root, "other") == Control()


def test_requests_at_the_same_time_are_all_kept(root: str) -> None:
    tables = [TablePath("db", f"t{number}") for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda table: pause(root, "nyc", table), tables))
    assert read_control(root, "nyc").paused == {str(table) for table in tables}


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
    assert [one.get("failures") for one in said] == [None, None, None, 4]
    assert all("control.json" in one["reason"] for one in said[:3])


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version":2,"paused":[]}', b'{"version":1,"paused":[],"x":1}'])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "nyc").mkdir()
    (tmp_path / "nyc" / CONTROL_FILE).write_bytes(damage)
    with pytest.raises(CorruptFileError, match=r"control\.json"):
        read_control(str(tmp_path), "nyc")


def test_commands_on_two_tables_never_write_the_same_object(s3_root: str, s3: Any) -> None:  # noqa: ANN401 - the fixture's server
    pause(s3_root, "nyc", FLIGHTS)
    pause(s3_root, "nyc", TablePath("nyc", "a/b"))
    written = [path for method, path in s3.requests if method == "PUT"]
    assert len(set(written)) == 2
    assert read_control(s3_root, "nyc").paused == {"nyc.flights", "nyc.a/b"}


@pytest.mark.parametrize("damage", [b"", b'{"version":2,"table":"nyc.flights","paused":true,"resumed":0}'])
def test_a_damaged_object_is_named(s3_root: str, damage: bytes) -> None:
    pause(s3_root, "nyc", FLIGHTS)
    SmallFiles(s3_root).write("nyc/control/nyc.flights.json", damage)
    with pytest.raises(CorruptFileError, match=r"nyc\.flights\.json"):
        read_control(s3_root, "nyc")
