from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace
from structlog.testing import capture_logs

from lakeward.errors import StorageError
from lakeward.model.status import RoundReport
from lakeward.storage.round_history import HISTORY_FILE, KEPT, NEWEST, HistoryWriter, RoundHistory, find_rounds
from lakeward.storage.small_files import SmallFiles
from lakeward_testing.waiting import LIMIT_S

RECORD = RoundReport(
    "svc-1-00/1-1-1", "committed", 1, 2, 5, 1, 1, 1, 100, 5000.0, 55, timings_s={"job": 0.5}, table="t.log",
    table_id=1, kind="log", offsets={"1/0": 5}, end_offset=5,
)  # fmt: skip
NAME = f"svc/{HISTORY_FILE}"


def numbered(number: int, table_id: int = 1) -> RoundReport:
    return replace(RECORD, table_id=table_id, round_name=f"svc-1-00/{table_id}-1-{number}", ended_ms=number)


def test_rounds_outlive_the_service_and_come_the_newest_first(root: str) -> None:
    RoundHistory(SmallFiles(root), "svc").add(numbered(1))
    later = RoundHistory(SmallFiles(root), "svc")
    later.add(replace(numbered(2), outcome="failed", reason="disk full", code="LW-302"))
    first, second = RoundHistory(SmallFiles(root), "svc").read()
    assert (first.ended_ms, first.code, second) == (2, "LW-302", numbered(1))


def test_there_are_none_before_the_first(root: str) -> None:
    assert RoundHistory(SmallFiles(root), "svc").read() == []


def test_a_line_that_a_crash_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    files = SmallFiles(str(tmp_path))
    RoundHistory(files, "svc").add(numbered(1))
    file = tmp_path / NAME
    file.write_bytes(file.read_bytes() + b'{"version":2,"round":{"round_name":"s')
    history = RoundHistory(files, "svc")
    assert history.read() == [numbered(1)]
    history.add(numbered(2))
    assert history.read() == [numbered(2), numbered(1)]


def test_a_line_of_another_version_is_skipped(tmp_path: Path) -> None:
    files = SmallFiles(str(tmp_path))
    history = RoundHistory(files, "svc")
    history.add(numbered(1))
    file = tmp_path / NAME
    file.write_bytes(file.read_bytes() * 2 + file.read_bytes().replace(b'"version":2', b'"version":3'))
    assert history.read() == [numbered(1), numbered(1)]


def test_a_line_of_a_release_that_kept_no_freshness_is_read(tmp_path: Path) -> None:
    line = (
        b'{"version":1,"round":{"table":"t.log","table_id":1,"round":"svc-1-00/1-1-1","outcome":"committed",'
        b'"kind":"log","started_ms":1,"ended_ms":2,"rows":5,"splits":1,"splits_done":1,"files":1,"size_bytes":100,'
        b'"snapshot_id":55,"timings_s":{"job":0.5},"offsets":{"1/0":5},"end_offset":5,"launches":0,"failovers":0,'
        b'"checkpoints":0,"aborted":0,"resumed_from":"","exchanged_bytes":null,"reason":"","code":""}}\n'
    )
    (tmp_path / "svc").mkdir()
    (tmp_path / NAME).write_bytes(line)
    history = RoundHistory(SmallFiles(str(tmp_path)), "svc")
    (record,) = history.read()
    assert record == RECORD
    history.add(numbered(3))
    assert history.read() == [numbered(3), RECORD], "lines of both versions"
    assert (record.complete_ms, record.freshness_s, record.missed_by_s) == (None, None, None)


def test_a_promise_is_missed_by_what_the_lake_was_older_than_promised() -> None:
    record = replace(RECORD, ended_ms=70_000, complete_ms=10_000)
    missed = [replace(record, freshness_s=promised).missed_by_s for promised in (None, 48.0, 60.0, 90.0)]
    assert missed == [None, 12.0, 0.0, 0.0]


def test_up_to_when_each_table_was_complete_outlives_the_service(root: str) -> None:
    """A round that left rows, or failed, does not say: what was known before it still holds."""
    history = RoundHistory(SmallFiles(root), "svc")
    for number, complete_ms in enumerate((500, 700, None)):
        history.add(replace(numbered(1000 + number), complete_ms=complete_ms))
    history.add(numbered(2000, table_id=2))
    assert RoundHistory(SmallFiles(root), "svc").complete_ms() == {1: 700}


