from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from lakeward.clock import SystemClock
from lakeward.model.exchange import ChannelState, ExchangeState, OpenRows, Segment, Side
from lakeward.model.identity import Incarnation
from lakeward.model.results import LakeFile
from lakeward.model.status import ServiceReport
from lakeward.observe import status_file
from lakeward.observe.presence import show_presence
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import (
    batches,
    reference,
    round_snapshot,
    subtask_snapshot,
    write_checkpoint,
    write_exchange,
    write_parts,
    write_segment,
)

Lakeward = Callable[..., Any]
START = Incarnation("nyc", 1000, "0123456789abcdef")
FIRST, SECOND, UNFINISHED = (reference(number, START) for number in (11, 12, 13))


@pytest.fixture
def kept(configured: Lakeward, tmp_path: Path) -> Lakeward:
    """Two checkpoints that completed, and one that did not."""
    store = CheckpointFiles(SmallFiles(str(tmp_path / "lakeward-state")), SystemClock())
    for ref in (FIRST, SECOND):
        write_checkpoint(store, ref)
    write_parts(store, UNFINISHED)
    return configured


def ids(lakeward: Lakeward) -> list[str]:
    return [line["id"] for line in lakeward("checkpoints", "-o", "json").document["checkpoints"]]


def file_of(tmp_path: Path, name: str) -> Path:
    return tmp_path / "lakeward-state" / "nyc" / str(SECOND) / name


def run_service(tmp_path: Path) -> None:
    now = SystemClock().wall_ms()
    report = ServiceReport("nyc", str(START), os.getpid(), "serving", now, None, (), "l", 1, 2, "well")
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)


def test_checkpoints_are_listed_with_their_states(kept: Lakeward) -> None:
    lines = kept("checkpoints", "list", "-o", "json").document["checkpoints"]
    assert [(line["id"], line["state"], line["table"], line["parts"]) for line in lines] == [
        (str(FIRST), "complete", "shop.orders", 2),
        (str(SECOND), "complete", "shop.orders", 2),
        (str(UNFINISHED), "unfinished", None, 2),
    ]
    assert all(0 <= line["age_s"] < 60 and line["size_bytes"] > 0 for line in lines)


def test_a_list_as_text_says_why_one_does_not_count(kept: Lakeward) -> None:
    said = kept("checkpoints")
    assert said.code == 0
    assert f"{UNFINISHED}: " in said.out
    assert "_metadata: not there; it is under way, or never completed" in said.out


def test_no_checkpoint_is_told(configured: Lakeward) -> None:
    assert configured("checkpoints").out == "Service nyc has no checkpoint.\n"


@pytest.mark.parametrize("name", [str(SECOND), "7-3/chk-12", "chk-12", "shop.orders"])
def test_a_checkpoint_is_shown_by_id_or_table(kept: Lakeward, name: str) -> None:
    document = kept("checkpoints", "show", name, "-o", "json").document
    assert document["checkpoint"]["id"] == str(SECOND)
    assert (document["round"], document["step"], document["splits"], document["finished"]) == ("7-3-1", 2, 2, 1)
    assert [(one["holder"], one["kind"], one["position"], one["end"]) for one in document["progress"]] == [
        ("coordinator", "log", 250, 900),
        ("subtask 0, attempt 1", "snapshot", 1234, None),
        ("subtask 1, attempt 1", "snapshot", 1234, None),
    ]
    assert [(one["origin"], one["split"]) for one in document["blocked"]] == [
        ("1/0/1/4", "7-0-log-100"),
        ("1/1/1/4", "7-0-log-100"),
    ]
    assert document["lease"] == {
        "backend": "server",
        "lease_id": "svc-1000-00000000000000aa-1",
        "state_bytes": 7,
    }
    assert len(document["files"]) == 8


