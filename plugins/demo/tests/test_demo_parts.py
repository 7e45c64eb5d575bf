from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.config.entries import read_document
from lakeward.config.loaded import Loaded
from lakeward.config.loader import load_config
from lakeward.config.tables import table_rules
from lakeward.coordinator.rounds.layout import table_layout
from lakeward.errors import LakeError, SourceError, UsageError
from lakeward_demo import shell_lines
from lakeward_demo.all_tiered import all_tiered
from lakeward_demo.feed import CHANGE, EVENT_COLUMNS, FLIGHT_COLUMNS, FLIGHTS
from lakeward_demo.feeder_process import FeederProcess
from lakeward_demo.iceberg import duckdb_ready
from lakeward_demo.lakes import open_lake
from lakeward_demo.place import Place, fresh_place
from lakeward_demo.proof import check_same, prove_dead_letters
from lakeward_demo.source import EmbeddedDemo
from lakeward_demo.stage import Stage, open_stage
from lakeward_demo.store import DemoTable, SnapshotCount
from lakeward_demo.tables import (
    ALL_TABLES,
    BOARD_TABLE,
    EVENTS_TABLE,
    FLIGHTS_TABLE,
    LAKE_PARTITIONS,
    load_changes,
    unfit_events,
)
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.model.tables import TablePath

    Lakeward = Callable[..., Any]


TABLES = (FLIGHTS_TABLE, dataclasses.replace(EVENTS_TABLE, tiered=True))


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[EmbeddedDemo]:
    """A store with the demo's tables."""
    with EmbeddedStore.create(tmp_path / "store") as store:
        demo = EmbeddedDemo(store)
        for table in TABLES:
            demo.create(table)
        yield demo


@pytest.fixture
def loaded(configured: Lakeward, tmp_path: Path) -> Loaded:
    """A configuration whose lake is empty."""
    assert configured("config", "show").code == 0
    return load_config(tmp_path / "lakeward.toml", {}, {})


def staged(demo: EmbeddedDemo, tables: tuple[DemoTable, ...]) -> Stage:
    """Return a stage with some tables; nothing is read from its lake."""
    return Stage("embedded", "", demo, open_lake("iceberg", Place(Path())), tables, "the store", lasts=True)


def changes(numbers: range, event: str = "scheduled", change: str = "insert") -> pa.Table:
    """Return changes of so many flights."""
    columns = {field.name: field for field in [*FLIGHT_COLUMNS, *EVENT_COLUMNS] if field.name != "month"}
    schema = pa.schema([*columns.values(), pa.field(CHANGE, pa.string())])
    rows = [{"flight_id": f"f{number}", CHANGE: change, "event": event} for number in numbers]
    day = pa.scalar(0, pa.int32()).cast(pa.date32())
    return pa.Table.from_pylist(rows, schema=schema).set_column(
        schema.get_field_index("flight_date"), "flight_date", pa.repeat(day, len(rows))
    )


def test_a_directory_is_made_with_a_configuration(tmp_path: Path) -> None:
    with fresh_place(tmp_path / "demo") as place:
        assert read_document(place.config)["source"] == {"type": "embedded", "path": "store"}


@pytest.mark.parametrize("lake", ["iceberg", "paimon"])
def test_a_configuration_names_the_lake(tmp_path: Path, lake: str) -> None:
    with fresh_place(tmp_path / "demo", lake) as place:
        section = read_document(place.config)["lake"]
    upkeep = {"expire_every": 1, "compaction_files": 2, "compaction_quiet_s": 0} if lake == "iceberg" else {}
    assert section == {"type": lake, "warehouse": "warehouse"} | upkeep


def test_a_cluster_shares_the_paimon_warehouse(tmp_path: Path) -> None:
    with open_lake("paimon", Place(tmp_path)).shared() as shared:
        assert shared.cluster["datalake.paimon.warehouse"] == shared.options["warehouse"] == str(tmp_path / "warehouse")


