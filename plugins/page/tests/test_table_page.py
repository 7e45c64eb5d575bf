"""The page of a table and that of a round: what they say, and that they need no JavaScript."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from lakeward.errors import RowError
from lakeward.model.status import CheckpointReport, ExchangeReport, ReplayReport, RoundReport, TableCondition
from lakeward.observe.extend import PHASES, date_time, seconds
from lakeward_page_kit.page import Page
from lakeward_page_kit.page_text import Document
from lakeward_service_kit.example_reports import REPORT, ROUND, TABLE

MINUTE_MS = 60_000
NOW_MS = 100 * MINUTE_MS


def ended(number: int, *, offsets: dict[str, int], outcome: str = "committed", reason: str = "") -> RoundReport:
    """A round that ended `number` minutes after the start, and began half a minute before."""
    end_ms = number * MINUTE_MS
    return replace(
        ROUND,
        round_name=f"demo-1/7-1-{number}",
        outcome=outcome,
        started_ms=end_ms - 30_000,
        ended_ms=end_ms,
        rows=100 * number,
        subtasks=(),
        timings_s={"enumerate": 3.0, "job": 24.0, "commit": 3.0, "encode": 12.0},
        complete_ms=end_ms - 45_000,
        lag_rows=number,
        table="shop.orders",
        table_id=7,
        kind="log",
        offsets=offsets,
        reason=reason,
        code=RowError.code if reason else "",
    )


ROUNDS = (
    ended(50, offsets={"0": 100, "1": 100, "2": 100}),
    ended(60, offsets={"0": 110, "1": 110, "2": 100}),
    ended(70, offsets={"0": 120, "1": 1_100, "2": 100}),
)


@pytest.fixture
def remembering(page: Page) -> Page:
    """A page of a service at minute 100, with three rounds of its table."""
    page.clock.advance(NOW_MS / 1000 - 10)
    page.live.stepped()
    page.show(REPORT)
    page.remember(*ROUNDS)
    return page


def text_of(page: Page, address: str, status: int = 200) -> str:
    answer = page.client().get(address)
    assert answer.status_code == status
    return str(answer.text)


def test_the_list_links_each_table_to_its_page_and_a_running_round_to_its_own(remembering: Page) -> None:
    links = [one.get("href") for one in Document(text_of(remembering, "/")).all("a")]
    assert "/tables/shop.orders" in links
    assert "/rounds/7-1-1" in links


def test_a_tables_page_says_how_it_is_and_what_its_last_rounds_did(remembering: Page) -> None:
    document = Document(text_of(remembering, "/tables/shop.orders"))
    for words in (
        "shop.orders",
        "ok",
        f"500 rows, the oldest for {seconds(12)}",
        "2 of 8 splits",
        date_time(70 * MINUTE_MS),
    ):
        assert words in document.text, words
    rounds = [str(one["href"]) for one in document.all("a") if str(one["href"]).startswith("/rounds/")]
    assert rounds == ["/rounds/7-1-1", "/rounds/7-1-70", "/rounds/7-1-60", "/rounds/7-1-50"]


def test_charts_say_in_words_what_they_draw_and_rounds_of_the_day_before_are_in_none(remembering: Page) -> None:
    old = replace(ended(40, offsets={}), ended_ms=NOW_MS - 86_400_000 - 1)
    remembering.remember(old, *ROUNDS)
    charts = Document(text_of(remembering, "/tables/shop.orders")).all("svg")
    said = [str(one["aria-label"]) for one in charts]
    assert said == [
        "Rows of a round: last 7,000, least 5,000, most 7,000",
        f"Time of a round: last {seconds(30)}, least {seconds(30)}, most {seconds(30)}",
        "Rows left after it: last 70, least 50, most 70",
        f"Age of what is complete: last {seconds(45)}, least {seconds(45)}, most {seconds(45)}",
    ]
    assert {one["role"] for one in charts} == {"img"}


def test_a_chart_goes_from_the_first_round_to_the_last_one_and_from_nothing_to_the_most(remembering: Page) -> None:
    line = Document(text_of(remembering, "/tables/shop.orders")).all("polyline")[0]["points"]
    assert line == "3,12.7 120,7.9 237,3"


def test_buckets_are_listed_by_what_went_into_the_lake_and_a_hot_one_is_marked(remembering: Page) -> None:
    text = Document(text_of(remembering, "/tables/shop.orders")).text
    found = re.search(r"Buckets Rows that .* Commands to copy", text)
    assert found is not None
    assert "Share 1 ! hot 1,100 1,000 98 % 0 120 20 2 % 2 100 0 0 %" in found[0]


def test_a_tables_page_says_how_its_rows_lie_what_is_leased_and_for_how_long_unread_rows_are_kept(page: Page) -> None:
    replayed = ReplayReport(3, 2, at_ms=NOW_MS)
    table = replace(TABLE, layout="day(at); exchange none", leased=3, unread_kept_s=604_800.0, replay=replayed)
    taken = CheckpointReport(completed_ms=NOW_MS, name="shop-1-00000000000000aa/7-1/chk-3")
    assert table.round is not None
    ended = replace(table.round, ended_ms=NOW_MS, checkpoint=taken)
    table = replace(table, lake_table="sales.all", round=ended)
    page.show(replace(REPORT, tables=(table,), lease_expires_ms=NOW_MS))
    text = Document(text_of(page, "/tables/shop.orders")).text
    for words in (
        "Lake table sales.all",
        "Last checkpoint chk-3, ",
        "3 rows put in, 2 stay",
        "Layout day(at); exchange none",
        "The source keeps unread rows for 7 d 0 h",
        f"Snapshots leased 3, until {date_time(NOW_MS)}",
    ):
        assert words in text, words


def test_a_table_that_fails_shows_its_cause_what_its_code_means_and_what_to_do(remembering: Page) -> None:
    condition = TableCondition("suspended", "no such column", "lakeward tables resume shop.orders", since_ms=NOW_MS)
    broken = replace(TABLE, code=RowError.code, condition=condition, failing_since_ms=NOW_MS, failure="no such column")
    remembering.show(replace(REPORT, tables=(broken,)))
    text = Document(text_of(remembering, "/tables/shop.orders")).text
    for words in ("suspended", "no such column", "lakeward tables resume shop.orders", RowError.code):
        assert words in text
    assert str(RowError.__doc__).splitlines()[0] in text


def test_a_page_of_a_table_has_commands_to_copy_whatever_its_name(page: Page) -> None:
    path = 'shop.odd name/"<b>'
    page.show(replace(REPORT, tables=(replace(TABLE, path=path, round=None),)))
    links = [str(one.get("href")) for one in Document(text_of(page, "/")).all("a")]
    (address,) = [one for one in links if one.startswith("/tables/")]
    html = text_of(page, address)
    assert "<b>" not in html
    assert f"lakeward tables pause '{path}'" in Document(html).text


def test_a_round_page_shows_its_steps_as_parts_of_its_time_and_sums_without_one(remembering: Page) -> None:
    html = text_of(remembering, "/rounds/7-1-60")
    text = Document(html).text
    for words in ("7-1-60", "committed", "6,000 rows", "lakeward rounds show 7-1-60", PHASES["job"], "80.0 %"):
        assert words in text
    bars = [one for one in Document(html).all("rect") if one.get("class") != "ground"]
    assert [(one.get("x"), one.get("width")) for one in bars] == [("0.0", "10.0"), ("10.0", "80.0"), ("90.0", "10.0")]
    assert f"encode {PHASES['encode']} {seconds(12)} \u2013" in text


def test_a_round_that_failed_says_why_and_one_with_an_exchange_what_it_moved(page: Page) -> None:
    moved = ExchangeReport(sent_bytes=13 * 1024**2, skew=1.3, credit_wait_s=0.4)
    failed = replace(ended(50, offsets={}, outcome="failed", reason="a value is too long"), exchange=moved)
    page.show(REPORT)
    page.remember(failed)
    text = Document(text_of(page, "/rounds/7-1-50")).text
    assert f"[{RowError.code}] a value is too long" in text
    assert "13 MiB, skew 1.3" in text


def test_a_running_round_is_shown_with_its_subtasks(remembering: Page) -> None:
    text = Document(text_of(remembering, "/rounds/7-1-1")).text
    assert "2 of 8 splits" in text
    assert "worker-1" in text


UNKNOWN = (
    "/tables/shop.nobody",
    "/tables/",
    "/rounds/7-1-99",
    "/rounds/x",
    "/rounds/8-1-1",
    f"/rounds/{'9' * 5000}-1-1",
)


@pytest.mark.parametrize("address", UNKNOWN)
def test_what_is_not_known_is_answered_with_404_and_a_way_back(remembering: Page, address: str) -> None:
    document = Document(text_of(remembering, address, 404))
    assert "/" in [one.get("href") for one in document.all("a")]


def test_a_page_without_a_report_says_that_there_is_none_yet(page: Page) -> None:
    assert "has not reported a table of this name" in text_of(page, "/tables/shop.orders", 404)