def test_of_an_exchange_its_open_rows_and_channels_are_shown_for_each_subtask(
    configured: Lakeward, tmp_path: Path
) -> None:
    store = CheckpointFiles(SmallFiles(str(tmp_path / "lakeward-state")), SystemClock())
    files = SmallFiles(str(tmp_path / "lakeward-state"))
    where = f"nyc/{START}/7-3/segments"
    segments = [Segment(f"{where}/{n}.arrow", rows, rows * 10, 1) for n, rows in (("open", 40), ("in", 5), ("out", 7))]
    for segment in segments:
        files.write(segment.name, bytes(segment.size_bytes))
    channels = (ChannelState(0, 1, Side.IN, segments[1]), ChannelState(1, 0, Side.OUT, segments[2]))
    opened = (OpenRows(b"day", (segments[0],)),)
    file = LakeFile("w/x.parquet", "data", 60, 10)
    state = ExchangeState(
        subtask=1, subtasks=1, files=(file,), rows=100, open_rows=opened, channels=channels, unaligned=True
    )
    part = store.write_part(FIRST, structs.replace(subtask_snapshot(1), exchange=state))
    store.complete(FIRST, structs.replace(round_snapshot(FIRST), layout=("day(ts)",)), [part], None)
    document = configured("checkpoints", "show", str(FIRST), "-o", "json").document
    (line,) = document["exchange"]
    assert line["kind"] == "unaligned"
    held = ("rows", "files", "open_rows", "open_bytes", "in_rows", "out_rows", "channel_bytes")
    assert [line[name] for name in held] == [100, 1, 40, 400, 5, 7, 120]
    assert "w/x.parquet" in {each["path"] for each in document["files"]}
    assert document["layout"] == ["day(ts)"]
    lines = configured("checkpoints", "show", str(FIRST)).out.splitlines()
    besides = "beside the checkpoint are rows of channels (120 B) and of open files (400 B)"
    assert f"lake partitioning day(ts); {besides}" in lines
    assert lines[-1].split()[4:] == ["unaligned", "100", "1", "1", "40", "400", "B", "5", "7", "120", "B"]


