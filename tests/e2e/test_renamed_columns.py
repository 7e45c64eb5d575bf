"""Columns that the source renames or drops, and lake tables whose columns somebody else has altered, in both lakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_e2e.lakes import LAKES, AnyTables, IcebergTables, PaimonTables, lake_id
from lakeward_service_kit.service_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward_service_kit.command_line import Lakeward

PATH = TablePath("t", "orders")
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
CONFIG = """
[service]
name = "svc"
[source]
type = "embedded"
path = "store"
[lake]
type = "{lake}"
warehouse = "warehouse"
[checkpoint]
root = "state"
[tables."t.*"]
mode = "mirror"
"""


class Mirror:
    """A table, its lake table, and what somebody does to each of them between two rounds."""

    def __init__(self, directory: Path, kind: AnyTables, lakeward: Lakeward, *, key: bool) -> None:
        self.kind = kind
        self.services = World.create(directory)
        self.store = self.services.store
        self.lakeward = lakeward
        self.store.create_table(PATH, COLUMNS, ("id",) if key else (), buckets=1, freshness_s=0.2)
        (directory / "lakeward.toml").write_text(CONFIG.format(lake=kind.name), encoding="utf-8")

    def load(self, **row: object) -> None:
        """Load a row."""
        schema = self.store.table(PATH).schema
        self.store.load(PATH, pa.Table.from_pylist([row], schema=schema))

    def tier(self, row: dict[str, object], **rules: Any) -> str:  # noqa: ANN401 - values of any type
        """Load a row and mirror the table; return why that failed."""
        self.load(**row)
        self.services.rules = lambda _: TableSettings(mode="mirror", **rules)
        lake = self.kind.open(self.services.clock)
        end = self.services.once(mirrors=True, lake=lake, lake_type=self.kind.name)
        lake.close()
        return dict(end.failed).get(PATH, "")

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the lake table, without the system columns."""
        lake = self.kind.open(self.services.clock)
        head = lake.head(PATH)
        batches = list(lake.read_rows(PATH, head.snapshot_id))
        lake.close()
        plain = [{key: one for key, one in row.items() if key[:2] != "__"} for b in batches for row in b.to_pylist()]
        return sorted(plain, key=lambda row: row["id"])

    def verify(self, capsys: pytest.CaptureFixture[str]) -> bool:
        """Return whether source and lake are equal."""
        capsys.readouterr()  # what services have logged
        said = self.lakeward("verify", "t.orders", "-o", "json")
        assert said.code == 0, said.err + said.out
        return bool(said.document["equal"])


@pytest.fixture(
    params=[(kind, key) for kind in LAKES for key in (False, True)], ids=lambda one: f"{one[0].name}-{one[1]}"
)
def mirror(request: pytest.FixtureRequest, tmp_path: Path, lakeward: Lakeward) -> Iterator[Mirror]:
    kind, key = request.param
    mirror = Mirror(tmp_path, kind(tmp_path), lakeward, key=key)
    assert mirror.tier({"id": 1, "name": "a"}) == ""
    yield mirror
    mirror.store.close()


def test_a_column_that_the_source_renames_is_renamed_with_all_its_values(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.store.rename_column(PATH, "name", "label")
    assert mirror.tier({"id": 2, "label": "b"}) == ""
    mirror.store.rename_column(PATH, "label", "title")
    assert mirror.tier({"id": 3, "title": "c"}) == ""
    assert mirror.rows() == [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}, {"id": 3, "title": "c"}]
    assert mirror.verify(capsys)


