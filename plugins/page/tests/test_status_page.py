"""What the status page shows, and that it needs neither JavaScript nor colours, and shows no secret."""

from __future__ import annotations

import logging
import re
import time

import pytest
from msgspec.structs import replace

from lakeward.model.secrets import MASK
from lakeward.model.status import CheckpointReport, ExchangeReport, RoundReport, TableCondition, UpkeepReport
from lakeward.model.upkeep import FileCounts
from lakeward.observe.condition import STATUSES
from lakeward.observe.format import date_time, seconds
from lakeward.observe.progress import format_exchange
from lakeward_page.tables_view import badge
from lakeward_page_kit.page import Page
from lakeward_page_kit.page_text import Document
from lakeward_service_kit.example_reports import REPORT, ROUND, TABLE

SCRIPTS = re.compile(r"<script\b(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style")


def document(page: Page) -> Document:
    answer = page.client().get("/")
    assert answer.status_code == 200
    return Document(answer.text)


def test_a_table_is_shown_with_status_freshness_lag_files_and_rows(page: Page) -> None:
    page.show(REPORT)
    text = document(page).text
    for words in ("shop.orders", "running", "ok", "10 s ago", "1 min 0 s", "500", "12 s", "17", "12,345"):
        assert words in text


def test_rows_that_nobody_has_counted_are_not_shown_as_none(page: Page) -> None:
    page.show(replace(REPORT, tables=(replace(TABLE, lag_rows=None, lag_s=None),)))
    text = document(page).text
    assert "the lake has everything" not in text
    assert "not known of 1 table" in text


def test_a_running_round_is_shown_by_subtask(page: Page) -> None:
    page.show(REPORT)
    shown = document(page)
    assert "2 of 8 splits" in shown.text
    assert "1 subtask of shop.orders" in shown.text
    for words in ("reading", "7-0-log-0-100", "1,234", "4.0 KiB", "0.4 s ago", "worker-1"):
        assert words in shown.text
    assert shown.all("progress")[0]["aria-label"]


@pytest.mark.parametrize("kind", ["aligned", "unaligned"])
def test_a_running_round_with_an_exchange_shows_its_checkpoints_kind_and_what_was_under_way(
    page: Page, kind: str
) -> None:
    taken = CheckpointReport("demo/7/3", 3_000, 0.5, 2048, 0, "", kind, 5 * 1024, 7 * 1024**2, 0.25)
    exchange = ExchangeReport(sent_bytes=13 * 1024**2, skew=1.3, credit_wait_s=0.4)
    page.show(replace(REPORT, tables=(replace(TABLE, round=replace(ROUND, checkpoint=taken, exchange=exchange)),)))
    text = document(page).text
    held = f"2.0 KiB besides 5.0 KiB in channels, 7.0 MiB in open files; {kind}, blocked for"
    assert f"3, {seconds(2)} ago, {held} {seconds(0.25)}" in text
    assert format_exchange(exchange) in text


@pytest.mark.parametrize(
    ("upkeep", "shown"),
    [
        (UpkeepReport("compaction", "running", 2, 12, 3 << 20, 0), "compaction running, 12 files of 3.0 MiB"),
        (
            UpkeepReport("compaction", "committed", 2, 12, 3 << 20, 0, 2, 1 << 20, ended_ms=0),
            f"compaction committed, 12 files of 3.0 MiB became 2 of 1.0 MiB, {date_time(0)}",
        ),
        (
            UpkeepReport("compaction", "failed", 1, 1, 1 << 20, 0, ended_ms=0, reason="no room"),
            f"compaction failed, 1 file of 1.0 MiB, {date_time(0)}: no room",
        ),
    ],
    ids=lambda one: one.state if isinstance(one, UpkeepReport) else "",
)
def test_a_tables_newest_job_of_upkeep_is_shown_and_in_status_json(
    page: Page, upkeep: UpkeepReport, shown: str
) -> None:
    page.show(replace(REPORT, tables=(replace(TABLE, upkeep=upkeep),)))
    assert shown in document(page).text
    (table,) = page.client().get("/status.json").json()["tables"]
    told = table["upkeep"]
    assert (told["what"], told["state"], told["files_after"], told["reason"]) == (
        upkeep.what,
        upkeep.state,
        upkeep.files_after,
        upkeep.reason,
    )


