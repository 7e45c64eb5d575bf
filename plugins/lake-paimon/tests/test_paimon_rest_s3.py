"""Tables of a REST catalog whose files lie in S3: tiered, evolved, compacted, expired, fenced, set aside and read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from lakeward.errors import ConfigError, FencedError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.task import unpack_task
from lakeward_paimon_kit.rest import TOKEN, RestCatalogServer
from lakeward_paimon_kit.store import KEYS, new_bucket, running_store
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

pytestmark = pytest.mark.slow
WIDER = COLUMNS.append(pa.field("late", pa.int64()))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server."""
    with running_store() as address:
        yield address


@pytest.fixture
def store(endpoint: str) -> pafs.S3FileSystem:
    """The store, as the catalog uses it."""
    place = endpoint.removeprefix("http://")
    keys = {"access_key": KEYS["s3.access-key"], "secret_key": KEYS["s3.secret-key"]}
    return pafs.S3FileSystem(**keys, endpoint_override=place, scheme="http", region="us-east-1")


@pytest.fixture
def catalog(endpoint: str, store: pafs.S3FileSystem) -> Iterator[RestCatalogServer]:
    """A catalog without tables, whose warehouse is a bucket of its own. It says where the store is."""
    with RestCatalogServer.running(f"{new_bucket(endpoint)}/lake", store) as server:
        server.defaults = {"s3.endpoint": endpoint}
        yield server


@pytest.fixture
def options(catalog: RestCatalogServer) -> PaimonOptions:
    """The warehouse of that catalog."""
    properties = {"token": TOKEN, **KEYS}
    return PaimonOptions(metastore="rest", uri=catalog.uri, warehouse="lake", properties=properties, keep_snapshots=2)


def tier(plugin: PaimonLakePlugin, lake: PaimonLake, table: TableSpec, number: int, *ids: int) -> None:
    """Commit a round with a row for each id."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    rows = [{"id": one, "name": f"n{number}", "late": number} for one in ids]
    tiering.write(log_split(table), [source_batch(table.schema, rows, changes=[Change.INSERT] * len(rows))])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def rows_of(lake: PaimonLake) -> list[dict[str, Any]]:
    """Return the rows of the head, whose files are what is said of them, by id."""
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(PATH, snapshot, None)) == []
    found = [row for batch in lake.read_rows(PATH, snapshot) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_a_table_is_tiered_widened_compacted_expired_and_read(  # noqa: PLR0917 - fixtures
    plugin: PaimonLakePlugin,
    lake: PaimonLake,
    options: PaimonOptions,
    endpoint: str,
    store: pafs.S3FileSystem,
    catalog: RestCatalogServer,
    python_reader: PythonReader,
    *,
    keyed: bool,
) -> None:
    make = key_table if keyed else log_table
    tier(plugin, lake, make(buckets=1, system_columns=False), 1, 1)
    last = 7 if keyed else 4
    for number in range(2, last):
        tier(plugin, lake, make(WIDER, buckets=1, system_columns=False), number, number)
    assert bool(compact(plugin, lake)) == keyed
    assert lake.expire(PATH, frozenset()) > 0
    tier(plugin, lake, make(WIDER, buckets=1, system_columns=False), last, last)
    expected = [{"id": one, "name": f"n{one}", "late": one if one > 1 else None} for one in range(1, last + 1)]
    assert rows_of(lake) == expected
    told = {"metastore": "rest", "uri": options.uri, "token.provider": "bear", "token": TOKEN, **KEYS}
    told |= {"s3.endpoint": endpoint, "s3.region": "us-east-1"}
    found = python_reader.rows(options.warehouse, str(PATH), told)
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == expected
    # Every file is in the store, where the catalog says.
    files = {one.path for one in store.get_file_info(pafs.FileSelector(catalog.root, recursive=True)) if one.is_file}
    assert len([one for one in files if one.endswith(".parquet")]) >= 2
    assert lake.referenced(PATH, [f"s3://{one}" for one in files if "/manifest/" in one])


def test_a_stale_start_is_fenced_by_the_catalog_and_a_table_that_was_made_anew_is_set_aside_by_its_name(
    plugin: PaimonLakePlugin, lake: PaimonLake, catalog: RestCatalogServer
) -> None:
    stale = TieringRound(plugin, lake, log_table(), incarnation(1000))
    stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
    live = TieringRound(plugin, lake, log_table(), incarnation(2000))
    live.write(log_split(live.table), [source_batch(COLUMNS, [{"id": 2}])])
    assert lake.commit(live.request()) is CommitOutcome.LANDED
    with pytest.raises(FencedError):
        lake.commit(stale.request())
    assert [row["id"] for row in rows_of(lake)] == [2]
    anew = TieringRound(plugin, lake, log_table(table_id=8), incarnation(3000))
    anew.write(log_split(anew.table), [source_batch(COLUMNS, [{"id": 3}])])
    assert lake.commit(anew.request()) is CommitOutcome.LANDED
    assert [row["id"] for row in rows_of(lake)] == [3]
    assert sorted(catalog.tables("shop")) == ["orders", "orders__dropped_7"]


def test_a_table_that_lies_elsewhere_in_the_store_is_fenced_by_its_files(
    plugin: PaimonLakePlugin, lake: PaimonLake, endpoint: str, catalog: RestCatalogServer
) -> None:
    table = log_table(properties={"paimon.path": f"s3://{new_bucket(endpoint)}/elsewhere"})
    stale = TieringRound(plugin, lake, table, incarnation(1000))
    live = TieringRound(plugin, lake, table, incarnation(2000))
    live.write(log_split(table), [source_batch(COLUMNS, [{"id": 2}])])
    assert lake.commit(live.request()) is CommitOutcome.LANDED
    with pytest.raises(FencedError):
        lake.commit(stale.request())
    assert [row["id"] for row in rows_of(lake)] == [2]
    assert not [one for one in catalog.seen if one[1].endswith("/commit")]


def test_writers_get_the_keys_of_the_store_and_not_the_token_of_the_catalog(
    plugin: PaimonLakePlugin, lake: PaimonLake, endpoint: str
) -> None:
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    assert unpack_task(tiering.task).storage == {"s3.endpoint": endpoint, **KEYS}
    assert TOKEN.encode() not in tiering.task


def test_without_keys_of_the_store_it_is_said_which_are_expected(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    lake = plugin.open(msgspec.structs.replace(options, properties={"token": TOKEN}), FakeClock())
    with pytest.raises(ConfigError, match=r"^lake\.properties: expected s3\.access-key and s3\.secret-key"):
        lake.open_table(replace(log_table(), path=PATH), incarnation())