def test_a_checkpoint_as_text_has_positions_events_lease_and_files(kept: Lakeward) -> None:
    said = kept("checkpoints", "show", "chk-12", "--files")
    assert said.code == 0
    for piece in (
        "table shop.orders (id 7), epoch 3, round 7-3-1, commit 2",
        "lease svc-1000-00000000000000aa-1 of backend server, with state of 7 B",
        "2 splits: 1 finished, 3 in progress; 2 blocked events",
        "subtask 1, attempt 1",
        "1/1/1/4",
        "w/data/part-00000.parquet",
    ):
        assert piece in said.out
    assert "part-00000.parquet" not in kept("checkpoints", "show", "chk-12").out


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("part-1-1", lambda data: data[:-1] + b"!"),
        ("part-0-1", lambda data: data[:-1]),
        ("_metadata", lambda data: data + b"!"),
        ("_metadata", lambda data: data[:-1]),
    ],
)
def test_of_a_damaged_one_the_file_and_the_reason_are_told(
    kept: Lakeward, tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    file = file_of(tmp_path, name)
    file.write_bytes(damage(file.read_bytes()))
    said = kept("checkpoints", "show", "chk-12")
    assert said.code == 1
    assert said.err.startswith(f"error[LW-301]: {file}: expected ")
    assert "chk-12" in kept("checkpoints").out


def test_one_that_never_completed_is_told_as_such(kept: Lakeward) -> None:
    said = kept("checkpoints", "show", "chk-13")
    assert said.code == 1
    assert "_metadata: expected a completed checkpoint, found 'no such file'" in said.err


@pytest.mark.parametrize(
    ("name", "text"), [("chk-99", "found none for 'chk-99'"), ("other.table", "found none"), ("hk-12", "found none")]
)
def test_one_that_is_not_there_is_wrong_usage(kept: Lakeward, name: str, text: str) -> None:
    said = kept("checkpoints", "show", name)
    assert said.code == 2
    assert text in said.err


def test_a_name_that_means_two_is_wrong_usage(kept: Lakeward, tmp_path: Path) -> None:
    store = CheckpointFiles(SmallFiles(str(tmp_path / "lakeward-state")), SystemClock())
    write_checkpoint(store, reference(12, START, table_id=8))
    said = kept("checkpoints", "show", "chk-12")
    assert said.code == 2
    assert f"{SECOND} or {START}/8-3/chk-12" in said.err


def test_a_checkpoint_is_deleted(kept: Lakeward) -> None:
    said = kept("checkpoints", "delete", "chk-11", "chk-13", "--yes")
    assert (said.code, said.out) == (0, f"Deleted {FIRST}.\nDeleted {UNFINISHED}.\n")
    assert ids(kept) == [str(SECOND)]


def test_nothing_is_deleted_without_a_yes(kept: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\ny\n"))
    said = kept("checkpoints", "delete", "chk-11")
    assert (said.code, said.out) == (1, "Nothing was deleted.\n")
    assert f"{FIRST} (shop.orders, complete)" in said.err
    assert len(ids(kept)) == 3

    assert kept("checkpoints", "delete", "chk-11").code == 0
    assert len(ids(kept)) == 2


def test_a_running_services_checkpoints_are_refused(kept: Lakeward, tmp_path: Path) -> None:
    run_service(tmp_path)
    said = kept("checkpoints", "delete", "chk-11", "--yes")
    assert said.code == 2
    assert "--force" in said.err
    assert len(ids(kept)) == 3


def test_the_checkpoints_of_a_service_that_starts_are_refused_before_it_has_reported(
    kept: Lakeward, tmp_path: Path
) -> None:
    ended = show_presence(str(tmp_path / "lakeward-state"), "nyc")
    said = kept("checkpoints", "delete", "chk-11", "--yes")
    assert said.code == 2
    assert "service nyc starts or hangs and may need its checkpoints at any moment" in said.err
    assert len(ids(kept)) == 3
    assert kept("checkpoints", "delete", "chk-11", "--yes", "--force").code == 0
    ended()
    assert kept("checkpoints", "delete", "chk-12", "--yes").code == 0
    assert ids(kept) == [str(UNFINISHED)]


def test_a_service_that_starts_while_a_person_is_asked_keeps_its_checkpoints(
    kept: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class Asked(io.StringIO):
        """Answers yes, once the service has started."""

        def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # as `StringIO` does
            del size
            started.append(show_presence(str(tmp_path / "lakeward-state"), "nyc"))
            return "y\n"

    monkeypatch.setattr("sys.stdin", Asked())
    said = kept("checkpoints", "delete", "chk-11")
    for ended in started:
        ended()
    assert (said.code, len(started), len(ids(kept))) == (2, 1, 3)
    assert "service nyc starts" in said.err


def test_a_running_services_checkpoints_are_deleted_by_force(kept: Lakeward, tmp_path: Path) -> None:
    run_service(tmp_path)
    assert kept("checkpoints", "delete", "chk-11", "--yes", "--force").code == 0
    assert len(ids(kept)) == 2


def test_rows_beside_a_checkpoint_that_are_gone_are_an_error_that_names_the_file(
    kept: Lakeward, tmp_path: Path
) -> None:
    store = CheckpointFiles(SmallFiles(str(tmp_path / "lakeward-state")), SystemClock())
    ref = reference(1, START, table_id=8)
    segment = write_segment(store, ref)
    write_exchange(store, ref, segment)
    (tmp_path / "lakeward-state" / segment.name).unlink()
    said = kept("checkpoints", "show", "8-3/chk-1")
    assert said.code != 0
    assert segment.name in said.err


def test_force_leaves_the_rows_that_a_running_services_next_checkpoint_may_refer_to_and_says_so(
    kept: Lakeward, tmp_path: Path
) -> None:
    store = CheckpointFiles(SmallFiles(str(tmp_path / "lakeward-state")), SystemClock())
    ref = reference(1, START, table_id=8)
    segment = write_segment(store, ref)
    write_exchange(store, ref, segment)
    run_service(tmp_path)
    said = kept("checkpoints", "delete", "8-3/chk-1", "--force", "--yes")
    assert said.code == 0
    assert "A process of service nyc is there: rows beside the deleted checkpoints stay" in said.out
    assert list(store.read_segment(segment)) == list(batches(3, 2))
    assert str(ref) not in ids(kept)


def test_the_question_says_what_force_costs_a_running_service(
    kept: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_service(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    said = kept("checkpoints", "delete", "chk-12", "--force")
    assert "service nyc runs" in said.err
    assert "starts the round over" in said.err
    assert len(ids(kept)) == 3


def test_nothing_is_deleted_where_one_is_not_there(kept: Lakeward) -> None:
    assert kept("checkpoints", "delete", "chk-11", "chk-99", "--yes").code == 2
    assert len(ids(kept)) == 3