def test_small_files_and_deletes_are_on_the_page_of_a_table_and_in_status_json(page: Page) -> None:
    counts = FileCounts(12, 3 << 20, 9, 2, 30)
    page.show(replace(REPORT, tables=(replace(TABLE, counts=counts),)))
    shown = page.client().get(f"/tables/{TABLE.path}").text
    assert "12 files of 3.0 MiB, 9 small, 2 delete files with 30 rows" in shown
    (table,) = page.client().get("/status.json").json()["tables"]
    assert table["counts"]["small_files"] == 9


def test_a_table_without_upkeep_shows_none(page: Page) -> None:
    page.show(replace(REPORT, tables=(replace(TABLE, upkeep=None),)))
    assert "compaction" not in document(page).text


def test_without_an_exchange_a_checkpoint_has_no_kind_and_nothing_was_under_way(page: Page) -> None:
    taken = CheckpointReport("demo/7/3", 3_000, 0.5, 2048)
    page.show(replace(REPORT, tables=(replace(TABLE, round=replace(ROUND, checkpoint=taken)),)))
    text = document(page).text
    assert f"3, {seconds(2)} ago" in text
    assert "in open files" not in text


def test_leases_say_how_many_there_are_and_when_they_end(page: Page) -> None:
    page.show(REPORT)
    assert "the lease ends in 59 min 50 s unless renewed; 1 release to come" in document(page).text


def test_a_lease_that_is_about_to_end_needs_attention(page: Page) -> None:
    page.show(replace(REPORT, lease_expires_ms=20_000))
    assert "Lease ends in 10 s and was not renewed" in document(page).text


def test_what_is_wrong_comes_first_with_its_message(page: Page) -> None:
    wrong = TableCondition("suspended", "column 'id' does not fit", "Remove the cause.", since_ms=5_000)
    bad = replace(TABLE, path="z.bad", condition=wrong, round=None)
    page.show(replace(REPORT, tables=(TABLE, bad)))
    text = document(page).text
    assert "z.bad suspended for 5.0 s: column 'id' does not fit Remove the cause." in text
    tables = text[text.index("2 tables; what is wrong") :]
    assert tables.index("z.bad") < tables.index("shop.orders")


def test_the_queue_position_is_shown(page: Page) -> None:
    page.show(replace(REPORT, tables=(replace(TABLE, status="waiting", round=None, queue_position=3),)))
    text = document(page).text
    assert "3." in text
    assert "1 table waits" in text


def work(page: Page) -> str:
    """Return what the column "Work" says of the only table."""
    html = page.client().get("/").text
    cell = html.partition('data-label="Work">')[2].partition("</td>")[0]
    return Document(cell).text


def test_a_tables_work_says_its_phase_where_that_is_not_its_status(page: Page) -> None:
    page.show(REPORT)
    assert work(page) == "\u25b8 running"


def test_a_suspended_tables_work_is_the_round_that_failed_last(page: Page) -> None:
    condition = TableCondition("suspended", "column 'id' does not fit", since_ms=5_000)
    suspended = replace(TABLE, status="suspended", condition=condition)
    for outcome in ("failed", "fenced"):
        ended = replace(ROUND, outcome=outcome, ended_ms=4_000)
        page.show(replace(REPORT, tables=(replace(suspended, round=ended),)))
        assert work(page) == f"round 7-1-1 {outcome} at {date_time(4_000)}"


@pytest.mark.parametrize("status", ["suspended", "paused"])
@pytest.mark.parametrize("last", [None, replace(ROUND, outcome="committed", ended_ms=4_000)], ids=["none", "committed"])
def test_a_tables_work_never_repeats_its_status(page: Page, status: str, last: RoundReport | None) -> None:
    condition = TableCondition(status, "its cause")
    page.show(replace(REPORT, tables=(replace(TABLE, status=status, condition=condition, round=last),)))
    assert work(page) == "\u2013"


