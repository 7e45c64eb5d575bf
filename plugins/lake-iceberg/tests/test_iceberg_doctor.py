"""What the lake says of its catalog and warehouse for `lakeward doctor`, in a right and in a wrong world."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError

from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward.ports import CheckedLake, CheckResult, ComparedLake, ServerLake
from lakeward_demo.rest_server import RestCatalogServer
from lakeward_lake_iceberg.check import _clock_of
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

    from lakeward.ports import Clock

TABLES = (TablePath("shop", "orders"),)


def checked(options: IcebergOptions, *, write: bool, clock: Clock | None = None) -> dict[str, CheckResult]:
    lake = IcebergLakePlugin().open(options, clock or SystemClock())
    try:
        assert isinstance(lake, CheckedLake)
        return {one.what: one for one in lake.check(write=write)}
    finally:
        lake.close()


def compared(options: IcebergOptions, settings: dict[str, str]) -> CheckResult:
    lake = IcebergLakePlugin().open(options, FakeClock())
    try:
        assert isinstance(lake, ComparedLake)
        return lake.compare(ServerLake(TABLES, "iceberg", settings))
    finally:
        lake.close()


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[IcebergOptions]:
    """A REST catalog on this machine."""
    with RestCatalogServer.running(tmp_path / "warehouse") as server:
        yield IcebergOptions(catalog="rest", uri=server.uri, warehouse=server.warehouse)


def test_a_lake_that_is_not_there_yet_stays_so_unless_writing_is_asked_for(
    options: IcebergOptions, tmp_path: Path
) -> None:
    found = checked(options, write=False)
    assert found["catalog"].ok
    assert "--write" in found["catalog"].action
    assert list(tmp_path.iterdir()) == []


def test_everything_that_was_tried_is_gone_again(options: IcebergOptions, tmp_path: Path) -> None:
    found = checked(options, write=True)
    assert [one for one in found.values() if not one.ok] == []
    assert {"catalog", "warehouse"} <= set(found)
    assert [path.name for path in (tmp_path / "warehouse").iterdir()] == ["catalog.db"]


def test_a_rest_catalog_is_tried_and_its_clock_compared(rest: IcebergOptions, tmp_path: Path) -> None:
    found = checked(rest, write=True)
    assert [one for one in found.values() if not one.ok] == []
    assert "catalog's clock" in found
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "lakeward_doctor" in str(path)] == []


def test_a_rest_catalog_whose_clock_is_wrong_is_a_problem(rest: IcebergOptions) -> None:
    found = checked(rest, write=False, clock=FakeClock())["catalog's clock"]
    assert not found.ok
    assert "ahead of this machine's clock" in found.message
    assert "NTP" in found.action


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("create_namespace", "create a namespace"),
        ("create_table", "create a table"),
        ("commit_table", "commit to a table"),
    ],
)
def test_a_right_that_is_missing_is_named(
    options: IcebergOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, step: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "not yours"
        raise ForbiddenError(message)

    monkeypatch.setattr(SqlCatalog, method, refuse)
    found = checked(options, write=True)["catalog"]
    assert (found.ok, found.message) == (False, f"this user cannot {step}: not yours")
    assert found.action == f"give the user of [lake] the right to {step}"
    assert [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file() and path.name != "catalog.db"] == []


def test_a_catalog_that_cannot_be_listed_is_a_problem(options: IcebergOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    checked(options, write=True)

    def refuse(*_: object) -> None:
        message = "not yours"
        raise ForbiddenError(message)

    monkeypatch.setattr(SqlCatalog, "list_namespaces", refuse)
    found = checked(options, write=False)["catalog"]
    assert (found.ok, found.message) == (False, "cannot be listed: not yours")


def test_a_table_that_cannot_be_dropped_is_named(options: IcebergOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        message = "not yours"
        raise ForbiddenError(message)

    monkeypatch.setattr(SqlCatalog, "drop_table", refuse)
    found = checked(options, write=True)["catalog"]
    assert (found.ok, found.message) == (False, "this user cannot drop a table: not yours")
    assert "lakeward_doctor_" in found.action


def test_a_warehouse_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("", encoding="utf-8")
    options = IcebergOptions(warehouse=str(tmp_path / "warehouse"), uri=f"sqlite:///{tmp_path}/catalog.db")
    found = checked(options, write=True)["catalog"]
    assert not found.ok
    assert found.message.startswith("this user cannot create a table: ")


def test_a_table_whose_files_cannot_be_written_is_a_problem(
    options: IcebergOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    create = SqlCatalog.create_table

    def create_and_block(*words: Any, **named: Any) -> Table:  # noqa: ANN401 - as pyiceberg has it
        table = create(*words, **named)
        (Path(table.location().removeprefix("file://")) / "data").write_text("in the way", encoding="utf-8")
        return table

    monkeypatch.setattr(SqlCatalog, "create_table", create_and_block)
    found = checked(options, write=True)
    assert found["catalog"].ok
    assert not found["warehouse"].ok
    assert found["warehouse"].message.startswith("this user cannot write and delete a file: ")
    assert [path.name for path in (tmp_path / "warehouse").iterdir()] == ["catalog.db"]


class _Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_catalog_that_refuses_us_still_tells_the_time() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found: Any = _clock_of(f"http://127.0.0.1:{server.server_address[1]}", SystemClock())
        server.shutdown()
    assert found.ok


@pytest.mark.parametrize(
    ("settings", "ok"),
    [
        ({}, True),
        ({"type": "rest", "uri": "http://catalog:8181/"}, True),
        ({"type": "rest", "uri": "http://catalog:8181", "warehouse": "lake"}, True),
        ({"type": "rest", "uri": "http://other:8181"}, False),
        ({"type": "rest", "warehouse": "another"}, False),
        ({"type": "hadoop", "warehouse": "/data"}, False),
        ({"type": "hive"}, True),
    ],
)
def test_the_servers_catalog_is_compared_with_ours(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    ok: bool,
) -> None:
    monkeypatch.setattr("lakeward_lake_iceberg.catalog.load_catalog", lambda *_, **__: FakeCatalog())
    options = IcebergOptions(catalog="rest", uri="http://catalog:8181", warehouse="lake")
    assert compared(options, settings).ok is ok


def test_a_difference_names_the_key_and_both_sides_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeward_lake_iceberg.catalog.load_catalog", lambda *_, **__: FakeCatalog())
    options = IcebergOptions(catalog="rest", uri="http://catalog:8181", warehouse="lake")
    found = compared(options, {"uri": "http://me:hush@other:8181", "credential": "hush"})
    assert "expected lake.uri" in found.message
    assert "found http://catalog:8181" in found.message
    assert "hush" not in found.message


class FakeCatalog:
    """A catalog that is never asked."""

    def close(self) -> None:
        """Close nothing."""
