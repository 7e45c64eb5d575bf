from __future__ import annotations

import pytest
from msgspec.structs import replace

from lakeward.errors import RowError
from lakeward.model.status import WAITS_FOR_CATALOG, RoundReport, ServiceReport, TableCondition, TableReport
from lakeward.observe.condition import STATUSES, Circumstances, ConditionTracker, table_condition
from lakeward.observe.format import date_time

NOW = 1_000_000
AT = Circumstances(NOW, running=True, asked=True)
SERVED = TableReport("nyc.flights", 7, "waiting", "", 0, 0.0, 1, 5, None, freshness_s=60.0)
WAITING = replace(SERVED, lag_rows=5, lag_s=10.0)
NOW_TEXT = date_time(NOW)
WHEN = date_time(NOW + 50_000)
ROW_ACTION = (
    "Remove the cause, or set `on_bad_row` where a row does not fit the lake table, "
    "then `lakeward tables resume nyc.flights`."
)
CASES: dict[str, list[tuple[TableReport, Circumstances, str, str, int | None]]] = {
    "ok": [
        (replace(SERVED, committed_ms=7), AT, "The lake has everything.", "", 7),
        (replace(SERVED, never_tiered=True), AT, "Nothing to tier yet.", "", None),
        (WAITING, AT, "5 rows wait, the oldest for 10 s.", "", None),
        (replace(WAITING, message="waits for a slot"), AT, "waits for a slot", "", None),
    ],
    "new": [
        (
            replace(WAITING, never_tiered=True),
            AT,
            "Never tiered; 5 rows wait, the oldest for 10 s.",
            "",
            NOW - 10_000,
        ),
        (
            replace(SERVED, never_tiered=True, lag_rows=None, lag_s=None),
            AT,
            "No round has been started yet.",
            "",
            None,
        ),
    ],
    "late": [
        (
            replace(WAITING, lag_s=90.0),
            replace(AT, offered_every_s=180.0),
            "5 rows wait, the oldest for 1 min 30 s.",
            "The source offers it every 3 min 0 s at most: shorten its freshness there, or promise no less than that.",
            NOW - 30_000,
        ),
        (
            replace(WAITING, lag_s=90.0),
            AT,
            "5 rows wait, the oldest for 1 min 30 s.",
            "If it stays late: more slots, fewer tables, or a longer freshness.",
            NOW - 30_000,
        ),
        (
            replace(WAITING, lag_s=90.0, never_tiered=True),
            replace(AT, running=False),
            "Never tiered; 5 rows wait, the oldest for 1 min 30 s. No service is running.",
            "Start the service: `lakeward run`.",
            NOW - 30_000,
        ),
        (
            replace(SERVED, status="committed", lag_rows=None, lag_s=None, freshness_s=None, due_ms=NOW - 1),
            AT,
            "It is tiered.",
            "If it stays late: more slots, fewer tables, or a longer freshness.",
            NOW - 1,
        ),
        (
            replace(SERVED, status="waiting", lag_rows=None, lag_s=None, freshness_s=None, due_ms=NOW - 1),
            AT,
            "It waits for a round.",
            "If it stays late: more slots, fewer tables, or a longer freshness.",
            NOW - 1,
        ),
        (
            replace(SERVED, status="opening", lag_rows=None, lag_s=None, freshness_s=None, due_ms=NOW - 1),
            AT,
            "A round of it has begun.",
            "If it stays late: more slots, fewer tables, or a longer freshness.",
            NOW - 1,
        ),
        (
            replace(WAITING, lag_s=None, due_ms=NOW - 1),
            AT,
            "5 rows wait.",
            "If it stays late: more slots, fewer tables, or a longer freshness.",
            NOW - 1,
        ),
    ],
    "retrying": [
        (
            replace(WAITING, status="backoff", message="disk full (try 2, again in 9 s)", failing_since_ms=5),
            AT,
            "disk full (try 2, again in 9 s)",
            "Nothing, unless it stays so; then the log has the details.",
            5,
        ),
        (
            replace(WAITING, status="running", failure="disk full", failing_since_ms=5),
            AT,
            "disk full",
            "Nothing, unless it stays so; then the log has the details.",
            5,
        ),
        (
            # The next try has begun, of a table that waits with all others of its lake.
            replace(WAITING, status="opening", message=WAITS_FOR_CATALOG, failure="locked", failing_since_ms=5),
            AT,
            WAITS_FOR_CATALOG,
            "Nothing, unless it stays so; then the log has the details.",
            5,
        ),
        (
            replace(WAITING, status="failed", message="disk full.", failing_since_ms=5),
            replace(AT, running=False),
            "disk full. 5 rows wait, the oldest for 10 s. No service is running.",
            "Start the service: `lakeward run`.",
            5,
        ),
    ],
    "suspended": [
        (
            replace(WAITING, status="suspended", message="column 'id' does not fit", failing_since_ms=5),
            AT,
            "column 'id' does not fit",
            "Remove the cause, then `lakeward tables resume nyc.flights`.",
            5,
        ),
        (
            replace(WAITING, status="suspended", message="column 'id' does not fit"),
            replace(AT, running=False),
            "column 'id' does not fit. 5 rows wait, the oldest for 10 s. No service is running.",
            "Remove the cause, then start the service.",
            None,
        ),
        (
            replace(WAITING, status="suspended", message="no UTF-8", code=RowError.code),
            AT,
            "no UTF-8",
            ROW_ACTION,
            None,
        ),
    ],
    "paused": [
        (
            replace(WAITING, status="suspended", message="is less important"),
            replace(AT, paused=True),
            "Paused by `lakeward tables pause`; 5 rows wait, the oldest for 10 s.",
            "To tier it again: `lakeward tables resume nyc.flights`.",
            None,
        ),
    ],
    "lake-gone": [
        (
            SERVED,
            replace(AT, wrong="lake-gone", why="it had commits"),
            "it had commits",
            "Restore the lake table, or run `lakeward tables accept nyc.flights`.",
            None,
        ),
    ],
    "offsets-back": [
        (
            SERVED,
            replace(AT, wrong="offsets-back", why="went back", paused=True),
            "went back",
            "Roll the lake table back, or run `lakeward tables accept nyc.flights`.",
            None,
        ),
    ],
    "unreadable": [
        (
            replace(SERVED, lag_rows=None),
            replace(AT, wrong="unreadable", why="no answer"),
            "no answer",
            "Look whether source and lake can be reached: `lakeward doctor`.",
            None,
        ),
    ],
}
ROUND = RoundReport("1-1-1", "committed", 0, 1000, 5, 1, 1, 1, 100, 5.0, 55)
TABLE = TableReport("nyc.flights", 7, "waiting", "", 0, 0.0, 1, 5, ROUND)
REPORT = ServiceReport("nyc", "nyc-1-00", 1, "serving", NOW, None, (TABLE,), None, 0, 0)


