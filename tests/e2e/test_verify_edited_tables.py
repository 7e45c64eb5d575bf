"""`lakeward verify` on lake tables that a service wrote and a person then changed; no Spark is needed for that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeward.cli.main import run
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_e2e.lakes import LAKES, lake_id
from lakeward_service_kit.service_world import World as Services
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward_e2e.lakes import AnyTables

LOG, KEYED, MIRRORED = (TablePath("t", name) for name in ("log", "keyed", "mirrored"))
CLEAN_LOG, CLEAN_KEYED = (TablePath("t", name) for name in ("clean_log", "clean_keyed"))
KEYS = (KEYED, CLEAN_KEYED)
TABLES = (LOG, KEYED, MIRRORED, CLEAN_LOG, CLEAN_KEYED)
RULES = {
    MIRRORED: TableSettings(mode="mirror", lake_partition=("truncate(2, name)",), exchange="none"),
    CLEAN_KEYED: TableSettings(mode="mirror", system_columns=False),
}
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
[tables."t.mirrored"]
mode = "mirror"
lake_partition = ["truncate(2, name)"]
exchange = "none"
[tables."t.clean_keyed"]
mode = "mirror"
system_columns = false
"""


@pytest.fixture(scope="module", params=LAKES, ids=lake_id)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AnyTables:
    """A lake with tables that were tiered; the keyed ones have changed since. A configuration lies beside it.

    The lake table of one log was made without system columns, as Fluss does since 1.0.
    """
    folder = tmp_path_factory.mktemp("verified")
    tables: AnyTables = request.param(folder)
    (folder / "lakeward.toml").write_text(CONFIG.replace("{lake}", tables.name), encoding="utf-8")
    services = Services.create(folder)
    services.rules = lambda path: RULES.get(path, TableSettings())
    for path in TABLES:
        services.table(path.table, key=path in KEYS)
        services.load(path, 0, 300, "insert" if path in KEYS else None)
    opened = tables.open(services.clock)
    tables.make_clean(CLEAN_LOG)
    tier(services, opened, tables.name)
    for path in KEYS:
        services.load(path, 0, 50, "update")
        services.load(path, 290, 10, "delete")
    tier(services, opened, tables.name)
    opened.close()
    services.store.close()
    return tables


@pytest.fixture
def place(lake: AnyTables) -> Path:
    """The directory with the configuration."""
    return lake.warehouse.parent


def tier(services: Services, lake: Any, name: str) -> None:  # noqa: ANN401 - a lake of any type
    source = EmbeddedSource(EmbeddedStore.open(services.store.root))
    end = services.once(source=source, mirrors=True, lake=lake, lake_type=name)
    assert end.failed == ()


