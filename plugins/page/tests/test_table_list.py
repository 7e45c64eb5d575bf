"""The list of tables as the address asks for it, and what needs attention, cause by cause."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from msgspec.structs import replace

from lakeward.model.status import TableCondition, TableReport
from lakeward_page.table_list import PAGE_ROWS, Query
from lakeward_page_kit.page import Page
from lakeward_page_kit.page_text import Document
from lakeward_service_kit.example_reports import REPORT, ROUND, TABLE

ACTION = "Remove the cause, then `lakeward tables resume {path}`."


def table(path: str, status: str = "ok", message: str = "", **changes: Any) -> TableReport:  # noqa: ANN401 - fields
    action = ACTION.format(path=path) if status == "suspended" else ""
    condition = TableCondition(status, message, action, 5_000)
    return replace(TABLE, path=path, round=None, status="idle", condition=condition, **changes)


def shown(page: Page, address: str, *tables: TableReport) -> str:
    page.show(replace(REPORT, tables=tables))
    answer = page.client().get(address)
    assert answer.status_code == 200
    return str(answer.text)


def listed(page: Page, address: str, *tables: TableReport) -> list[str]:
    part = shown(page, address, *tables).partition('id="tables"')[2]
    return re.findall(r'<th role="rowheader" scope="row"><a href="[^"]+">([^<]+)</a></th>', part)


THREE = (
    table("shop.orders", lag_rows=5),
    table("shop.carts", "late", "5 rows wait", lag_rows=70),
    table("hr.people", "suspended", "no such column", code="LW-311", lag_rows=None),
)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/", ["hr.people", "shop.carts", "shop.orders"]),
        ("/?q=SHOP", ["shop.carts", "shop.orders"]),
        ("/?status=late", ["shop.carts"]),
        ("/?database=hr", ["hr.people"]),
        ("/?cause=LW-311", ["hr.people"]),
        ("/?database=shop&q=ord", ["shop.orders"]),
        ("/?sort=table", ["hr.people", "shop.carts", "shop.orders"]),
        ("/?sort=-table", ["shop.orders", "shop.carts", "hr.people"]),
        ("/?sort=-rows", ["shop.carts", "shop.orders", "hr.people"]),
        ("/?sort=rows", ["shop.orders", "shop.carts", "hr.people"]),
        ("/?sort=colour&page=x", ["hr.people", "shop.carts", "shop.orders"]),
        ("/?page=99", ["hr.people", "shop.carts", "shop.orders"]),
    ],
)
def test_tables_are_listed_as_the_address_says(page: Page, address: str, expected: list[str]) -> None:
    assert listed(page, address, *THREE) == expected


def test_tables_that_nobody_is_like_are_said_to_be_none(page: Page) -> None:
    assert "None of 3 tables is like this." in Document(shown(page, "/?q=nothing", *THREE)).text


def test_many_tables_are_shown_page_by_page(page: Page) -> None:
    tables = [table(f"shop.t{number:03}", table_id=number) for number in range(PAGE_ROWS * 2 + 1)]
    seen, address = [], "/?sort=table"
    while address:
        seen += listed(page, address, *tables)
        after = re.search(r'href="([^"]+)" rel="next"', shown(page, address, *tables))
        address = html.unescape(after[1]) if after else ""
    assert seen == [one.path for one in tables]
    text = Document(shown(page, "/?page=3", *tables)).text
    assert "101 tables; what is wrong or late comes first; 101 to 101 are shown" in text


def test_five_hundred_tables_are_sent_in_sixty_kilobytes(page: Page) -> None:
    message = "Never tiered; 1,234 rows wait, the oldest for 5 min 0 s."
    tables = [table(f"database.some_table_{number:03}", "late", message, table_id=number) for number in range(500)]
    assert len(shown(page, "/", *tables)) < 100_000
    answer = page.client().get("/", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 60_000


def test_a_heading_sorts_by_its_column_and_then_the_other_way_round(page: Page) -> None:
    text = shown(page, "/?q=shop", *THREE)
    (address,) = re.findall(r'<a href="([^"]+)" data-sort="Lag, rows">', text)
    assert html.unescape(address) == "/?q=shop&sort=-rows#tables"
    text = shown(page, "/?q=shop&sort=-rows", *THREE)
    assert 'aria-sort="descending"' in text
    (address,) = re.findall(r'<a href="([^"]+)" data-sort="Lag, rows">', text)
    assert html.unescape(address) == "/?q=shop&sort=rows#tables"


def test_the_search_keeps_what_was_asked_for_and_escapes_it(page: Page) -> None:
    text = shown(page, "/?q=%22%3E%3Cscript%3E&status=late&sort=table", *THREE)
    assert '<script>"' not in text
    assert 'value="&#34;&gt;&lt;script&gt;"' in text
    assert "<option selected>late</option>" in text
    assert '<input type="hidden" name="sort" value="table">' in text


def test_an_address_has_only_what_it_asks_for() -> None:
    assert Query().address() == "/#tables"
    assert Query(q="a b", page=3).address() == "/?q=a+b#tables"
    assert Query(q="a", sort="lag").address(page=2) == "/?q=a&sort=lag&page=2#tables"


# --- what needs attention -------------------------------------------------------------------------------------


def attention(page: Page, *tables: TableReport) -> str:
    text = Document(shown(page, "/", *tables)).text
    return text.partition("Needs attention")[2].partition("Overview")[0]


def test_the_first_line_says_who_must_act_and_what_the_others_wait_for(page: Page) -> None:
    running = replace(table("shop.now"), status="running", round=ROUND)
    late = [table(f"shop.t{number}", "late", "rows wait", queue_position=number + 1) for number in range(28)]
    bad = [table(f"hr.t{number}", "suspended", "the folder is full", code="LW-302") for number in range(2)]
    text = attention(page, running, *late, *bad, table("hr.again", "retrying", "no answer"))
    assert text.split("\u2715")[0].strip() == (
        "2 tables need you, 1 is tried again, 28 are late: they wait for the end of the round that runs."
    )
    text = attention(page, running, late[0], table("shop.other", "late", "rows wait"))
    assert "2 tables are late: 1 of them waits for the end of the round that runs." in text
    assert "1 table is late: it waits for the end of the round that runs." in attention(page, running, late[0])


def test_tables_of_one_cause_are_one_trouble_with_its_command_and_a_list(page: Page) -> None:
    bad = [
        table(f"hr.t{number}", "suspended", f"hr.t{number}: the lake's folder is full", code="LW-302")
        for number in range(7)
    ]
    text = shown(page, "/", *bad, table("hr.other", "suspended", "no such column", code="LW-311"))
    found = Document(text).text.partition("Needs attention")[2].partition("Overview")[0]
    assert (
        "7 tables suspended: hr.t0, hr.t1, hr.t2, hr.t3, hr.t4 and 2 more. hr.t0: hr.t0: the lake's folder is full "
        "Remove the cause, then `lakeward tables resume TABLE`."
    ) in found
    assert "hr.other suspended for 5.0 s: no such column" in found
    (address,) = re.findall(r'<strong><a href="([^"]+)">7 tables</a>', text)
    assert len(listed(page, html.unescape(address).partition("#")[0], *bad, *THREE)) == 7


def test_late_tables_are_one_trouble_whatever_each_waits_for(page: Page) -> None:
    late = [table(f"shop.t{number}", "late", f"{number} rows wait") for number in range(3)]
    assert "3 tables late: shop.t0, shop.t1, shop.t2." in attention(page, *late)


def test_a_paused_table_is_neither_late_nor_held(page: Page) -> None:
    text = Document(shown(page, "/", table("shop.t", "paused", "Paused.", lag_rows=1_000, lag_s=99.0))).text
    assert "the lake has everything" in text
    assert "1,000 rows" not in text.partition("Overview")[2].partition("Tables")[0]


def test_where_all_is_well_nothing_needs_attention(page: Page) -> None:
    assert attention(page, table("shop.orders")).split() == ["\u2713", "Nothing."]
