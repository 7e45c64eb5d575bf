"""`lakeward deadletters` in this process: what it shows of rows that did not fit."""

from __future__ import annotations

import importlib
import json
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.clock import SystemClock
from lakeward.model.dead_letters import SCHEMA, ReplayRequest, path_of
from lakeward.model.results import LakeHead
from lakeward.model.status import ServiceReport
from lakeward.model.tables import TablePath
from lakeward.observe import status_file
from lakeward.observe.control import read_control

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_service_kit.command_line import Lakeward

PATH = TablePath("nyc", "flights")
LETTERS = path_of(PATH)
AT = datetime(2026, 11, 28, 12, tzinfo=UTC)


def letter(offset: int, column: str, bucket: int = 0, json_text: str | None = None) -> dict[str, object]:
    return {
        "row": b"ipc", "json": json_text, "cause": f"column {column!r} is odd", "code": "LW-403", "column_name": column,
        "partition_id": None, "bucket": bucket, "offset": offset, "source_time": AT if offset >= 0 else None,
        "round": "demo/7-1-3",
    }  # fmt: skip


def two_batches(self: object, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Yield three letters of snapshot 5, the last ones of the source first."""
    assert (path, snapshot_id) == (LETTERS, 5)
    yield pa.RecordBatch.from_pylist([letter(9, "name", 1), letter(4, "name", json_text='{"id": 4}')], SCHEMA)
    yield pa.RecordBatch.from_pylist([letter(-1, "at")], SCHEMA)


@pytest.fixture
def flights_with_letters(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> Lakeward:
    assert flights("tables").code == 0  # the lake's module is imported
    monkeypatch.setattr(importlib.import_module("puddle_lake").Puddle, "read_rows", two_batches, raising=False)
    Path("head.pickle").write_bytes(pickle.dumps(LakeHead(LETTERS, 1, "/w", 5, None, None)))
    return flights


@pytest.mark.parametrize("words", [(), ("nyc.flights",), ("nyc.fl*",)])
def test_dead_letters_are_counted_by_table_code_and_column(
    flights_with_letters: Lakeward, words: tuple[str, ...]
) -> None:
    said = flights_with_letters("deadletters", "list", *words, "--json")
    of = {"table": "nyc.flights", "code": "LW-403", "lake_table": "nyc.flights__dead_letters"}
    found = json.loads(said.out)["dead_letters"]
    assert found == [of | {"column": "name", "dead_letters": 2}, of | {"column": "at", "dead_letters": 1}]
    shown = flights_with_letters("deadletters", "list", *words).out.splitlines()
    assert shown[1].split() == ["nyc.flights", "LW-403", "name", "2", "nyc.flights__dead_letters"]


def test_dead_letters_are_shown_in_the_order_of_the_source_with_their_causes(flights_with_letters: Lakeward) -> None:
    said = flights_with_letters("deadletters", "show", "nyc.flights", "--most", "2")
    assert (said.code, said.out.splitlines()) == (
        0,
        [
            "bucket 0, of a KV snapshot: [LW-403] column 'at' is odd",
            "  round demo/7-1-3",
            "bucket 0, offset 4: [LW-403] column 'name' is odd",
            f"  round demo/7-1-3, written {AT}",
            '  {"id": 4}',
            "The first 2 of 3 dead letters; `--most` shows more.",
        ],
    )


def test_those_of_one_column_are_shown_alone(flights_with_letters: Lakeward) -> None:
    said = flights_with_letters("deadletters", "show", "nyc.flights", "--column", "name", "--json")
    document = json.loads(said.out)
    assert [one["offset"] for one in document["dead_letters"]] == [4, 9]
    assert document["total"] == 2


def test_letters_of_a_lake_that_cannot_take_rows_out_are_not_deleted(flights_with_letters: Lakeward) -> None:
    said = flights_with_letters("deadletters", "delete", "nyc.flights", "--yes")
    assert said.code == 1
    assert "it offers no `rewrite`" in said.err


def test_a_running_service_is_asked_to_replay_letters_of_a_column(flights: Lakeward, tmp_path: Path) -> None:
    now_ms, nobody = SystemClock().wall_ms(), "nyc-1-0123456789abcdef"
    said = flights("deadletters", "replay", "nyc.flights")
    assert said.code == 2
    assert "only a service replays dead letters" in said.err
    report = ServiceReport("nyc", nobody, os.getpid(), "serving", now_ms, None, (), None, 0, 0, started_ms=now_ms)
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    assert flights("deadletters", "replay", "nyc.flights").code == 0
    said = flights("deadletters", "replay", "nyc.flights", "--column", "name", "--code", "LW-406")
    assert "before its next round" in said.out
    asked = {"nyc.flights": ReplayRequest(2, "name", "LW-406")}
    assert read_control(str(tmp_path / "lakeward-state"), "nyc").replay == asked


def test_a_table_without_dead_letters_says_so(flights: Lakeward) -> None:
    said = flights("deadletters", "list")
    assert (said.code, said.out) == (0, "No dead letters.\n")
    for words in (("show",), ("delete", "--yes")):
        said = flights("deadletters", *words, "nyc.flights")
        assert said.code == 2
        missing = "the lake has no table nyc.flights__dead_letters: no round of it was to keep dead letters yet"
        assert missing in said.err
