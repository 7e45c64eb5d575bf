"""A catalog that does not answer is told from one that refuses, in words that are the same for every table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import LakeAwayError, LakeError
from lakeward.model.tables import TablePath
from lakeward_demo.rest_server import RestCatalogServer
from lakeward_iceberg_kit.gateway import Fate, Gateway
from lakeward_lake_iceberg.catalog import CatalogClient
from lakeward_lake_iceberg.options import IcebergOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog

PATHS = [TablePath("shop", "orders"), TablePath("shop", "clicks")]


def said(client: CatalogClient) -> list[str]:
    """Return what is said of each table while the catalog is away."""
    words = []
    for path in PATHS:
        with pytest.raises(LakeAwayError) as away:
            client.load(path)
        words.append(str(away.value))
    return words


def test_a_catalog_that_another_process_has_locked_does_not_answer(
    options: IcebergOptions, catalog: SqlCatalog
) -> None:
    catalog.create_namespace("shop")
    client = CatalogClient(msgspec.structs.replace(options, commit_timeout_s=0.1))
    with closing(sqlite3.connect(f"{options.warehouse}/catalog.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert said(client) == [f"{options.warehouse}/catalog.db: database is locked"] * 2
        other.rollback()
    assert client.load(PATHS[0]) is None
    client.close()


def test_a_server_where_nobody_listens_any_more_does_not_answer(tmp_path: Path) -> None:
    with RestCatalogServer.running(tmp_path) as server:
        client = CatalogClient(IcebergOptions(warehouse=str(tmp_path), catalog="rest", uri=server.uri))
        assert client.load(PATHS[0]) is None
    client.close()  # its connections would keep the server's threads
    assert said(client) == [f"{server.uri}: connection refused"] * 2
    client.close()


@pytest.mark.parametrize("fate", [Fate.UNAVAILABLE, Fate.REQUEST_LOST])
def test_a_server_that_fails_or_is_silent_does_not_answer(gateway: Gateway, fate: Fate) -> None:
    client = CatalogClient(gateway.options)
    assert client.load(PATHS[0]) is None
    gateway.fate = lambda _: fate
    (first, second) = said(client)
    assert first == second
    client.close()


def test_a_catalog_that_has_lost_its_tables_has_answered(options: IcebergOptions, catalog: SqlCatalog) -> None:
    catalog.create_namespace("shop")
    client = CatalogClient(options)
    assert client.load(PATHS[0]) is None
    catalog.destroy_tables()
    with pytest.raises(LakeError, match="no such table: iceberg_tables") as failed:
        client.load(PATHS[0])
    assert not isinstance(failed.value, LakeAwayError)
    assert "SELECT" not in str(failed.value)
    client.close()