@pytest.mark.parametrize(
    ("status", "number"), [(status, n) for status, cases in CASES.items() for n in range(len(cases))]
)
def test_each_status_has_its_cause_what_to_do_and_since_when(status: str, number: int) -> None:
    table, at, message, action, since_ms = CASES[status][number]
    assert table_condition(table, at) == TableCondition(status, message, action, since_ms)


def test_no_status_is_without_a_case() -> None:
    assert set(CASES) == set(STATUSES)


def test_a_status_that_stays_keeps_its_beginning() -> None:
    at = replace(AT, before=TableCondition("late", "3 rows wait", "", 11))
    assert table_condition(replace(WAITING, lag_s=90.0), at).since_ms == 11
    assert table_condition(WAITING, at).since_ms is None


def test_a_caught_up_table_is_not_failing_any_more_when_no_service_runs() -> None:
    known = replace(SERVED, status="backoff", message="disk full", failing_since_ms=5)
    assert table_condition(known, replace(AT, running=False)).status == "ok"


def test_the_report_of_a_service_says_since_when_a_table_is_as_it_is() -> None:
    tracker = ConditionTracker(None)
    first = tracker.describe(REPORT, frozenset()).tables[0].condition
    later = replace(REPORT, written_ms=NOW + 9000)
    second = tracker.describe(later, frozenset()).tables[0].condition
    paused = tracker.describe(later, {"nyc.flights"}).tables[0].condition
    assert first == second == TableCondition("ok", "The lake has everything.", "", NOW)
    assert paused is not None
    assert (paused.status, paused.since_ms) == ("paused", NOW + 9000)


@pytest.mark.parametrize(
    ("table", "loss"),
    [
        (replace(WAITING, unread_kept_s=60.0), f"does not fit. The source deletes unread rows from {WHEN} on."),
        (replace(WAITING, unread_kept_s=10.0), f"does not fit. The source has deleted unread rows since {NOW_TEXT}."),
        (
            replace(WAITING, lag_rows=None, lag_s=None, complete_ms=NOW - 10_000, unread_kept_s=60.0),
            f"does not fit. The source deletes unread rows from {WHEN} on.",
        ),
        (replace(WAITING, lag_rows=0, unread_kept_s=60.0), "does not fit"),
        (replace(WAITING, lag_rows=None, lag_s=None, unread_kept_s=60.0), "does not fit"),
        (WAITING, "does not fit"),
    ],
    ids=["later", "already", "by what is complete", "nothing waits", "age not known", "kept"],
)
def test_a_table_that_waits_for_a_person_says_from_when_on_the_source_deletes_what_it_lacks(
    table: TableReport, loss: str
) -> None:
    suspended = table_condition(replace(table, status="suspended", message="does not fit"), AT)
    paused = table_condition(table, replace(AT, paused=True))
    assert suspended.message == loss
    assert paused.message.endswith(loss.removeprefix("does not fit").removeprefix(".") or ".")


