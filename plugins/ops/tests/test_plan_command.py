from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.clock import SystemClock
from lakeward.hooks import discovery
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.status import ServiceReport, TableReport
from lakeward.model.tables import TableBucket, TablePath
from lakeward.observe import status_file
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.store import EmbeddedStore

Lakeward = Callable[..., Any]
KEYED = TablePath("nyc", "planes")


def planned(lakeward: Lakeward, *words: str) -> Any:  # noqa: ANN401 - of JSON
    said = lakeward("plan", *words, "-o", "json")
    assert said.code == 0, said
    return said.document["rounds"]


def tiered(store: Path, offset: int) -> None:
    with EmbeddedStore.open(store) as opened:
        spec = opened.table(TablePath("nyc", "flights"))
    commit = OffsetCommit(5, {TableBucket(spec.table_id, None, 0): offset}, None, None, "1-1-1", 1, 0)
    Path("head.pickle").write_bytes(pickle.dumps(LakeHead(spec.path, spec.table_id, "/w", 5, None, commit)))


def test_the_first_round_of_a_table_reads_all_it_has(flights: Lakeward) -> None:
    (one,) = planned(flights)
    assert (one["action"], one["rows"], one["reason"]) == ("tier", 3, "the table was never tiered")
    assert (one["creates"], one["files"], one["exchange"], one["leases"]) == (True, 1, "none", [])
    assert [(split["kind"], split["start"], split["stop"]) for split in one["splits"]] == [("log", 0, 3)]


def test_a_round_begins_where_the_lake_ends(flights: Lakeward, tmp_path: Path) -> None:
    tiered(tmp_path / "store", 2)
    (one,) = planned(flights)
    assert (one["rows"], one["creates"]) == (1, False)
    assert one["reason"] == "the source has rows that the lake does not have"


def test_a_lake_that_has_everything_leaves_nothing_to_do(flights: Lakeward, tmp_path: Path) -> None:
    tiered(tmp_path / "store", 3)
    assert "nothing" in flights("plan").out
    (one,) = planned(flights)
    assert (one["action"], one["reason"], one["splits"]) == ("nothing", "the lake has everything", [])


@pytest.fixture
def keyed(flights: Lakeward, tmp_path: Path) -> Lakeward:
    """Beside the log table, a table with a primary key, a KV snapshot and a later change."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_table(KEYED, schema, ["id"], buckets=1)
        store.load(KEYED, pa.table({"id": [1, 2], "name": ["a", "b"]}, schema))
        store.snapshot(KEYED)
        store.load(KEYED, pa.table({"id": [3], "name": ["c"]}, schema))
    return flights


def test_snapshots_that_would_be_leased_are_named(keyed: Lakeward) -> None:
    (one,) = planned(keyed, "nyc.planes")
    assert [split["kind"] for split in one["splits"]] == ["snapshot"]
    assert (len(one["leases"]), one["rows"]) == (1, 2)
    assert one["reason"] == "the table was never tiered; later log records are left to the round after it"
    said = keyed("plan", "nyc.planes").out
    assert "lake table: it would be created" in said
    assert "files: about 1 (an estimate" in said


def test_nothing_is_created_leased_or_scheduled(keyed: Lakeward, tmp_path: Path) -> None:
    """The lake of this test has no method that could create or stamp a table: a call of one would be an error."""
    before = {file for file in tmp_path.rglob("*") if not file.name.startswith("store.db")}
    assert keyed("plan").code == 0
    assert keyed("plan", "nyc.planes").code == 0
    assert {file for file in tmp_path.rglob("*") if not file.name.startswith("store.db")} == before
    with EmbeddedStore.open(tmp_path / "store") as store:
        assert store.leases() == ()


def test_a_round_that_would_fail_is_impossible_and_says_why(flights: Lakeward, tmp_path: Path) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        spec = store.table(TablePath("nyc", "flights"))
    records = CommitRecords(SmallFiles(str(tmp_path / "lakeward-state")), "nyc")
    records.write(CommitRecord(spec.path, spec.table_id, 5, ((None, 0, 3),), 0))
    (one,) = planned(flights)
    assert (one["action"], one["code"]) == ("impossible", "LW-410")
    assert "[LW-410]" in flights("plan").out


def stored(store: Path, kind: str, table: TablePath) -> int:
    """Return the bytes of a table's files: `log` or `kv`."""
    with EmbeddedStore.open(store) as opened:
        folder = store / kind / str(opened.table(table).table_id)
    return sum(file.stat().st_size for file in folder.iterdir())


def test_rows_and_bytes_of_a_log_are_what_the_source_holds(flights: Lakeward, tmp_path: Path) -> None:
    (one,) = planned(flights)
    held = stored(tmp_path / "store", "log", TablePath("nyc", "flights"))
    assert (one["rows"], one["size_bytes"]) == (3, held)
    assert [(split["rows"], split["size_bytes"]) for split in one["splits"]] == [(3, held)]
    assert f"bytes: {held:,}" in flights("plan", "nyc.flights").out


def test_rows_and_bytes_of_a_snapshot_are_what_the_source_holds(keyed: Lakeward, tmp_path: Path) -> None:
    (one,) = planned(keyed, "nyc.planes")
    assert (one["rows"], one["size_bytes"]) == (2, stored(tmp_path / "store", "kv", KEYED))