def test_text_from_outside_is_escaped(page: Page) -> None:
    page.show(
        replace(REPORT, tables=(replace(TABLE, condition=TableCondition("retrying", "<script>alert(1)</script>")),))
    )
    answer = page.client().get("/").text
    assert "&lt;script&gt;alert(1)" in answer
    assert "<script>alert" not in answer


def test_before_the_first_report_the_page_says_what_is_missing(page: Page) -> None:
    text = document(page).text
    for words in ("starting", "source is not open yet", "lake is not open yet", "Spark is not open yet"):
        assert words in text


def test_warnings_of_the_log_are_shown_the_newest_first_and_repeated_ones_once(page: Page) -> None:
    page.show(REPORT)
    log = logging.getLogger("lakeward.test")
    page.problems.listen()
    for message in ("alpha", "beta", "beta"):
        log.warning(message)
    log.info("not worth it")
    text = document(page).text
    assert text.index("beta (2 times)") < text.index("alpha")
    assert "not worth it" not in text


def test_no_secret_of_the_log_is_on_the_page(page: Page) -> None:
    page.show(REPORT)
    page.problems.listen()
    logging.getLogger("lakeward.test").error("jdbc://user:word@db and %s", "hush-hush")
    answer = page.client().get("/").text
    assert f"jdbc://{MASK}@db and {MASK}" in answer
    assert not [found for found in ("hush-hush", "user:word") if found in answer]


def test_where_no_row_waits_nobody_is_said_to_wait(page: Page) -> None:
    """A table that had been tiered while rows came has a lag in time, and none in rows."""
    page.show(replace(REPORT, tables=(replace(TABLE, lag_rows=0, lag_s=0.4),)))
    text = document(page).text
    assert "the lake has everything" in text
    assert "the oldest waits" not in text


def test_the_page_needs_no_script_and_takes_none_from_within_or_elsewhere(page: Page) -> None:
    page.show(REPORT)
    answer = page.client().get("/")
    assert SCRIPTS.findall(answer.text) == []
    assert 'http-equiv="refresh"' in answer.text.split("<noscript>")[1].split("</noscript>")[0]
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    addresses = [one.get("src") or one.get("href") or "" for _, one in Document(answer.text).elements]
    assert [one for one in addresses if "//" in one] == ["http://127.0.0.1:4040"]  # Spark's own page


def test_the_page_can_be_read_aloud_and_used_by_keys(page: Page) -> None:
    page.show(REPORT)
    shown = document(page)
    assert [one.get("lang") for one in shown.all("html")] == ["en"]
    assert len(shown.all("main")) == len(shown.all("h1")) == len(shown.all("header")) == len(shown.all("footer")) == 1
    assert shown.all("a")[0] == {"class": "skip", "href": "#content"}
    assert len(shown.all("caption")) == len(shown.all("table")) == 2
    assert all(one.get("scope") in {"col", "row"} for one in shown.all("th"))
    ids = [one["id"] for _, one in shown.elements if one.get("id")]
    assert len(ids) == len(set(ids))
    named = [one["aria-labelledby"] for _, one in shown.elements if one.get("aria-labelledby")]
    assert set(named) <= set(ids)


def test_each_kind_of_badge_has_a_sign_of_its_own() -> None:
    signs = [badge(status).sign for status in ("ok", "new", "late", "suspended")]
    assert len(set(signs)) == len(signs)


@pytest.mark.parametrize("status", sorted(STATUSES))
def test_a_status_that_needs_a_person_is_not_shown_as_well(status: str) -> None:
    assert (badge(status).kind in {"warn", "bad"}) == (status not in {"ok", "new", "paused"})


def test_five_hundred_tables_are_answered_in_less_than_fifty_milliseconds(page: Page) -> None:
    tables = tuple(replace(TABLE, path=f"shop.t{number}", table_id=number, round=None) for number in range(500))
    page.show(replace(REPORT, tables=tables))
    client = page.client()
    taken = []
    for _ in range(10):
        began = time.process_time()
        assert "500 tables" in client.get("/").text
        taken.append(time.process_time() - began)
    assert min(taken) < 0.05