def test_a_new_column_may_have_the_name_that_a_renamed_one_had(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.store.rename_column(PATH, "name", "label")
    mirror.store.add_column(PATH, pa.field("name", pa.string()))
    assert mirror.tier({"id": 2, "label": "b", "name": "new"}) == ""
    assert mirror.rows() == [{"id": 1, "label": "a", "name": None}, {"id": 2, "label": "b", "name": "new"}]
    assert mirror.verify(capsys)


def test_two_columns_that_change_their_names_keep_their_values(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.store.add_column(PATH, pa.field("note", pa.string()))
    assert mirror.tier({"id": 2, "name": "b", "note": "x"}) == ""
    for old, new in (("name", "between"), ("note", "name"), ("between", "note")):
        mirror.store.rename_column(PATH, old, new)
    assert mirror.tier({"id": 3, "note": "c", "name": "y"}) == ""
    found = [(row["id"], row["note"], row["name"]) for row in mirror.rows()]
    assert found == [(1, "a", None), (2, "b", "x"), (3, "c", "y")]
    assert mirror.verify(capsys)


def test_a_column_that_the_source_drops_stays_and_is_the_same_one_when_it_comes_back(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.store.drop_column(PATH, "name")
    assert mirror.tier({"id": 2}) == ""
    assert mirror.verify(capsys)
    mirror.store.add_column(PATH, pa.field("name", pa.string()))
    assert mirror.tier({"id": 3, "name": "c"}) == ""
    assert mirror.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]


def test_one_that_comes_back_with_another_type_suspends_its_table_until_the_old_one_has_made_place(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.store.drop_column(PATH, "name")
    mirror.store.add_column(PATH, pa.field("name", pa.bool_()))
    why = mirror.tier({"id": 2, "name": True})
    assert "expected column 'name': type bool" in why.lower()
    assert "found string. rename or drop that one (in spark: alter table t.orders rename column" in why.lower()
    mirror.kind.rename(PATH, "name", "name_before")
    assert mirror.tier({"id": 3, "name": False}) == ""
    found = [(row["id"], row["name"], row["name_before"]) for row in mirror.rows()]
    assert found == [(1, None, "a"), (2, True, None), (3, False, None)]
    assert mirror.verify(capsys)


def test_a_rename_is_refused_where_the_columns_are_frozen(mirror: Mirror) -> None:
    mirror.store.rename_column(PATH, "name", "label")
    why = mirror.tier({"id": 2, "label": "b"}, schema={"columns": "freeze"})
    assert "expected the columns to keep their names" in why
    assert "found name renamed to label. Rename back in the source, or let the lake table follow ('evolve')" in why
    assert [set(row) for row in mirror.rows()] == [{"id", "name"}]
    assert mirror.tier({"id": 3, "label": "c"}, schema={"columns": "discard_value"}) == ""
    assert [row["label"] for row in mirror.rows()] == ["a", "b", "c"]


def test_a_column_that_somebody_renames_in_the_lake_table_is_written_under_its_new_name(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.kind.rename(PATH, "name", "label")
    assert mirror.tier({"id": 2, "name": "b"}) == ""
    assert mirror.tier({"id": 3, "name": "c"}, schema={"columns": "freeze"}) == ""
    assert mirror.rows() == [{"id": 1, "label": "a"}, {"id": 2, "label": "b"}, {"id": 3, "label": "c"}]
    assert mirror.verify(capsys)


@pytest.mark.parametrize("kind", LAKES, ids=lake_id)
@pytest.mark.parametrize("exchange", ["none", "hash"])
def test_rows_of_a_partitioned_table_go_to_columns_that_either_side_has_renamed(
    tmp_path: Path, lakeward: Lakeward, capsys: pytest.CaptureFixture[str], kind: type[AnyTables], exchange: str
) -> None:
    mirror = Mirror(tmp_path, kind(tmp_path), lakeward, key=True)
    rules: dict[str, Any] = {"lake_partition": ("bucket(2, id)",), "exchange": exchange}
    mirror.store.add_column(PATH, pa.field("note", pa.string()))
    assert mirror.tier({"id": 1, "name": "a", "note": "x"}, **rules) == ""
    mirror.store.rename_column(PATH, "name", "label")
    mirror.kind.rename(PATH, "note", "remark")
    assert mirror.tier({"id": 2, "label": "b", "note": "y"}, **rules) == ""
    assert mirror.tier({"id": 1, "label": "c", "note": "z"}, **rules) == ""
    found = [(row["id"], row["label"], row["remark"]) for row in mirror.rows()]
    assert found == [(1, "c", "z"), (2, "b", "y")]
    assert mirror.verify(capsys)
    mirror.store.close()


def test_a_column_to_partition_by_may_be_renamed_in_an_iceberg_table(
    tmp_path: Path, lakeward: Lakeward, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = Mirror(tmp_path, IcebergTables(tmp_path), lakeward, key=False)
    assert mirror.tier({"id": 1, "name": "a"}, lake_partition=("truncate(1, name)",)) == ""
    mirror.store.rename_column(PATH, "name", "label")
    why = mirror.tier({"id": 2, "label": "b"}, lake_partition=("truncate(1, name)",))
    assert 'tables."t.orders".lake_partition' in why
    assert mirror.tier({"id": 3, "label": "c"}, lake_partition=("truncate(1, label)",)) == ""
    mirror.kind.rename(PATH, "label", "title")
    assert mirror.tier({"id": 4, "label": "d"}, lake_partition=("truncate(1, label)",)) == ""
    assert [row["title"] for row in mirror.rows()] == ["a", "b", "c", "d"]
    assert mirror.verify(capsys)
    mirror.store.close()


def test_a_column_to_partition_by_that_the_source_renames_is_refused_in_a_paimon_table(
    tmp_path: Path, lakeward: Lakeward
) -> None:
    mirror = Mirror(tmp_path, PaimonTables(tmp_path), lakeward, key=False)
    assert mirror.tier({"id": 1, "name": "a"}, lake_partition=("truncate(1, name)",)) == ""
    mirror.store.rename_column(PATH, "name", "label")
    why = mirror.tier({"id": 2, "label": "b"}, lake_partition=("truncate(1, label)",))
    assert "found 'name', which the source has renamed, in a key or a partitioning, where Paimon keeps names" in why
    mirror.store.rename_column(PATH, "label", "name")
    assert mirror.tier({"id": 3, "name": "c"}, lake_partition=("truncate(1, name)",)) == ""
    assert [row["name"] for row in mirror.rows()] == ["a", "b", "c"]
    mirror.store.close()


def test_a_column_that_both_rename_keeps_the_name_of_the_lake_table(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.kind.rename(PATH, "name", "label")
    mirror.store.rename_column(PATH, "name", "title")
    assert mirror.tier({"id": 2, "title": "b"}) == ""
    assert mirror.rows() == [{"id": 1, "label": "a"}, {"id": 2, "label": "b"}]
    assert mirror.verify(capsys)


def test_a_nullable_column_that_somebody_adds_to_the_lake_table_is_null(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.kind.add(PATH, "extra")
    assert mirror.tier({"id": 2, "name": "b"}) == ""
    assert mirror.rows() == [{"id": 1, "name": "a", "extra": None}, {"id": 2, "name": "b", "extra": None}]
    assert mirror.verify(capsys)


def test_a_column_that_somebody_drops_in_the_lake_table_suspends_it_and_the_words_name_a_statement(
    mirror: Mirror,
) -> None:
    mirror.kind.drop(PATH, "name")
    why = mirror.tier({"id": 2, "name": "b"})
    assert "expected column 'name', found field" in why
    assert "ALTER TABLE t.orders ADD COLUMN `name` string" in why.replace("STRING", "string")
