"""`lakeward verify` in this process: what it says of a lake table that is gone, behind, never tiered or different."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.tables import TableBucket, TablePath, TableSpec
from lakeward.ports import FileDifference
from lakeward.storage.commit_records import CommitRecord, CommitRecords, stored_offsets
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_service_kit.command_line import Lakeward

LAKE = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("__bucket", pa.int32()),
        ("__offset", pa.int64()),
        ("__timestamp", pa.timestamp("us", "UTC")),
    ]
)


def read_rows(self: object, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Read what a test left in a file: the lake's rows."""
    yield pickle.loads(Path("rows.pickle").read_bytes())  # noqa: S301 - the test's own


@pytest.fixture
def verifiable(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> Lakeward:
    """The command line with a lake that offers its rows."""
    assert flights("tables").code == 0  # the lake's module is imported
    monkeypatch.setattr(importlib.import_module("puddle_lake").Puddle, "read_rows", read_rows, raising=False)
    return flights


@pytest.fixture
def spec(verifiable: Lakeward, tmp_path: Path) -> TableSpec:
    """The table with three rows in the source."""
    with EmbeddedStore.open(tmp_path / "store") as store:
        return store.table(TablePath("nyc", "flights"))


def has_committed(spec: TableSpec, offset: int, *, snapshot_id: int = 5, accepted: bool = False) -> None:
    """Write what the service remembers of its last commit."""
    offsets = {TableBucket(spec.table_id, None, 0): offset}
    records = CommitRecords(SmallFiles(str(Path("lakeward-state").resolve())), "nyc")
    records.write(CommitRecord(spec.path, spec.table_id, snapshot_id, stored_offsets(offsets), 0, accepted=accepted))


def lake_has(spec: TableSpec, offset: int, own: int | None = None) -> None:
    """Give the lake table a head; with `own`, an earlier commit of the service's own."""
    bucket = TableBucket(spec.table_id, None, 0)
    commit = OffsetCommit(5, {bucket: offset}, None, None, "1-1-1", 1, 0)
    ours = None if own is None else OffsetCommit(4, {bucket: own}, None, None, "1-1-1", 1, 0)
    head = LakeHead(spec.path, spec.table_id, "/w", 5, None, commit, ours)
    Path("head.pickle").write_bytes(pickle.dumps(head))


def lake_rows(*ids: int) -> None:
    """Give the lake rows as the service would have written them."""
    rows = [{"id": one, "name": "abc"[one - 1], "__bucket": 0, "__offset": -1, "__timestamp": 0} for one in ids]
    Path("rows.pickle").write_bytes(pickle.dumps(pa.RecordBatch.from_pylist(rows, LAKE)))


def test_a_lake_table_that_is_gone_after_a_commit_is_an_error(verifiable: Lakeward, spec: TableSpec) -> None:
    has_committed(spec, 3)
    said = verifiable("verify", "nyc.flights")
    assert said.code == 1
    assert "LW-410" in said.err
    assert "the lake has no table of that name" in said.err


def test_an_empty_lake_table_in_the_place_of_one_with_commits_is_an_error(
    verifiable: Lakeward, spec: TableSpec
) -> None:
    has_committed(spec, 3)
    Path("head.pickle").write_bytes(pickle.dumps(LakeHead(spec.path, spec.table_id, "/w", None, None, None)))
    said = verifiable("verify", "nyc.flights")
    assert (said.code, "LW-410" in said.err) == (1, True)


def test_a_lake_whose_offsets_went_back_is_an_error(verifiable: Lakeward, spec: TableSpec) -> None:
    lake_has(spec, 2, own=3)
    lake_rows(1, 2)
    said = verifiable("verify", "nyc.flights")
    assert (said.code, "LW-411" in said.err) == (1, True)


def test_offsets_that_a_person_accepted_are_those_that_are_compared(verifiable: Lakeward, spec: TableSpec) -> None:
    lake_has(spec, 2, own=3)
    has_committed(spec, 3, accepted=True)
    lake_rows(1, 2, 3)
    said = verifiable("verify", "nyc.flights", "-o", "json")
    assert (said.code, said.document["equal"], said.document["source_rows"]) == (0, True, 3)


def test_a_table_that_was_never_tiered_is_neither_equal_nor_different(verifiable: Lakeward, spec: TableSpec) -> None:
    said = verifiable("verify", str(spec.path), "-o", "json")
    assert said.code == 0
    found = said.document
    assert (found["equal"], found["snapshot_id"], found["source_rows"], found["lake_rows"]) == (None, None, None, None)
    assert "nothing is tiered yet" in verifiable("verify", str(spec.path)).out


@pytest.mark.parametrize(
    ("ids", "said"), [((1, 2), "\nThe difference:\n"), ((1,), "\nThe first 2 differences:\n")], ids=["one", "two"]
)
def test_differences_are_headed_by_how_many_are_shown(
    verifiable: Lakeward, spec: TableSpec, ids: tuple[int, ...], said: str
) -> None:
    lake_has(spec, 3)
    lake_rows(*ids)
    found = verifiable("verify", "nyc.flights")
    assert (found.code, said in found.out) == (1, True), found.out


def test_one_difference_of_several_is_the_first_one(verifiable: Lakeward, spec: TableSpec) -> None:
    lake_has(spec, 3)
    lake_rows(1)
    assert "\nThe first difference of 2:\n" in verifiable("verify", "nyc.flights", "--most", "1").out


def test_a_column_that_the_lake_lost_is_a_difference_though_no_row_is(verifiable: Lakeward, spec: TableSpec) -> None:
    lake_has(spec, 3)
    lake_rows(1, 2, 3)
    rows = pickle.loads(Path("rows.pickle").read_bytes()).drop_columns(["name"])  # noqa: S301 - the test's own
    lost = rows.replace_schema_metadata({"lost_columns": '{"name": "dropped"}'})
    Path("rows.pickle").write_bytes(pickle.dumps(lost))
    said = verifiable("verify", "nyc.flights")
    assert said.code == 1
    assert "DIFFERENT" in said.out
    assert "the lake has no column `name`, which the source has: dropped\n" in said.out
    assert "what it means" not in said.out
    found = verifiable("verify", "nyc.flights", "-o", "json").document
    assert (found["equal"], found["lost"], found["not_in_lake"]) == (False, {"name": "dropped"}, [])


def test_a_column_that_the_lake_does_not_have_yet_is_no_difference(verifiable: Lakeward, spec: TableSpec) -> None:
    lake_has(spec, 3)
    lake_rows(1, 2, 3)
    rows = pickle.loads(Path("rows.pickle").read_bytes()).drop_columns(["name"])  # noqa: S301 - the test's own
    Path("rows.pickle").write_bytes(pickle.dumps(rows))
    said = verifiable("verify", "nyc.flights")
    assert said.code == 0
    assert "not compared: columns that the lake does not have yet: name" in said.out


def test_what_the_lake_says_wrongly_of_its_files_is_a_difference_though_no_row_is(
    verifiable: Lakeward, spec: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[TablePath, int, int | None]] = []

    def check_files(self: object, path: TablePath, snapshot_id: int, most: int | None) -> Iterator[FileDifference]:
        asked.append((path, snapshot_id, most))
        yield from [FileDifference(f"/w/{one}.parquet", "partition field day", "1", "2") for one in "ab"]

    puddle = importlib.import_module("puddle_lake").Puddle
    monkeypatch.setattr(puddle, "check_files", check_files, raising=False)
    lake_has(spec, 3)
    lake_rows(1, 2, 3)
    said = verifiable("verify", "nyc.flights", "--files", "7", "--most", "1")
    assert said.code == 1
    assert "nyc.flights: DIFFERENT" in said.out
    assert "what is not so (2 in all)" in said.out
    assert [line.split() for line in said.out.splitlines() if "/w/" in line] == [
        ["/w/a.parquet", "partition", "field", "day", "1", "2"]
    ]
    assert asked == [(spec.path, 5, 7)]
    assert verifiable("verify", "nyc.flights", "-o", "json").document["wrong_in_files"] == 2


def test_tables_of_a_pattern_are_compared_one_after_the_other_and_summed_up(
    verifiable: Lakeward, spec: TableSpec, tmp_path: Path
) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        planes = store.create_table(TablePath("nyc", "planes"), pa.schema([("id", pa.int64())]), buckets=1)
    has_committed(planes, 0, snapshot_id=9)
    lake_has(spec, 3)
    lake_rows(1, 2, 3)
    said = verifiable("verify", "nyc.*")
    assert said.code == 1
    assert said.out.splitlines()[0].startswith("nyc.planes: [LW-")
    assert [line.split(maxsplit=1) for line in said.out.splitlines()[2:5]] == [
        ["table", "result"],
        ["nyc.flights", "equal"],
        ["nyc.planes", "NOT COMPARED"],
    ]
    assert said.out.endswith("\n1 of 2 tables equal, 1 different or not compared\n")
    flights, planes = verifiable("verify", "nyc.*", "-o", "json").document["tables"]
    assert (flights["equal"], planes["table"], "error" in planes) == (True, "nyc.planes", True)


def test_nothing_is_compared_once_the_limit_is_over(verifiable: Lakeward, spec: TableSpec) -> None:
    lake_has(spec, 3)
    lake_rows(1, 2, 3)
    said = verifiable("verify", "nyc.flights", "--limit", "0s")
    assert (said.code, said.out) == (1, "nyc.flights: not compared, for the limit of 0.0 s is over\n")
    assert verifiable("verify", "nyc.*", "--limit", "0s").out.endswith(
        "\n0 of 1 table equal, 1 different or not compared\n"
    )
    assert verifiable("verify", "nyc.*", "--limit", "1h").code == 0
    assert "--limit: expected a number of seconds" in verifiable("verify", "nyc.*", "--limit", "soon").err
