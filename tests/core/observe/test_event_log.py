"""One line for each change of the service's state and of a table's status."""

from __future__ import annotations

from msgspec.structs import replace
from structlog.testing import capture_logs

from lakeward.model.status import ServiceReport, TableCondition, TableReport
from lakeward.observe.event_log import EventLog, log_start

TABLE = TableReport("shop.orders", 7, "idle", "", 0, 0.0, 0, 0, None, TableCondition("ok", ""))
REPORT = ServiceReport("svc", "svc-1-0123456789abcdef", 1, "serving", 0, None, (TABLE,), None, 0, 0)
SUSPENDED = TableCondition("suspended", "the lake table does not fit", "Remove the cause, then resume it.")
LATE = TableCondition("late", "waiting for Spark: 0 of 2 slots", "More slots, if it stays late.")


def having(condition: TableCondition) -> ServiceReport:
    return replace(REPORT, tables=(replace(TABLE, condition=condition),))


def events(*reports: ServiceReport) -> list[tuple[str, str]]:
    log = EventLog()
    with capture_logs() as lines:
        for report in reports:
            log.update(report)
    return [(line["log_level"], line["event"]) for line in lines]


def test_the_states_of_a_service_are_a_line_each_once() -> None:
    stopping = replace(REPORT, state="stopping")
    with capture_logs() as lines:
        log_start("svc")
    assert [(line["log_level"], line["event"], line["service"]) for line in lines] == [
        ("info", "service starting", "svc")
    ]
    assert events(replace(REPORT, state="starting"), REPORT, REPORT, stopping) == [
        ("info", "service serving"),
        ("info", "service stopping"),
    ]


def test_a_table_that_is_suspended_is_a_warning_with_cause_and_action() -> None:
    log = EventLog()
    with capture_logs() as lines:
        log.update(REPORT)
        log.update(having(SUSPENDED))
    line = lines[-1]
    assert (line["event"], line["log_level"], line["table"]) == ("table is suspended", "warning", "shop.orders")
    assert (line["reason"], line["action"]) == ("the lake table does not fit", "Remove the cause, then resume it.")


def test_a_table_that_is_late_and_comes_back_is_seen_by_those_who_look_for_faults_only() -> None:
    """Each one is late while its service starts."""
    assert events(REPORT, having(LATE), REPORT)[1:] == [("debug", "table is late"), ("debug", "table is ok")]


def test_a_late_table_that_is_suspended_is_a_warning() -> None:
    assert events(REPORT, having(LATE), having(SUSPENDED))[2:] == [("warning", "table is suspended")]


def test_a_status_that_stays_is_one_line_and_its_end_another() -> None:
    assert events(REPORT, having(SUSPENDED), having(SUSPENDED), REPORT)[1:] == [
        ("warning", "table is suspended"),
        ("info", "table is ok"),
    ]


def test_a_table_that_is_gone_and_comes_again_is_told_anew() -> None:
    gone = replace(REPORT, tables=())
    assert events(having(SUSPENDED), gone, having(SUSPENDED))[1:] == [("warning", "table is suspended")] * 2