def test_a_part_of_a_log_has_its_part_of_the_bytes(flights: Lakeward, tmp_path: Path) -> None:
    tiered(tmp_path / "store", 2)
    (one,) = planned(flights)
    held = stored(tmp_path / "store", "log", TablePath("nyc", "flights"))
    assert (one["rows"], one["size_bytes"]) == (1, round(held / 3))


def test_buckets_that_share_a_file_share_its_bytes(flights: Lakeward, tmp_path: Path) -> None:
    wide = TablePath("nyc", "wide")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_table(wide, schema, ["id"], buckets=4)
        store.load(wide, pa.table({"id": range(100)}, schema))
    (one,) = planned(flights, "nyc.wide")
    held = stored(tmp_path / "store", "log", wide)
    assert (len(one["splits"]), one["rows"]) == (4, 100)
    assert all(split["size_bytes"] == round(held * split["rows"] / 100) for split in one["splits"])


def test_offsets_without_a_record_are_no_rows(flights: Lakeward, tmp_path: Path) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.append_empty(TablePath("nyc", "flights"), 0, 4)
    (one,) = planned(flights)
    assert (one["splits"][0]["stop"], one["rows"]) == (7, 3)


_PLAIN = """
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin


class Plain:
    '''A source without the optional method.'''

    def __init__(self, whole):
        self._whole = whole

    def __getattr__(self, name):
        if name == "split_sizes":
            raise AttributeError(name)
        return getattr(self._whole, name)


class PlainPlugin(EmbeddedSourcePlugin):
    def open(self, options, clock):
        return Plain(super().open(options, clock))
"""


@pytest.fixture
def unsized(keyed: Lakeward, tmp_path: Path) -> Lakeward:
    """The same store, behind a source that does not know how large splits are."""
    site = tmp_path / "site"
    (site / "plain_source.py").write_text(_PLAIN, encoding="utf-8")
    (site / "plain-1.0.dist-info").mkdir()
    (site / "plain-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n", "utf-8"
    )
    entry = "[lakeward.source]\nplain = plain_source:PlainPlugin\n"
    (site / "plain-1.0.dist-info" / "entry_points.txt").write_text(entry, encoding="utf-8")
    discovery.forget()
    file = tmp_path / "lakeward.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('"embedded"', '"plain"'), encoding="utf-8")
    return keyed


def test_a_source_that_does_not_know_sizes_leaves_snapshots_and_bytes_open(unsized: Lakeward) -> None:
    flights, planes = planned(unsized)
    assert (flights["rows"], flights["size_bytes"]) == (3, None)
    assert (planes["rows"], planes["size_bytes"]) == (None, None)
    assert "bytes: the source does not say" in unsized("plan", "nyc.planes").out


def test_a_paused_table_waits_for_resume_and_shows_what_comes_then(flights: Lakeward) -> None:
    flights("tables", "pause", "nyc.flights")
    (one,) = planned(flights)
    assert (one["action"], one["rows"]) == ("paused", 3)
    assert one["reason"] == (
        "a person paused it; nothing until `lakeward tables resume nyc.flights`; then: the table was never tiered"
    )
    assert "paused" in flights("plan").out
    flights("tables", "resume", "nyc.flights")
    assert planned(flights)[0]["action"] == "tier"


def reported(root: Path, state: str) -> None:
    """Leave the report of a service that has suspended the table."""
    table = TableReport("nyc.flights", 1, "suspended", "the lake has no column 'name'.", 3, None, 0, 0, None)
    now_ms = SystemClock().wall_ms()
    report = ServiceReport(
        "nyc", "nyc-1-0123456789abcdef", os.getpid(), state, now_ms, None, (table,), None, 0, 0, started_ms=now_ms
    )
    status_file.write(str(root / "lakeward-state"), "nyc", report)


def test_a_suspended_table_waits_for_resume_and_says_why(flights: Lakeward, tmp_path: Path) -> None:
    reported(tmp_path, "serving")
    (one,) = planned(flights)
    assert (one["action"], one["rows"]) == ("suspended", 3)
    assert one["reason"].startswith("the lake has no column 'name'; nothing until `lakeward tables resume nyc.flights`")


def test_a_table_that_was_suspended_is_tried_by_the_next_start(flights: Lakeward, tmp_path: Path) -> None:
    reported(tmp_path, "stopped")
    assert planned(flights)[0]["action"] == "tier"


def test_the_route_of_a_partitioned_table_is_shown(flights: Lakeward) -> None:
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write('[tables."nyc.flights"]\nmode = "mirror"\nlake_partition = ["id"]\n')
    (one,) = planned(flights)
    assert (one["exchange"], one["files"]) == ("hash", None)


def test_an_excluded_table_is_a_usage_error(flights: Lakeward) -> None:
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
        file.write('[tables."nyc.flights"]\ninclude = false\n')
    assert flights("plan", "nyc.flights").code == 2
    assert flights("plan").out == "The source has no table to tier.\n"


def test_where_no_table_is_tiered_the_plan_says_that_they_can_be_mirrored(flights: Lakeward, tmp_path: Path) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.set_property(TablePath("nyc", "flights"), "table.datalake.enabled", "false")
    assert 'set mode = "mirror" in [tables."nyc.*"]' in flights("plan").out
