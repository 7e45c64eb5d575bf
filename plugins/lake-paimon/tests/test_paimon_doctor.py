"""What `lakeward doctor` and `lakeward config check` say of a Paimon lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.config.sections import build_options
from lakeward.errors import ConfigError, SchemaMismatchError
from lakeward.model.tables import PRECISION, TableSpec
from lakeward.ports import CheckedLake, ComparedLake, SchemaCheckedLake, ServerLake
from lakeward_lake_paimon.local_storage import PinnedFolder
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_testing.lake_tables import COLUMNS, PATH, incarnation, key_table, log_table

if TYPE_CHECKING:
    from lakeward.ports import Lake


def test_a_warehouse_that_can_be_written_says_so_and_nothing_stays(lake: Lake, options: PaimonOptions) -> None:
    assert isinstance(lake, CheckedLake)
    lake.open_table(log_table(), incarnation())
    (read,) = lake.check(write=False)
    assert read.ok
    assert "has 1 database;" in read.message
    (written,) = lake.check(write=True)
    assert written.ok
    assert "refused a second time" in written.message
    assert [one.name for one in Path(options.warehouse).iterdir()] == ["shop.db"]


def test_a_disk_that_creates_a_file_twice_is_a_problem(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(lake, CheckedLake)
    monkeypatch.setattr(PinnedFolder, "create", lambda *_: True)
    (found,) = lake.check(write=True)
    assert not found.ok
    assert "overwrite each other's commits" in found.message


@pytest.mark.parametrize(
    ("settings", "ok", "said"),
    [
        ({"metastore": "filesystem", "warehouse": "{root}/"}, True, "is ours"),
        ({"warehouse": "file://{root}"}, True, "is ours"),
        ({"warehouse": "file:{root}"}, True, "is ours"),
        ({"warehouse": "/elsewhere"}, False, "expected lake.warehouse /elsewhere as at the server"),
        ({"metastore": "hive", "uri": "thrift://host"}, False, "the server's metastore is hive"),
    ],
)
def test_the_server_has_the_same_warehouse_or_another_one(
    lake: Lake, options: PaimonOptions, settings: dict[str, str], said: str, *, ok: bool
) -> None:
    assert isinstance(lake, ComparedLake)
    told = {key: value.format(root=options.warehouse) for key, value in settings.items()}
    found = lake.compare(ServerLake((PATH,), "paimon", told))
    assert found.ok is ok
    assert said in found.message


@pytest.mark.parametrize(("metastore", "name"), [("hive", "Hive"), ("jdbc", "JDBC")])
def test_a_catalog_whose_lock_is_not_taken_is_refused_with_the_reason_and_what_to_do(metastore: str, name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_options(PaimonOptions, {"warehouse": "w", "metastore": metastore}, "lake")
    said = str(refused.value)
    assert said.startswith(f"lake.metastore: expected one of 'filesystem', 'rest', found '{metastore}'. ")
    assert f"a {name} catalog are committed to under a lock that only Paimon's own code takes" in said
    assert "leave them to Fluss's own tiering service, or have them in a REST catalog" in said


def test_who_compacts_is_this_service_or_none() -> None:
    with pytest.raises(ConfigError) as refused:
        build_options(PaimonOptions, {"warehouse": "w", "compaction": "spark"}, "lake")
    assert str(refused.value).startswith("lake.compaction: expected one of 'own', 'none', found 'spark'")


def refused() -> dict[str, tuple[TableSpec, str]]:
    """Return tables that cannot be in Paimon, and what is said."""
    id_ = COLUMNS.field("id")
    fine = pa.field("k", pa.timestamp("us"), nullable=False, metadata={PRECISION: b"9"})
    small = pa.field("k", pa.time64("us"), nullable=False)
    properties = {f"paimon.{key}": value for key, value in {"deletion-vectors.enabled": "true"}.items()}
    return {
        "unsigned": (log_table(pa.schema([pa.field("x", pa.uint8())])), "type uint8 has no form in Paimon"),
        "wide": (log_table(pa.schema([pa.field("x", pa.decimal256(40, 2))])), "has no form in Paimon"),
        "reserved": (log_table(pa.schema([pa.field("__offset", pa.int64())])), "reserved for a system column"),
        "float": (
            key_table(pa.schema([pa.field("id", pa.float64(), nullable=False)])),
            "give the source's table another",
        ),
        "nested": (key_table(pa.schema([pa.field("id", pa.list_(pa.int8()), nullable=False)])), "key column 'id'"),
        "fine": (key_table(pa.schema([fine, id_]), primary_key=("k",)), "at most 6 digits"),
        "time": (key_table(pa.schema([small, id_]), primary_key=("k",)), "at most 3 digits"),
        "vectors": (key_table(properties=properties), "deletion-vectors.enabled"),
        "engine": (key_table(properties={"paimon.merge-engine": "aggregation"}), "merge-engine = deduplicate"),
        "sequence": (key_table(properties={"paimon.sequence.field": "name"}), "no table option sequence.field"),
        "format": (log_table(properties={"paimon.file.format": "orc"}), "file.format = parquet"),
        "path": (log_table(properties={"paimon.path": "/elsewhere"}), "paimon.path = /elsewhere"),
    }


@pytest.mark.parametrize("name", refused())
def test_a_table_that_cannot_be_in_paimon_is_named_before_and_when_it_is_opened(lake: Lake, name: str) -> None:
    table, said = refused()[name]
    assert isinstance(lake, SchemaCheckedLake)
    with pytest.raises(SchemaMismatchError, match=said):
        lake.check_schema(table)
    with pytest.raises(SchemaMismatchError, match=said):
        lake.open_table(table, incarnation())
    assert lake.head(PATH) is None
