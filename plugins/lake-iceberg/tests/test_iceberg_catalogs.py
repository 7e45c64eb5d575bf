"""The catalogs and stores of other people, as far as they can be had here: S3 and Glue by moto, REST with OAuth."""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.pool import QueuePool

from lakeward.clock import SystemClock
from lakeward.errors import ConfigError, FencedError, LakeError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change, TablePath
from lakeward.ports import CheckedLake
from lakeward_iceberg_kit.oauth import CLIENT, SECRET, OAuthCatalog
from lakeward_lake_iceberg.catalog import CatalogClient
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.storage import Storage
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


_NUMBERS = itertools.count()
_KEYS = {"client.access-key-id": "someone", "client.secret-access-key": "password", "client.region": "us-east-1"}


@pytest.fixture(scope="module")
def amazon() -> Iterator[str]:
    """S3 and Glue of this machine."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(amazon: str, request: pytest.FixtureRequest) -> str:
    """Name an empty bucket."""
    name: str = request.node.originalname.replace("_", "-")[:40] + str(next(_NUMBERS))
    with urllib.request.urlopen(urllib.request.Request(f"{amazon}/{name}", method="PUT")):  # noqa: S310 - of this machine
        return name


@pytest.fixture
def sql_on_s3(amazon: str, bucket: str, tmp_path: Path) -> IcebergOptions:
    return IcebergOptions(
        warehouse=f"s3://{bucket}/warehouse",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        properties={"s3.endpoint": amazon, **_KEYS},
    )


@pytest.fixture
def glue(amazon: str, bucket: str) -> IcebergOptions:
    return IcebergOptions(
        warehouse=f"s3://{bucket}/warehouse",
        catalog="glue",
        properties={"s3.endpoint": amazon, "glue.endpoint": amazon, **_KEYS},
    )


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[OAuthCatalog]:
    server = OAuthCatalog(tmp_path / "warehouse")
    yield server
    server.close()


def oauth_options(guarded: OAuthCatalog, secret: str = SECRET) -> IcebergOptions:
    properties = {
        "credential": f"{CLIENT}:{secret}",
        "scope": "PRINCIPAL_ROLE:ALL",
        "oauth2-server-uri": guarded.token_uri,
    }
    return IcebergOptions(warehouse=guarded.warehouse, catalog="rest", uri=guarded.uri, properties=properties)


@pytest.fixture
def rest_with_oauth(guarded: OAuthCatalog) -> IcebergOptions:
    return oauth_options(guarded)


def rows(options: IcebergOptions) -> list[dict[str, Any]]:
    """Read the table by pyiceberg: DuckDB would need an extension that comes in no wheel."""
    client = CatalogClient(options)
    found = client.catalog.load_table((PATH.database, PATH.table)).scan().to_arrow()
    client.close()
    return sorted(found.select(["id", "name"]).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("kind", ["sql_on_s3", "glue", "rest_with_oauth"])
def test_rounds_reach_the_table_and_an_older_start_is_fenced(kind: str, request: pytest.FixtureRequest) -> None:
    options: IcebergOptions = request.getfixturevalue(kind)
    plugin, table = IcebergLakePlugin(), key_table()
    lake = plugin.open(options, SystemClock())
    first = TieringRound(plugin, lake, table, incarnation())
    inserted = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    first.write(log_split(table), [source_batch(COLUMNS, inserted, changes=[Change.INSERT] * 2)])
    assert lake.commit(first.request()) is CommitOutcome.LANDED

    second = TieringRound(plugin, lake, table, incarnation(2000), number=2)
    changed = [{"id": 2, "name": "b"}, {"id": 2, "name": "c"}, {"id": 1, "name": "a"}]
    changes = [Change.UPDATE_BEFORE, Change.UPDATE_AFTER, Change.DELETE]
    second.write(log_split(table), [source_batch(COLUMNS, changed, changes=changes, start=2)])
    assert lake.commit(second.request()) is CommitOutcome.LANDED

    assert rows(options) == [{"id": 2, "name": "c"}]
    with pytest.raises(FencedError):
        lake.commit(first.request())
    lake.close()


def test_a_token_is_asked_for_with_the_scope_and_again_when_it_has_expired(guarded: OAuthCatalog) -> None:
    client = CatalogClient(oauth_options(guarded))
    assert client.load(TablePath("shop", "orders")) is None
    asked = len(guarded.asked)
    guarded.tokens.clear()
    assert client.load(TablePath("shop", "orders")) is None
    client.close()
    assert len(guarded.asked) == asked + 1
    assert {form["scope"][0] for form in guarded.asked} == {"PRINCIPAL_ROLE:ALL"}


def test_a_wrong_secret_is_an_error_that_does_not_tell_it(guarded: OAuthCatalog) -> None:
    with pytest.raises(LakeError, match="cannot be opened") as caught:
        IcebergLakePlugin().open(oauth_options(guarded, "s3cret"), SystemClock())
    assert "s3cret" not in str(caught.value)


def test_connections_are_closed_with_the_last_reference_to_their_catalog(tmp_path: Path) -> None:
    catalog = CatalogClient(IcebergOptions(warehouse=str(tmp_path / "warehouse"))).catalog
    assert isinstance(catalog, SqlCatalog)
    pool = catalog.engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.checkedin() == 1
    del catalog
    gc.collect()
    assert pool.checkedin() == 0


def test_the_doctor_tries_a_warehouse_in_a_store_and_compares_its_clock(sql_on_s3: IcebergOptions) -> None:
    lake = IcebergLakePlugin().open(sql_on_s3, SystemClock())
    try:
        assert isinstance(lake, CheckedLake)
        found = {one.what: one for one in lake.check(write=True)}
        left = Storage(sql_on_s3.warehouse, sql_on_s3.properties).list(sql_on_s3.warehouse)
    finally:
        lake.close()
    assert [one for one in found.values() if not one.ok] == []
    assert {"catalog", "warehouse", "warehouse's clock"} <= set(found)
    assert left == ()


def test_the_doctor_finds_a_stores_clock_that_is_not_ours(sql_on_s3: IcebergOptions) -> None:
    lake = IcebergLakePlugin().open(sql_on_s3, FakeClock())
    try:
        assert isinstance(lake, CheckedLake)
        found = {one.what: one for one in lake.check(write=True)}
    finally:
        lake.close()
    assert not found["warehouse's clock"].ok
    assert "this machine's clock" in found["warehouse's clock"].message


def test_a_misspelt_type_of_catalog_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lake\.catalog: .* found 'glu'\. Did you mean 'glue'\?"):
        CatalogClient(IcebergOptions(warehouse=str(tmp_path), catalog="glu"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"catalog": "glue"}, r"lake\.catalog: .* found 'glue'\. .*pip install 'pyiceberg\[glue\]'"),
        ({"catalog": "hive", "uri": "thrift://h:1"}, r"found 'hive'\. .*pip install 'pyiceberg\[hive\]'"),
        (
            {"uri": "postgresql+psycopg2://u:pw@h/db"},
            r"lake\.uri: .* found 'postgresql\+psycopg2://\*+@h/db'\. .*pip install",
        ),
    ],
)
def test_a_package_that_a_catalog_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], said: str
) -> None:
    for package in ("boto3", "hive_metastore", "thrift", "psycopg2"):
        monkeypatch.setitem(sys.modules, package, None)
    for module in ("glue", "hive"):
        monkeypatch.delitem(sys.modules, f"pyiceberg.catalog.{module}", raising=False)
    with pytest.raises(ConfigError, match=said):
        CatalogClient(IcebergOptions(warehouse=str(tmp_path), **keys))


def test_a_uri_of_no_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lake\.uri: expected the URI of a database .* found 'catalog'"):
        CatalogClient(IcebergOptions(warehouse=str(tmp_path), uri="catalog"))


def test_a_file_that_nothing_names_is_found_in_s3_and_no_other(sql_on_s3: IcebergOptions) -> None:
    plugin, table = IcebergLakePlugin(), key_table()
    lake: Any = plugin.open(sql_on_s3, SystemClock())
    tiering = TieringRound(plugin, lake, table, incarnation())
    tiering.write(log_split(table), [source_batch(COLUMNS, [{"id": 1, "name": "a"}], changes=[Change.INSERT])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    left = f"{lake.head(PATH).location}/data/left.parquet"
    storage = Storage(left, sql_on_s3.properties)
    with storage.create(left) as sink:
        sink.write(b"left")
    tomorrow = SystemClock().wall_ms() + 86_400_000
    assert [one.path for one in lake.find_orphans(PATH, (), tomorrow)] == [left]
    assert lake.find_orphans(PATH, (), tomorrow - 2 * 86_400_000) == ()
    lake.delete([left])
    assert lake.find_orphans(PATH, (), tomorrow) == ()
    assert rows(sql_on_s3) == [{"id": 1, "name": "a"}]
    lake.close()