def test_a_configuration_partitions_the_mirrored_tables_and_no_other(tmp_path: Path) -> None:
    with fresh_place(tmp_path / "demo") as place:
        sections = read_document(place.config)["tables"]
    assert {name: (one["mode"], one["lake_partition"]) for name, one in sections.items()} == {
        "nyc.events": ("mirror", ["month(at)", "bucket(4, flight_id)"]),
        "nyc.board": ("mirror", ["month(scheduled)", "origin"]),
    }
    assert {table.path for table in ALL_TABLES if not table.tiered} == set(LAKE_PARTITIONS)


def test_only_rows_of_events_are_exchanged(tmp_path: Path) -> None:
    with fresh_place(tmp_path / "demo") as place, EmbeddedStore.create(place.store) as store:
        for table in ALL_TABLES:
            EmbeddedDemo(store).create(table)
        loaded = load_config(place.config, {}, {})
        layouts = [table_layout(spec, table_rules(loaded, spec.path).settings) for spec in store.tables()]
    assert {one.table: (one.exchange, one.error) for one in layouts} == {
        "nyc.flights": ("none", ""),
        "nyc.events": ("hash", ""),
        "nyc.board": ("none", ""),
    }


def test_an_earlier_demo_is_emptied_but_for_what_somebody_else_put_there(tmp_path: Path) -> None:
    with fresh_place(tmp_path) as place:
        place.warehouse.mkdir()
    (place.warehouse / "old").write_text("old", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with fresh_place(tmp_path):
        assert not place.warehouse.exists()
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(UsageError, match="missing, empty or of an earlier demo"), fresh_place(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_two_demos_do_not_share_a_directory(tmp_path: Path) -> None:
    with (
        fresh_place(tmp_path) as place,
        pytest.raises(UsageError, match="a demo is running in it"),
        fresh_place(tmp_path),
    ):
        pass
    assert place.config.is_file()


def test_only_the_newest_snapshot_stays_and_a_leased_one(demo: EmbeddedDemo) -> None:
    load_changes(demo, TABLES, changes(range(4000)))
    first = {state.bucket: state.snapshot for state in demo.store.buckets(FLIGHTS)}
    leased = {bucket: one.snapshot_id for bucket, one in list(first.items())[:1] if one is not None}
    demo.store.lease_table.acquire("reader", 60, leased)
    load_changes(demo, TABLES, changes(range(4000, 8000)))
    assert demo.snapshots(FLIGHTS_TABLE) == SnapshotCount(taken=8, deleted=3)
    assert len(demo.superseded(FLIGHTS_TABLE)) == 1
    demo.store.lease_table.drop("reader")
    load_changes(demo, TABLES, changes(range(8000, 8001)))
    assert demo.superseded(FLIGHTS_TABLE) == frozenset()


def test_all_is_tiered_when_each_bucket_is_on_record_up_to_its_end(demo: EmbeddedDemo, loaded: Loaded) -> None:
    stage = staged(demo, TABLES)
    load_changes(demo, TABLES, changes(range(100)))
    assert not all_tiered(stage, loaded, FakeClock())
    for table in TABLES:
        spec = demo.store.table(table.path)
        ends = demo.ends(table)
        demo.store.offsets.commit(spec, 1, demo.store.offsets.prepare(spec, ends), ends)
    assert all_tiered(stage, loaded, FakeClock())
    load_changes(demo, TABLES, changes(range(1), "departed", "update"))
    assert not all_tiered(stage, loaded, FakeClock())


def test_a_mirrored_table_counts_as_tiered_only_once_the_lake_has_its_offsets(
    demo: EmbeddedDemo, loaded: Loaded
) -> None:
    table = dataclasses.replace(FLIGHTS_TABLE, tiered=False)
    load_changes(demo, TABLES, changes(range(10)))
    spec, ends = demo.store.table(FLIGHTS), demo.ends(table)
    demo.store.offsets.commit(spec, 1, demo.store.offsets.prepare(spec, ends), ends)
    assert not all_tiered(staged(demo, (table,)), loaded, FakeClock())


def test_a_board_row_is_what_a_flight_shows_of_itself(demo: EmbeddedDemo) -> None:
    demo.create(BOARD_TABLE)
    load_changes(demo, (BOARD_TABLE,), changes(range(3)))
    assert sum(demo.ends(BOARD_TABLE).values()) == 3


@pytest.mark.parametrize("missing", ["lakeward_source_fluss", "fluss"])
def test_a_cluster_without_what_it_needs_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    found: Any = importlib.util.find_spec("lakeward_demo")
    monkeypatch.setattr("lakeward_demo.stage.importlib.util.find_spec", lambda name: None if name == missing else found)
    with (
        fresh_place(tmp_path / "demo") as place,
        pytest.raises(UsageError, match=rf"found no {missing}; pip install 'lakeward-demo\[fluss\]'"),
        open_stage("fluss", "iceberg", place, print),
    ):
        pass


def test_a_source_that_the_demo_does_not_know_is_refused(lakeward: Lakeward) -> None:
    said = lakeward("demo", "--source", "other")
    assert (said.code, "'embedded', 'fluss'" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"id": ["a"], "n": [1]}, "expected 2 rows in the lake, found 1"),
        ({"id": ["a", "a"], "n": [1, 1]}, r"expected a row \{'id': 'b', 'n': 2\} in the lake, found"),
        ({"id": ["b", "a"], "n": [3, 1]}, r"expected a row \{'id': 'b', 'n': 2\} in the lake, found .*'n': 3"),
    ],
)
def test_a_lake_that_differs_is_an_error(found: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(LakeError, match=message):
        check_same(FLIGHTS, pa.table({"id": ["a", "b"], "n": [1, 2]}), pa.table(found), ("id",))


def test_the_order_of_rows_and_further_columns_do_not_matter() -> None:
    found = pa.table({"__bucket": [0, 1], "n": [2, 1], "id": ["b", "a"]})
    check_same(FLIGHTS, pa.table({"id": ["a", "b"], "n": [1, 2]}), found, ("id",))


class FakeLake:
    """A lake of which each table has two rows."""

    def read_table(self, table: TablePath) -> tuple[pa.Table, str]:
        return pa.table({"json": [str(table), None]}), "a reader"


def test_dead_letters_are_as_many_as_were_fed_or_the_demo_fails() -> None:
    lake: Any = FakeLake()
    prove_dead_letters(lake, FLIGHTS, 2)
    prove_dead_letters(lake, FLIGHTS, 0)
    with pytest.raises(LakeError, match=r"nyc.flights__dead_letters: expected 3 rows in the lake, found 2"):
        prove_dead_letters(lake, FLIGHTS, 3)


def test_the_event_that_does_not_fit_is_no_utf_8_in_one_column_alone() -> None:
    rows = unfit_events(date(2013, 3, 1))
    assert rows.schema == EVENT_COLUMNS
    assert rows.drop_columns("event").to_pylist()[0]["month"] == "2013-03"
    with pytest.raises(UnicodeDecodeError):
        rows["event"].to_pylist()


def test_a_line_for_the_shell_gives_the_same_code_to_python_whatever_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("it's", 'a "b"', "$HOME `id` \\ !"):
        words = shlex.split(shell_lines.python_line(f"print({text!r})"))
        assert subprocess.run(words, capture_output=True, encoding="utf-8", check=True).stdout == f"{text}\n"


def test_programs_below_the_current_directory_are_named_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    assert shell_lines.python_line("1") == f'{Path("env/bin/python")} -c "1"'
    monkeypatch.setattr(sys, "executable", os.fspath(Path("/elsewhere/python")))
    assert shell_lines.python_line("1").startswith("/elsewhere/python ")


def test_without_the_extensions_duckdb_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    absent = "duckdb_extension_iceberg"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == absent else found(name))
    assert not duckdb_ready(Place(tmp_path))


def test_a_feeder_that_dies_is_an_error_that_says_why(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with FeederProcess(place, ("embedded", str(place.store)), 1, lambda _: None) as feeding:
        feeding.start()
        feeding._reader.join()
        with pytest.raises(SourceError, match=r"ended early \(exit code 1\): .*embedded store.*feeder\.log"):
            feeding.is_complete()


def test_a_demo_does_not_take_a_directory_or_a_flag_of_somebody_else(lakeward: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert lakeward("demo", "--set", "source.path=elsewhere").code == 2
    assert lakeward("demo", "--dir", "full").code == 2
