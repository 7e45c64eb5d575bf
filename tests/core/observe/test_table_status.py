from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakeward.errors import LakeAwayError, RolledBackError
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.status import RoundReport, TableReport
from lakeward.model.tables import TableBucket, TablePath, TableSpec
from lakeward.observe.table_status import LakeHeads, StatusContext, TableLine, table_status
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PATH = TablePath("nyc", "flights")


class HeadsOnly:
    """A lake that says what its heads are and can do nothing else."""

    def __init__(self) -> None:
        self.heads: dict[TablePath, LakeHead | Exception] = {}
        self.asked = 0

    def head(self, path: TablePath) -> LakeHead | None:
        self.asked += 1
        found = self.heads.get(path)
        if isinstance(found, Exception):
            raise found
        return found


class Place:
    """An embedded store with a table, and a lake."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.store = EmbeddedStore.create(directory, clock=self.clock)
        self.lake = HeadsOnly()
        self.source = EmbeddedSource(self.store)

    def table(self, path: TablePath = PATH) -> TableSpec:
        return self.store.create_table(path, pa.schema([("id", pa.int64())]), buckets=1)

    def load(self, rows: int, path: TablePath = PATH) -> None:
        self.store.load(path, pa.table({"id": pa.array(range(rows), pa.int64())}))

    def commit(self, spec: TableSpec, offset: int, table_id: int | None = None) -> None:
        bucket = TableBucket(spec.table_id, None, 0)
        commit = OffsetCommit(55, {bucket: offset}, None, None, "1-1-1", 1, 1234)
        number = spec.table_id if table_id is None else table_id
        self.lake.heads[spec.path] = LakeHead(spec.path, number, "/w", 55, None, commit)

    def look(self, **context: object) -> list[TableLine]:
        known = StatusContext(
            running=bool(context.get("running", context.get("reports"))),
            reports=context.get("reports", {}),  # type: ignore[arg-type]  # what a test gives
            paused=frozenset(context.get("paused", ())),  # type: ignore[call-overload]  # what a test gives
            now_ms=self.clock.wall_ms(),
        )
        heads = LakeHeads(self.lake)  # type: ignore[arg-type]  # heads are enough
        return table_status(self.source, heads, self.store.tables(), known)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Make an empty store and an empty lake."""
    made = Place(tmp_path / "store")
    yield made
    made.store.close()


def test_a_table_that_was_never_tiered_is_new(place: Place) -> None:
    place.table()
    place.load(10)
    place.clock.advance(3.0)
    (line,) = place.look()
    assert (line.report.shown.status, line.tiered, line.end, line.report.lag_rows, line.report.lag_s) == (
        "new",
        0,
        10,
        10,
        3.0,
    )
    assert line.report.shown.message == "Never tiered; 10 rows wait, the oldest for 3.0 s. No service is running."


def test_rows_that_wait_for_a_time_that_the_source_cannot_say_are_not_said_to_have_just_come(place: Place) -> None:
    class Silent(EmbeddedSource):
        """Knows how many rows there are, and of none when it came."""

        def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> None:
            del table, offsets

    spec = place.table()
    place.load(10)
    place.source = Silent(place.store)
    (line,) = place.look()
    assert (line.report.lag_rows, line.report.lag_s) == (10, None)
    assert line.report.shown.message == "Never tiered; 10 rows wait. No service is running."
    place.commit(spec, 4)
    report = TableReport(str(PATH), spec.table_id, "committed", "", 0, None, 1, 4, None, complete_ms=1234)
    (line,) = place.look(reports={str(PATH): report}, running=True)
    assert (line.report.lag_rows, line.report.lag_s, line.report.complete_ms) == (6, None, 1234)


@pytest.mark.parametrize("running", [True, False])
def test_a_suspended_table_says_why_whether_the_service_runs_or_not(place: Place, running: bool) -> None:
    spec = place.table()
    place.load(10)
    report = TableReport(str(PATH), spec.table_id, "suspended", "column 'id' does not fit", 10, None, 0, 0, None)
    (line,) = place.look(reports={str(PATH): report}, running=running)
    assert line.report.shown.status == "suspended"
    assert line.report.shown.message.startswith("column 'id' does not fit")


def test_a_table_that_the_service_suspended_says_so_though_the_lake_cannot_be_read(place: Place) -> None:
    spec = place.table()
    place.lake.heads[PATH] = RolledBackError("rolled back")
    report = TableReport(str(PATH), spec.table_id, "suspended", "a person must decide", 10, None, 0, 0, None)
    (line,) = place.look(reports={str(PATH): report}, running=True)
    assert (line.report.shown.status, line.report.shown.message) == ("suspended", "a person must decide")


def test_a_table_that_was_suspended_and_caught_up_is_ok(place: Place) -> None:
    spec = place.table()
    place.load(10)
    place.commit(spec, 10)
    report = TableReport(str(PATH), spec.table_id, "suspended", "column 'id' does not fit", 10, None, 0, 0, None)
    (line,) = place.look(reports={str(PATH): report}, running=False)
    assert line.report.shown.status == "ok"