def test_a_history_that_cannot_be_read_says_nothing_of_freshness(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    with capture_logs() as logs:
        assert RoundHistory(SmallFiles(str(tmp_path)), "svc").complete_ms() == {}
    assert [line["event"] for line in logs] == ["the rounds that ended cannot be read"]


MINUTE_MS, DAY_MS = 60_000, 86_400_000


def test_of_each_table_the_newest_are_kept_and_others_that_show_the_day(tmp_path: Path) -> None:
    """A round each three minutes, for two days."""
    files = SmallFiles(str(tmp_path))
    history = RoundHistory(files, "svc")
    history.add(numbered(0, table_id=2))
    rounds = 2 * 480
    for number in range(1, rounds + 1):
        history.add(numbered(number * 3 * MINUTE_MS))
    *kept, other = RoundHistory(files, "svc").read()
    assert (other.table_id, len(kept)) == (2, KEPT)
    numbers = [(one.ended_ms or 0) // (3 * MINUTE_MS) for one in kept]
    assert numbers[:NEWEST] == list(range(rounds, rounds - NEWEST, -1))
    older = numbers[NEWEST - 1 :]
    assert older[-1] >= rounds - 480
    gaps = [later - earlier for later, earlier in pairwise(older)]
    assert max(gaps) <= 4 * (480 - NEWEST) / (KEPT - NEWEST)
    assert list(history.of(1)) == kept[::-1]
    assert len((tmp_path / NAME).read_bytes().splitlines()) <= 3 * (KEPT + 1) + KEPT


def test_rounds_that_failed_are_kept_longer_than_others_of_their_day(tmp_path: Path) -> None:
    history = RoundHistory(SmallFiles(str(tmp_path)), "svc")
    failed = [20, 77, 140]
    for number in range(1, 300):
        record = numbered(number * MINUTE_MS)
        history.add(replace(record, outcome="failed") if number in failed else record)
    kept = [one for one in history.of(1) if one.outcome == "failed"]
    assert [(one.ended_ms or 0) // MINUTE_MS for one in kept] == failed


def test_what_is_older_than_a_day_goes_first(tmp_path: Path) -> None:
    history = RoundHistory(SmallFiles(str(tmp_path)), "svc")
    history.add(replace(numbered(1), outcome="failed"))
    for number in range(KEPT):
        history.add(numbered(DAY_MS + 2 + number))
    assert [one.ended_ms for one in history.of(1)] == [DAY_MS + 2 + number for number in range(KEPT)]


def test_a_later_start_knows_the_rounds_of_a_table_from_the_beginning(root: str) -> None:
    """And adds its own; those of a table that it has never heard of are none."""
    earlier = RoundHistory(SmallFiles(root), "svc")
    for number in (1, 2):
        earlier.add(numbered(number))
    later = RoundHistory(SmallFiles(root), "svc")
    later.complete_ms()
    assert later.of(1) == (numbered(1), numbered(2))
    later.add(numbered(3))
    assert [one.ended_ms for one in later.of(1)] == [1, 2, 3]
    assert later.of(2) == ()


def test_a_round_is_found_by_its_full_and_by_its_short_name() -> None:
    records = [replace(RECORD, round_name="svc-2-00/1-1-1"), RECORD]
    assert find_rounds(records, "1-1-1") == records
    assert find_rounds(records, "svc-1-00/1-1-1") == [RECORD]
    assert find_rounds(records, "1-1-2") == []


class SlowHistory(RoundHistory):
    """A history on a disk that hangs, then refuses."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.tried: list[RoundReport] = []

    def add(self, record: RoundReport) -> None:
        self.go_on.wait(LIMIT_S)
        self.tried.append(record)
        message = "disk full"
        raise StorageError(message)


def test_a_disk_that_hangs_or_refuses_keeps_nobody_from_tiering() -> None:
    history = SlowHistory()
    writer = HistoryWriter(history)
    with capture_logs() as logs:
        writer.add(numbered(1))
        writer.add(numbered(2))
        assert history.tried == []
        history.go_on.set()
        writer.close()
    assert history.tried == [numbered(1), numbered(2)]
    assert [line["reason"] for line in logs] == ["disk full"]