@pytest.fixture
def verified(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Verify a table by the command; gives the exit code and the document."""
    monkeypatch.chdir(place)

    def verify(path: TablePath) -> tuple[int, Any]:
        capsys.readouterr()
        code = run(["verify", str(path), "-o", "json"])
        return code, json.loads(capsys.readouterr().out)

    return verify


@pytest.fixture
def file(lake: AnyTables, path: TablePath) -> Iterator[Path]:
    """A data file with the row that is edited; a person may change it, and it is put back afterwards."""
    (found,) = lake.files_of(path, lake.row)
    before = found.read_bytes()
    yield found
    found.write_bytes(before)


def removed(rows: pa.Table, row: int) -> pa.Table:
    return rows.filter(pc.not_equal(rows.column("id"), row))


def doubled(rows: pa.Table, row: int) -> pa.Table:
    return pa.concat_tables([rows, rows.filter(pc.equal(rows.column("id"), row))])


def changed(rows: pa.Table, row: int) -> pa.Table:
    place = rows.schema.get_field_index("name")
    names = pc.if_else(pc.equal(rows.column("id"), row), "by hand", rows.column("name"))
    return rows.set_column(place, rows.schema.field("name"), names)


@pytest.mark.parametrize("path", TABLES, ids=str)
def test_what_a_service_wrote_is_equal(verified: Callable[..., Any], path: TablePath) -> None:
    code, found = verified(path)
    rows = 290 if path in KEYS else 300
    assert (code, found["equal"], found["source_rows"], found["lake_rows"]) == (0, True, rows, rows)


@pytest.mark.parametrize("edit", [removed, doubled, changed])
@pytest.mark.parametrize("path", TABLES, ids=str)
def test_what_a_person_changed_is_found(
    verified: Callable[..., Any],
    lake: AnyTables,
    path: TablePath,
    file: Path,
    edit: Callable[[pa.Table, int], pa.Table],
) -> None:
    pq.write_table(edit(pq.read_table(file, partitioning=None), lake.row), file)
    code, found = verified(path)
    kinds = {"missing" if edit is removed else edit.__name__: 1}
    if path == CLEAN_LOG and edit is changed:
        kinds = {"missing": 1, "extra": 1}  # nothing says that it was that row
    if path in KEYS and edit is doubled and not lake.finds_doubled_keys:
        # The rows come out of order, so a merge of files may give any.
        assert (code, {"row count", "order"} <= {one["what"] for one in found["file_differences"]}) == (1, True)
        return
    assert (code, {name: number for name, number in found["counts"].items() if number}) == (1, kinds)
    assert found["wrong_in_files"]
    if len(kinds) > 1:
        return
    (first,) = found["first"]
    shown = (first["column"], first["source"], first["lake"])
    assert shown == (("name", f"'n{lake.row}'", "'by hand'") if edit is changed else ("", "", ""))


def test_nothing_of_a_comparison_stays_on_disk(verified: Callable[..., Any], place: Path) -> None:
    before = set(place.rglob("*"))
    assert verified(LOG)[0] == 0
    # Whoever closes SQLite's file last removes the two that go with it: they may be there before.
    assert set(place.rglob("*")) - before == set()


def test_a_table_that_was_never_tiered_has_nothing_to_compare(verified: Callable[..., Any]) -> None:
    with EmbeddedStore.open("store") as store:
        store.create_table(TablePath("t", "fresh"), pa.schema([("id", pa.int64())]))
    code, found = verified(TablePath("t", "fresh"))
    assert (code, found["equal"], found["snapshot_id"]) == (0, None, None)


@pytest.fixture
def altered(lake: AnyTables, path: TablePath) -> Iterator[AnyTables]:
    """The lake, whose table somebody else may alter; it is put back afterwards."""
    with lake.put_back(path):
        yield lake


@pytest.mark.parametrize("path", [LOG, KEYED], ids=str)
def test_a_column_that_a_person_dropped_is_a_difference(
    verified: Callable[..., Any], path: TablePath, altered: AnyTables
) -> None:
    altered.drop(path, "name")
    code, found = verified(path)
    assert (code, found["equal"], list(found["lost"]), found["not_in_lake"]) == (1, False, ["name"], [])


@pytest.mark.parametrize("path", [LOG], ids=str)
def test_a_column_that_a_person_renamed_is_a_difference(
    verified: Callable[..., Any], path: TablePath, altered: AnyTables
) -> None:
    altered.rename(path, "name", "label")
    code, found = verified(path)
    assert (code, found["lost"]) == (1, {"name": "somebody else renamed it to 'label'"})


@pytest.mark.parametrize("path", [LOG], ids=str)
def test_a_column_that_a_person_dropped_and_added_again_has_lost_its_values(
    verified: Callable[..., Any], path: TablePath, altered: AnyTables
) -> None:
    altered.drop(path, "name")
    altered.add(path, "name")
    code, found = verified(path)
    assert (code, found["lost"], found["counts"]["changed"]) == (1, {}, 300)


@pytest.mark.parametrize("path", [LOG], ids=str)
def test_a_column_of_the_lake_alone_is_not_compared(
    verified: Callable[..., Any], path: TablePath, altered: AnyTables
) -> None:
    altered.add(path, "more")
    altered.drop(path, "more")
    code, found = verified(path)
    assert (code, found["equal"], found["lost"]) == (0, True, {})


@pytest.mark.parametrize("path", [LOG], ids=str)
def test_a_data_file_that_cannot_be_read_is_named_and_no_reason_to_try_again(
    place: Path, path: TablePath, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    file.write_bytes(b"not a Parquet file")
    assert run(["verify", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"{file.name} of snapshot " in said
    assert " cannot be read: " in said
    assert "try again" not in said
    file.unlink()
    assert run(["verify", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"{file.name} of snapshot " in said
    assert " is not there" in said
    assert said.endswith("if the snapshot has expired meanwhile, try again\n")