def test_a_table_whose_lake_has_everything_is_ok(place: Place) -> None:
    spec = place.table()
    place.load(10)
    place.commit(spec, 10)
    (line,) = place.look()
    assert (line.report.shown.status, line.report.lag_rows, line.report.lag_s, line.report.shown.message) == (
        "ok",
        0,
        0.0,
        "The lake has everything.",
    )
    assert (line.snapshot_id, line.report.committed_ms) == (55, 1234)


def test_a_table_with_newer_rows_is_late_once_they_are_older_than_promised(place: Place) -> None:
    spec = place.table()
    place.load(10)
    place.commit(spec, 10)
    place.clock.advance(60.0)
    place.load(5)
    place.clock.advance(2.0)
    (line,) = place.look()
    assert (line.report.shown.status, line.tiered, line.report.lag_rows, line.report.lag_s) == ("ok", 10, 5, 2.0)
    place.clock.advance(spec.freshness_s)
    (line,) = place.look()
    assert (line.report.shown.status, line.report.shown.since_ms) == ("late", place.clock.wall_ms() - 2000)
    assert line.report.shown.action == "Start the service: `lakeward run`."


def test_the_lake_is_complete_up_to_the_oldest_row_that_waits(place: Place) -> None:
    spec = place.table()
    place.load(10)
    (never,) = place.look()
    assert (never.report.complete_ms, never.report.freshness_s) == (None, spec.freshness_s)
    place.commit(spec, 10)
    place.clock.advance(60.0)
    (all_of_it,) = place.look()
    assert all_of_it.report.complete_ms == place.clock.wall_ms()
    place.load(5)
    loaded_ms = place.clock.wall_ms()
    place.clock.advance(2.0)
    (some,) = place.look()
    assert some.report.complete_ms == loaded_ms


def test_of_a_table_that_cannot_be_read_the_freshness_that_was_reported_last_is_shown(place: Place) -> None:
    spec = place.table()
    place.lake.heads[PATH] = RolledBackError("rolled back")
    report = TableReport(str(PATH), spec.table_id, "idle", "", 0, 0.0, 1, 10, None, complete_ms=1234, committed_ms=9)
    (line,) = place.look(reports={str(PATH): report}, running=True)
    assert (line.report.lag_rows, line.report.lag_s, line.report.committed_ms) == (None, None, None)
    assert (line.report.shown.status, line.report.complete_ms, line.report.freshness_s) == (
        "unreadable",
        1234,
        spec.freshness_s,
    )


def test_an_empty_table_is_ok(place: Place) -> None:
    place.table()
    (line,) = place.look()
    assert (line.report.shown.status, line.report.shown.message) == ("ok", "Nothing to tier yet.")


def test_a_lake_table_of_an_earlier_table_does_not_count(place: Place) -> None:
    spec = place.table()
    place.load(10)
    place.commit(spec, 10, table_id=spec.table_id + 100)
    (line,) = place.look()
    assert (line.report.shown.status, line.snapshot_id) == ("new", None)


def test_a_paused_table_says_so(place: Place) -> None:
    place.table()
    (line,) = place.look(paused=("nyc.flights",))
    assert line.report.shown.status == "paused"


def test_a_running_services_word_wins(place: Place) -> None:
    spec = place.table()
    place.load(10)
    report = TableReport("nyc.flights", spec.table_id, "suspended", "types differ", 10, 1.0, 0, 0, None)
    (line,) = place.look(reports={"nyc.flights": report})
    assert (line.report.shown.status, line.report.shown.message) == ("suspended", "types differ")


def test_the_word_of_a_service_that_is_gone_does_not_count_but_its_last_round_does(place: Place) -> None:
    spec = place.table()
    last = RoundReport("1-1-1", "committed", 0, 1000, 5, 1, 1, 1, 100, 5.0, 55)
    report = TableReport("nyc.flights", spec.table_id, "reading", "", 10, 1.0, 0, 0, last)
    (line,) = place.look(reports={"nyc.flights": report}, running=False)
    assert (line.report.shown.status, line.report.round) == ("ok", last)


@pytest.mark.parametrize(("running", "outcome"), [(True, "running"), (False, "interrupted")])
def test_a_round_is_not_running_any_more_once_its_service_is_gone(place: Place, outcome: str, *, running: bool) -> None:
    spec = place.table()
    last = RoundReport("1-1-1", "running", 0, None, 5, 1, 0, 0, 0, 5.0, None)
    report = TableReport("nyc.flights", spec.table_id, "reading", "", 10, 1.0, 0, 0, last)
    (line,) = place.look(reports={"nyc.flights": report}, running=running)
    assert line.report.round == replace(last, outcome=outcome)


def test_a_table_that_cannot_be_looked_at_keeps_nobody_else_from_it(place: Place) -> None:
    bad = place.table()
    place.table(TablePath("nyc", "planes"))
    place.lake.heads[bad.path] = RolledBackError("table nyc.flights was rolled back")
    first, second = place.look()
    assert (first.report.shown.status, first.report.shown.message) == (
        "unreadable",
        "table nyc.flights was rolled back",
    )
    assert second.report.shown.status == "ok"


def test_a_catalog_that_does_not_answer_is_asked_once_for_all_tables(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.table(path := TablePath("nyc", name))
        place.lake.heads[path] = LakeAwayError("catalog.db: database is locked")
    assert {(line.report.shown.status, line.report.shown.message) for line in place.look()} == {
        ("unreadable", "catalog.db: database is locked")
    }
    assert place.lake.asked == 1
