from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.tables import TableBucket, TablePath
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.store import EmbeddedStore

Lakeward = Callable[..., Any]
KEYED = TablePath("nyc", "planes")


def planned(lakeward: Lakeward, *words: str) -> Any:  # noqa: ANN401 - of JSON
    return lakeward("plan", *words, "-o", "json").document["rounds"]


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
    assert (len(one["leases"]), one["rows"]) == (1, None)
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
    records.write(CommitRecord(spec.path, spec.table_id, 5, {TableBucket(spec.table_id, None, 0): 3}, 0))
    (one,) = planned(flights)
    assert (one["action"], one["code"]) == ("impossible", "LW-410")
    assert "[LW-410]" in flights("plan").out


def test_a_paused_table_says_so(flights: Lakeward) -> None:
    flights("tables", "pause", "nyc.flights")
    (one,) = planned(flights)
    assert one["reason"].endswith("; no round starts while the table is paused")


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
