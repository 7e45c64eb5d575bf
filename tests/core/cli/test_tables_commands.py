from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from lakeward.clock import SystemClock
from lakeward.local_files import locked, make_private
from lakeward.model.identity import Incarnation
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.status import (
    CheckpointReport,
    ExchangeReport,
    RoundReport,
    ServiceReport,
    TableReport,
    UpkeepReport,
)
from lakeward.model.tables import TableBucket, TablePath
from lakeward.model.upkeep import FileCounts
from lakeward.observe import control, status_file
from lakeward.observe.control import ControlReader, read_control
from lakeward.observe.format import date_time
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.store import EmbeddedStore

Lakeward = Callable[..., Any]


def test_tables_are_shown_without_a_service(flights: Lakeward) -> None:
    said = flights("tables")
    assert said.out.startswith("service nyc: has never run here\n")
    line, cause = said.out.splitlines()[2:4]
    assert line.startswith("nyc.flights  new")
    assert cause.startswith("  cause: Never tiered; 3 rows wait")


@pytest.fixture
def unreadable(flights: Lakeward, tmp_path: Any) -> Lakeward:  # noqa: ANN401 - a path
    """Beside the table `nyc.flights`, one that the source cannot describe."""
    with EmbeddedStore.open(tmp_path / "store") as store:
        spec = store.create_table(TablePath("nyc", "broken"), pa.schema([("id", pa.int64())]), buckets=1)
        with store.database.write() as sql:
            sql.execute("UPDATE schemas SET arrow = x'00' WHERE table_id = ?", (spec.table_id,))
    return flights


BROKEN = "definition of table nyc.broken: expected columns and keys of a table"


def test_a_table_that_the_source_cannot_describe_is_unreadable_and_the_others_are_shown(unreadable: Lakeward) -> None:
    broken, flights = unreadable("tables", "-o", "json").document["tables"]
    assert (broken["path"], broken["status"]) == ("nyc.broken", "unreadable")
    assert BROKEN in broken["message"]
    assert (flights["path"], flights["status"]) == ("nyc.flights", "new")


def test_a_table_that_the_source_cannot_describe_has_an_impossible_next_round(unreadable: Lakeward) -> None:
    broken, flights = unreadable("plan", "-o", "json").document["rounds"]
    assert (broken["action"], flights["action"]) == ("impossible", "tier")
    assert BROKEN in broken["reason"]


def test_check_refuses_a_table_that_the_source_cannot_describe_unless_it_is_left_out(unreadable: Lakeward) -> None:
    said = unreadable("config", "check")
    assert said.code == 1
    assert "table nyc.broken" in said.out
    assert BROKEN in said.out
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write('[tables."nyc.broken"]\ninclude = false\n')
    assert unreadable("config", "check").code == 0


def test_a_store_lists_a_table_that_it_cannot_describe(unreadable: Lakeward) -> None:
    broken, flights = unreadable("embedded", "list", "-o", "json").document["tables"]
    assert BROKEN in broken["unreadable"]
    assert flights["unreadable"] == ""


def test_tables_are_shown_as_json(flights: Lakeward) -> None:
    document = flights("tables", "-o", "json").document
    (table,) = document["tables"]
    assert (table["path"], table["end"], table["tiered"], table["lag_rows"]) == ("nyc.flights", 3, 0, 3)
    assert table["buckets"][0]["end"] == 3
    assert document["service"]["running"] is False


def test_the_promised_and_the_delivered_freshness_are_shown(
    flights: Lakeward,
    tmp_path: Any,  # noqa: ANN401 - a path
) -> None:
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write('[tables."nyc.flights"]\nfreshness_s = 200\n')
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert (table["freshness_s"], table["complete_ms"]) == (200.0, None)
    with EmbeddedStore.open(tmp_path / "store") as store:
        spec = store.table(TablePath("nyc", "flights"))
        bucket = store.buckets(spec.path)[0].bucket
    own = OffsetCommit(5, {bucket: 3}, None, Incarnation("nyc", 1, "0" * 16), "1-1-1", 1, 0)
    Path("head.pickle").write_bytes(pickle.dumps(LakeHead(spec.path, spec.table_id, "/w", 5, None, own, own)))
    began = SystemClock().wall_ms()
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert began <= table["complete_ms"] <= SystemClock().wall_ms()
    head, line = flights("tables").out.splitlines()[1:]
    start = head.index("complete up to")
    assert line[start : start + len("complete up to  ")].strip() == "0.0 s ago"
    assert line[start + len("complete up to  ") :].startswith("3 min 20 s  ")