def test_a_table_that_is_ok_is_so_since_its_service_has_found_it_so_whenever_its_last_commit_was() -> None:
    report = replace(REPORT, tables=(replace(TABLE, committed_ms=7),))
    (table,) = ConditionTracker(None).describe(report, frozenset()).tables
    assert table.shown == TableCondition("ok", "The lake has everything.", "", NOW)


def test_a_start_that_found_nothing_new_does_not_call_the_table_never_tiered() -> None:
    found = replace(TABLE, rounds=0, round=None)
    report = ConditionTracker(None).describe(replace(REPORT, tables=(found,)), frozenset())
    assert report.tables[0].condition == TableCondition("ok", "The lake has everything.", "", NOW)


def test_the_report_of_a_service_calls_a_table_late_whose_rows_wait_for_longer_than_promised() -> None:
    (table,) = REPORT.tables
    waiting = replace(REPORT, tables=(replace(table, lag_rows=5, lag_s=12.0, freshness_s=2.0),))
    found = ConditionTracker(None).describe(waiting, frozenset()).tables[0].condition
    assert found is not None
    assert (found.status, found.since_ms) == ("late", NOW - 10_000)


def test_a_table_in_hand_is_late_once_its_deadline_has_passed_however_old_its_rows_were() -> None:
    """Its rows are as old as promised when the source assigns it, in each turn."""
    (table,) = REPORT.tables
    tracker = ConditionTracker(None)
    found = []
    for due_ms in (NOW + 1, NOW - 1_000):
        in_hand = replace(table, lag_rows=5, lag_s=12.0, freshness_s=10.0, due_ms=due_ms)
        condition = tracker.describe(replace(REPORT, tables=(in_hand,)), frozenset()).tables[0].condition
        assert condition is not None
        found.append((condition.status, condition.message, condition.since_ms))
    waits = "5 rows wait, the oldest for 12 s."
    assert found == [("ok", waits, NOW), ("late", waits, NOW - 1_000)]


def test_a_table_that_waits_for_a_round_beyond_its_deadline_is_late_whatever_the_last_round_left() -> None:
    (table,) = REPORT.tables
    tracker = ConditionTracker(None)
    for rows, message in ((0, "It waits for a round."), (5, "5 rows wait, the oldest for 12 s.")):
        queued = replace(table, status="waiting", lag_rows=rows, lag_s=12.0 if rows else 0.0, due_ms=NOW - 1_000)
        condition = tracker.describe(replace(REPORT, tables=(queued,)), frozenset()).tables[0].condition
        assert condition is not None
        assert (condition.status, condition.message, condition.since_ms) == ("late", message, NOW - 1_000)


def test_a_table_that_is_late_stays_so_through_its_turns_until_its_promise_is_kept() -> None:
    tracker = ConditionTracker(None)
    found = []
    for lag_s, due_ms in ((25.0, None), (26.0, NOW + 9_000), (12.0, NOW + 8_000), (9.0, NOW + 7_000), (12.0, NOW + 1)):
        table = replace(TABLE, lag_rows=5, lag_s=lag_s, freshness_s=10.0, due_ms=due_ms)
        condition = tracker.describe(replace(REPORT, tables=(table,)), frozenset()).tables[0].condition
        assert condition is not None
        found.append((condition.status, condition.since_ms))
    late = ("late", NOW - 15_000)
    assert found == [late, late, late, ("ok", NOW), ("ok", NOW)]


def test_a_table_in_hand_is_late_where_its_oldest_row_has_waited_for_two_promises() -> None:
    table = replace(TABLE, lag_rows=5, lag_s=780.0, freshness_s=180.0, due_ms=NOW + 177_000)
    condition = ConditionTracker(None).describe(replace(REPORT, tables=(table,)), frozenset()).tables[0].condition
    assert condition is not None
    assert (condition.status, condition.since_ms) == ("late", NOW - 420_000)


def test_a_new_start_goes_on_from_the_last_report() -> None:
    said = ConditionTracker(None).describe(REPORT, {"nyc.flights"})
    tracker = ConditionTracker(said)
    tracker.describe(replace(REPORT, tables=()), frozenset())  # it has not been assigned the table yet
    again = tracker.describe(replace(REPORT, written_ms=NOW + 9000), {"nyc.flights"})
    assert again.tables[0].condition == said.tables[0].condition