PARTITIONED = '[tables."nyc.flights"]\nlake_partition = ["{field}"]\n'


def partition(field: str) -> None:
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write(PARTITIONED.format(field=field))


def test_a_tables_layout_and_route_are_shown_where_there_is_one(flights: Lakeward) -> None:
    assert "lake partition" not in flights("tables").out
    partition("name")
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert (table["lake_partition"], table["exchange"]) == (["name"], "none")
    shown = flights("tables").out.splitlines()
    assert shown[3:5] == ["  lake partition: name", "  exchange: none"]


def test_columns_without_a_value_are_shown_only_if_all_are_asked_for(flights: Lakeward) -> None:
    head = flights("tables").out.splitlines()[1]
    assert head.split("  ")[-1].strip() == "last commit"
    wide = flights("tables", "--wide").out.splitlines()
    assert [name for name in wide[1].split("  ") if name][-4:] == ["lake partition", "exchange", "cause", "what to do"]
    assert "Never tiered; 3 rows wait" in wide[2]


def test_a_long_cause_is_shown_whole_in_160_columns(flights: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    cause = "the lake cannot be written, " + ", ".join(f"for reason {number}" for number in range(60))
    table = TableReport("nyc.flights", 1, "failed", cause, 10, None, 0, 0, None)
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "stopped", 0, None, (table,), None, 0, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    said = flights("tables").out
    assert max(map(len, said.splitlines())) <= 160
    assert cause in " ".join(said.split())
    assert cause in flights("tables", "--wide").out


def test_a_layout_that_is_impossible_is_told_beside_the_table(flights: Lakeward) -> None:
    partition("day(name)")
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert 'Its layout is impossible: tables."nyc.flights".lake_partition: expected for day a' in table["message"]
    assert table["exchange"] == "impossible"


def test_a_layout_that_a_service_has_found_to_be_impossible_is_told_once(
    flights: Lakeward,
    tmp_path: Any,  # noqa: ANN401 - a path
) -> None:
    partition("day(name)")
    reason = (
        "tables.\"nyc.flights\".lake_partition: expected for day a date or timestamp, found 'name (string)'. In "
        "'day(name)'."
    )
    table = TableReport("nyc.flights", 1, "failed", reason, 10, None, 0, 0, None)
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "stopped", 0, None, (table,), None, 0, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    message = flights("tables", "-o", "json").document["tables"][0]["message"]
    assert message.startswith(f"{reason} Never tiered; 3 rows wait")
    assert message.count("expected for day") == 1


def test_what_an_exchange_moved_and_what_its_checkpoint_holds_are_shown(
    flights: Lakeward,
    tmp_path: Any,  # noqa: ANN401 - a path
) -> None:
    partition("name")
    cut = CheckpointReport("nyc-1/7-1/chk-4", 0, 2.0, 2048, 0, "", "unaligned", 3 << 20, 5 << 20, blocked_s=0.5)
    moved = ExchangeReport(sent_bytes=9 << 20, received_bytes=7 << 20, queued_bytes=0, credit_wait_s=1.5, skew=2.0)
    last = RoundReport("7-1-1", "running", 0, None, 9, 4, 1, 1, 10, 5.0, None, checkpoint=cut, exchange=moved)
    table = TableReport("nyc.flights", 1, "running", "", 10, None, 0, 0, last)
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "serving", 0, None, (table,), None, 0, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    said = flights("tables").out
    assert "9.0 MiB, skew 2.0, waited 1.5 s" in said
    held = "2.0 KiB besides 3.0 MiB in channels, 5.0 MiB in open files; unaligned, blocked for 0.5 s"
    assert f"chk-4, {date_time(0)}, took 2.0 s, {held}" in said


@pytest.mark.parametrize(
    ("upkeep", "said"),
    [
        (UpkeepReport("compaction", "running", 2, 12, 3 << 20, 0), "compaction running, 12 files of 3.0 MiB"),
        (
            UpkeepReport("compaction", "committed", 2, 12, 3 << 20, 0, 2, 1 << 20, ended_ms=0),
            f"compaction committed, 12 files of 3.0 MiB became 2 of 1.0 MiB, {date_time(0)}",
        ),
        (
            UpkeepReport("compaction", "cancelled", 1, 1, 1 << 20, 0, ended_ms=0, reason="a round needs its slots"),
            f"compaction cancelled, 1 file of 1.0 MiB, {date_time(0)}: a round needs its slots",
        ),
    ],
    ids=["running", "committed", "cancelled"],
)
def test_the_newest_job_of_upkeep_is_shown(
    flights: Lakeward,
    tmp_path: Any,  # noqa: ANN401 - a path
    upkeep: UpkeepReport,
    said: str,
) -> None:
    table = TableReport("nyc.flights", 1, "idle", "", 10, None, 0, 0, None, upkeep=upkeep)
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "serving", 0, None, (table,), None, 0, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    assert f"  last upkeep: {said}" in flights("tables").out.splitlines()
    assert flights("tables", "-o", "json").document["tables"][0]["upkeep"] == to_builtins(upkeep)


def test_small_files_and_deletes_are_shown(flights: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    counts = FileCounts(12, 3 << 20, 9, 0, 0)
    table = TableReport("nyc.flights", 1, "idle", "", 10, None, 0, 0, None, counts=counts)
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "serving", 0, None, (table,), None, 0, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    assert "12 files of 3.0 MiB, 9 small" in flights("tables", "--wide").out
    assert "lake files" not in flights("tables").out
    assert flights("tables", "-o", "json").document["tables"][0]["counts"] == to_builtins(counts)
    upkeep = UpkeepReport("compaction", "running", 1, 9, 1 << 20, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", replace(report, tables=(replace(table, upkeep=upkeep),)))
    assert "  lake files: 12 files of 3.0 MiB, 9 small" in flights("tables").out.splitlines()


def test_list_is_the_default_command(flights: Lakeward) -> None:
    assert (
        flights("tables", "--buckets").out.splitlines()[-1]
        == flights("tables", "list", "--buckets").out.splitlines()[-1]
    )


def test_a_table_that_is_not_included_is_not_shown(flights: Lakeward) -> None:
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write('[tables."nyc.*"]\ninclude = false\n')
    assert flights("tables", "-o", "json").document["tables"] == []


def test_a_dead_service_is_told(flights: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", 2**22 + 1, "serving", 0, None, (), None, 0, 0)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    assert "died: process 4194305 is gone" in flights("tables").out


def test_pause_and_resume_reach_the_control_file(flights: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    root = str(tmp_path / "lakeward-state")
    said = flights("tables", "pause", "nyc.flights")
    assert said.out == "nyc.flights is paused. No service reports that it runs; one that starts keeps the pause.\n"
    assert read_control(root, "nyc").paused == {"nyc.flights"}
    assert flights("tables", "-o", "json").document["tables"][0]["status"] == "paused"
    assert flights("tables", "resume", "nyc.flights").out == "nyc.flights is resumed.\n"
    assert read_control(root, "nyc").paused == frozenset()


def test_a_pause_reaches_a_service_that_starts(flights: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    """Until a service has reported, nobody knows of it; it reads the pause with its first look at the tables."""
    root = str(tmp_path / "lakeward-state")
    service = ControlReader(root, "nyc")
    assert flights("tables", "pause", "nyc.flights").code == 0
    assert service.read().paused == {"nyc.flights"}
    report = ServiceReport("nyc", "nyc-1-0123456789abcdef", os.getpid(), "starting", 0, None, (), None, 0, 0)
    status_file.write(root, "nyc", replace(report, written_ms=SystemClock().wall_ms()))
    assert flights("tables", "resume", "nyc.flights").code == 0
    assert flights("tables", "pause", "nyc.flights").out == "nyc.flights is paused.\n"


def test_a_lock_that_a_command_holds_for_long_says_what_to_do(
    flights: Lakeward,
    tmp_path: Any,  # noqa: ANN401 - a path
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "_LOCK_S", 0.0)
    make_private(tmp_path / "lakeward-state" / "nyc")
    with locked(tmp_path / "lakeward-state" / "nyc" / "control.lock", 60):
        said = flights("tables", "pause", "nyc.flights")
    assert said.code == 1
    assert "nothing was changed. If another `lakeward tables` command hangs, end it; then try again" in said.err


def test_resume_asks_a_running_service_to_go_on_with_a_table_that_it_suspended(
    flights: Lakeward,
    tmp_path: Any,  # noqa: ANN401 - a path
) -> None:
    root = str(tmp_path / "lakeward-state")
    now_ms = SystemClock().wall_ms()
    table = TableReport("nyc.flights", 1, "suspended", "types differ", 10, None, 0, 0, None)
    who, pid = "nyc-1-0123456789abcdef", os.getpid()
    report = ServiceReport("nyc", who, pid, "serving", now_ms, None, (table,), None, 0, 0)
    status_file.write(root, "nyc", report)
    assert flights("tables", "resume", "nyc.flights").out == "nyc.flights was suspended; it is tried again.\n"
    assert read_control(root, "nyc").resumed == {"nyc.flights": 1}


def test_commands_work_where_the_state_lies_in_a_store(
    flights: Lakeward,
    s3_root: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service reports from another machine: its report is all that is known here."""
    monkeypatch.setenv("LAKEWARD_CHECKPOINT__ROOT", s3_root)
    report = ServiceReport(
        "nyc", "nyc-1-0123456789abcdef", 2**22 + 1, "serving", SystemClock().wall_ms(), None, (), None, 0, 0
    )
    status_file.write(s3_root, "nyc", replace(report, host="elsewhere"))

    assert flights("tables", "pause", "nyc.flights").out == "nyc.flights is paused.\n"
    document = flights("tables", "-o", "json").document
    assert document["service"]["running"]
    assert document["service"]["pid"] == report.pid
    assert flights("leases").code == 0
    assert flights("checkpoints", "list", "-o", "json").document["checkpoints"] == []
    status_file.write(s3_root, "nyc", replace(report, host="elsewhere", written_ms=0))
    said = flights("tables")
    assert "silent since" in said.out
    assert "process 4194305 on elsewhere" in said.out
    assert flights("tables", "-o", "json").document["tables"][0]["status"] == "paused"


@pytest.mark.parametrize("command", ["pause", "tier-now"])
def test_a_table_that_is_not_there_is_named(flights: Lakeward, command: str) -> None:
    said = flights("tables", command, "nyc.plane")
    assert said.code == 1
    assert said.err.startswith("error[LW-401]: ")


def test_tier_now_makes_a_table_due(flights: Lakeward) -> None:
    said = flights("tables", "tier-now", "nyc.flights", "-o", "json")
    assert said.document == {"table": "nyc.flights", "due": True, "running": False}


def test_tier_now_does_not_say_that_it_can_move_a_mirrored_table(flights: Lakeward) -> None:
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write('[tables."nyc.*"]\nmode = "mirror"\n')
    said = flights("tables", "tier-now", "nyc.flights")
    assert said.code == 2
    assert "is mirrored" in said.err


def test_a_store_without_tables_says_so(configured: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    EmbeddedStore.create(tmp_path / "store").close()
    assert "The source has no table to tier." in configured("tables").out


def test_one_table_is_shown_where_it_is_named(flights: Lakeward, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_table(TablePath("nyc", "planes"), pa.schema([("id", pa.int64())]), buckets=1)
    assert len(flights("tables", "-o", "json").document["tables"]) == 2
    for words in (("tables", "list", "nyc.planes"), ("tables", "nyc.planes")):
        (only,) = flights(*words, "-o", "json").document["tables"]
        assert only["path"] == "nyc.planes"
    wrong = flights("tables", "list", "nyc.trains")
    assert (wrong.code, wrong.err.startswith("error[LW-401]: ")) == (1, True)
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as config:
        config.write('\n[tables."nyc.planes"]\ninclude = false\n')
    excluded = flights("tables", "list", "nyc.planes")
    assert (excluded.code, "excludes this table" in excluded.err) == (2, True)


@pytest.fixture
def lost(flights: Lakeward, tmp_path: Any) -> CommitRecords:  # noqa: ANN401 - a path
    """The records of a service that had committed the table to a lake which has nothing of it now."""
    with EmbeddedStore.open(tmp_path / "store") as store:
        spec = store.table(TablePath("nyc", "flights"))
    records = CommitRecords(SmallFiles(str(tmp_path / "lakeward-state")), "nyc")
    records.write(CommitRecord(spec.path, spec.table_id, 5, ((None, 0, 3),), 0))
    return records


@pytest.mark.usefixtures("lost")
def test_a_table_whose_lake_table_is_gone_says_so(flights: Lakeward) -> None:
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert table["status"] == "lake-gone"
    assert table["committed_ms"] == 0, "the record of the service says when"
    assert "committed lake snapshot 5 at 1970-01-01 00:00:00+00:00, and now the lake has no table" in table["message"]


def test_a_loss_is_accepted_once_and_only_when_a_person_says_yes(flights: Lakeward, lost: CommitRecords) -> None:
    before = lost.list()
    assert flights("tables", "accept", "nyc.flights").code == 1
    assert lost.list() == before
    assert flights("tables", "accept", "nyc.flights", "--yes").out == "nyc.flights is tiered anew by its next round.\n"
    assert [record.snapshot_id for record in lost.list()] == [None]
    assert flights("tables", "-o", "json").document["tables"][0]["status"] == "new"
    again = flights("tables", "accept", "nyc.flights", "-o", "json")
    assert (again.code, again.document["accepted"]) == (0, False)


@pytest.fixture
def late(flights: Lakeward, tmp_path: Any) -> TableBucket:  # noqa: ANN401 - a path
    """The bucket of a table to which another service has committed offset 1, after we had committed offset 3."""
    with EmbeddedStore.open(tmp_path / "store") as store:
        spec = store.table(TablePath("nyc", "flights"))
        bucket = store.buckets(spec.path)[0].bucket
    own = OffsetCommit(5, {bucket: 3}, None, Incarnation("nyc", 1, "0" * 16), "1-1-1", 1, 0)
    newest = OffsetCommit(6, {bucket: 1}, None, None, None, None, 0)
    head = LakeHead(spec.path, spec.table_id, "/w", 6, None, newest, own)
    Path("head.pickle").write_bytes(pickle.dumps(head))
    return bucket


def test_offsets_that_another_service_took_back_are_told_of(flights: Lakeward, late: TableBucket) -> None:
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert table["status"] == "offsets-back"
    assert f"bucket {late} went back from offset 3, which our commit 5 says, to offset 1" in table["message"]


@pytest.mark.parametrize(("words", "offset", "lag"), [((), 1, 2), (("--offsets", "ours"), 3, 0)])
def test_a_person_says_which_offsets_count(
    flights: Lakeward, late: TableBucket, words: tuple[str, ...], offset: int, lag: int
) -> None:
    records = CommitRecords(SmallFiles(str(Path("lakeward-state").resolve())), "nyc")
    assert flights("tables", "accept", "nyc.flights", *words).code == 1
    assert records.list() == ()
    assert flights("tables", "accept", "nyc.flights", "--yes", *words).code == 0
    (record,) = records.list()
    assert (record.snapshot_id, record.offsets, record.accepted) == (6, {late: offset}, True)
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert (table["status"] == "offsets-back", table["lag_rows"]) == (False, lag)
    assert flights("tables", "accept", "nyc.flights", "-o", "json").document["accepted"] is False
