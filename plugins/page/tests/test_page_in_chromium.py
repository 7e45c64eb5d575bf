"""The page in a real browser: without scripts and live with them, by keys alone, spoken, light and dark, any width."""

from __future__ import annotations

import importlib.util
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from lakeward.model.status import TableCondition
from lakeward_page_kit.page import Page
from lakeward_service_kit.chromium import CHROMIUM, MISSING, Browser, Node, Tab
from lakeward_service_kit.example_reports import REPORT, ROUND, TABLE
from lakeward_service_kit.other_services import bind, report

if TYPE_CHECKING:
    from collections.abc import Iterator

CAUSE = "The lake table was altered by somebody else."
BROKEN = replace(
    TABLE, path="shop.broken", table_id=8, status="suspended", round=None,
    condition=TableCondition("suspended", CAUSE, "Remove the cause, then `lakeward tables resume shop.broken`.", 1),
)  # fmt: skip
WITH_FAULT = replace(REPORT, tables=(BROKEN, TABLE))
PAINTED = 30_000
"""Bytes: an empty page of this size has a picture of a few thousand."""

pytestmark = [pytest.mark.chromium, pytest.mark.skipif(CHROMIUM is None, reason=MISSING), pytest.mark.slow]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def url(page: Page, browser: Browser) -> Iterator[str]:
    """The address of a page that shows a table that is well and one that is suspended."""
    page.show(WITH_FAULT)
    shown = page.serve()
    yield shown.url
    shown.close()


@pytest.fixture
def url_with_others(page: Page, browser: Browser, tmp_path: Path) -> Iterator[str]:
    """The address of a page that shows two other services: one that lives, with many tables, and one that hangs."""
    del browser  # it is skipped where there is none
    bind(str(tmp_path), "sales", "sales.*", shared=False)
    report(str(tmp_path), "sales", *(f"sales.{'by_region_' * 4}{number}" for number in range(12)))
    report(str(tmp_path), "a_service_with_a_long_name_" * 2, written_ms=1)
    page.show(WITH_FAULT)
    shown = page.serve()
    yield shown.url
    shown.close()


def opened(browser: Browser, url: str, *, javascript: bool = True, dark: bool = False, width: int = 1280) -> Tab:
    tab = browser.tab(javascript=javascript, dark=dark, width=width)
    tab.open(url)
    return tab


# --- without scripts, and with them ---------------------------------------------------------------------------


def test_without_javascript_all_of_it_can_be_read(browser: Browser, url: str) -> None:
    with_scripts, without = opened(browser, url), opened(browser, url, javascript=False)
    words = Counter(without.text().split())
    assert {"shop.orders", "12,345", "worker-1", "Promised", "suspended"} <= words.keys()
    assert Counter(with_scripts.text().replace("Stop updating", "").split()) == words


def test_without_javascript_the_page_reloads_itself(browser: Browser, url: str) -> None:
    assert opened(browser, url, javascript=False).has('meta[http-equiv="refresh"]')
    assert not opened(browser, url).has('meta[http-equiv="refresh"]')


def test_with_javascript_the_page_is_live_without_a_reload(page: Page, browser: Browser, url: str) -> None:
    tab = opened(browser, url)
    tab.run("window.same = true")
    assert "98,765" not in tab.text()
    page.show(replace(REPORT, tables=(replace(TABLE, rows=98_765),)))
    tab.until(lambda: "98,765" in tab.text())
    assert tab.run("window.same") is True
    assert CAUSE not in tab.text()


def test_a_service_that_does_not_answer_any_more_is_announced(page: Page, browser: Browser) -> None:
    page.show(REPORT)
    shown = page.serve()
    tab = opened(browser, shown.url)
    shown.close()
    tab.until(lambda: "The service does not answer; this is what it said last." in tab.text())
    assert "shop.orders" in tab.text()
    assert "alert" in {one.role for one in tab.spoken()}


# --- a fault of one table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without"])
def test_a_fault_of_one_table_comes_first_with_its_cause_and_what_to_do(
    browser: Browser, url: str, *, javascript: bool
) -> None:
    text = opened(browser, url, javascript=javascript).text()
    attention = text.partition("Needs attention")[2].partition("Overview")[0]
    assert "shop.broken" in attention
    assert CAUSE in attention
    assert "lakeward tables resume shop.broken" in attention
    assert "shop.orders" not in attention
    rows = text.rpartition("Rows tiered")[2]
    assert 0 < rows.index("shop.broken") < rows.index("shop.orders") < rows.index("Last warnings")
    assert "ok" in rows.partition("shop.orders")[2].split()[:6]


# --- keys and screen readers ----------------------------------------------------------------------------------

NAME = "(e => e.id || e.getAttribute('href') || e.textContent.trim())"
FOCUSED = f"{NAME}(document.activeElement)"
REACHABLE = f"[...document.querySelectorAll('a[href], button, summary, input, select')].map({NAME})"
OUTLINE = "(s => s.outlineStyle + ' ' + parseFloat(s.outlineWidth))(getComputedStyle(document.activeElement))"


def test_every_control_is_reached_by_tab_and_shows_that_it_is(browser: Browser, url: str) -> None:
    tab = opened(browser, url)
    wanted = tab.run(REACHABLE)
    seen = []
    for _ in wanted:
        tab.press("Tab")
        seen.append(tab.run(FOCUSED))
        style, width = tab.run(OUTLINE).split()
        assert style != "none", seen[-1]
        assert float(width) >= 2, seen[-1]
    assert seen == wanted  # in the order of the page, and nothing holds the focus
    assert seen[0] == "#content"


def test_the_skip_link_leads_past_the_head_of_the_page(browser: Browser, url: str) -> None:
    tab = opened(browser, url)
    tab.press("Tab")
    assert Node("link", "Skip to the content") in tab.spoken()
    tab.press("Enter")
    tab.until(lambda: tab.run("document.activeElement.id") == "content")


def test_the_updates_can_be_stopped_by_keys(page: Page, browser: Browser, url: str) -> None:
    tab = opened(browser, url)
    tab.press("Tab")
    tab.press("Tab")
    assert tab.run(FOCUSED) == "pause"
    tab.press(" ")
    assert Node("button", "Update again") in tab.spoken()
    page.show(replace(REPORT, tables=(replace(TABLE, rows=98_765),)))
    tab.press("Enter")
    tab.until(lambda: "98,765" in tab.text())
    assert tab.run(FOCUSED) == "pause"  # an update does not take the focus away


def test_details_open_and_close_by_keys_and_stay_so(browser: Browser, url: str) -> None:
    tab = opened(browser, url)
    details = "document.querySelector('details')"
    assert tab.run(f"{details}.open") is True
    tab.run(f"{details}.querySelector('summary').focus()")
    tab.press("Enter")
    assert tab.run(f"{details}.open") is False
    tab.run(f"{details}.closest('article').dataset.old = '1'")
    tab.until(lambda: not tab.has("article[data-old]"))  # the part was replaced
    assert tab.run(f"{details}.open") is False
    assert tab.run("document.activeElement.tagName") == "SUMMARY"


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without"])
def test_a_screen_reader_is_told_landmarks_headings_and_names(browser: Browser, url: str, *, javascript: bool) -> None:
    spoken = opened(browser, url, javascript=javascript).spoken()
    roles = Counter(one.role for one in spoken)
    assert {role: roles[role] for role in ("banner", "main", "contentinfo", "navigation")} == {
        "banner": 1, "main": 1, "contentinfo": 1, "navigation": 1,
    }  # fmt: skip
    assert Node("heading", "Tables") in spoken
    assert Node("heading", "Needs attention") in spoken
    named = {"link", "button", "progressbar", "table", "region", "article", "navigation", "columnheader", "rowheader"}
    assert [one for one in spoken if one.role in named and not one.name.strip()] == []
    assert next(one.name for one in spoken if one.role == "RootWebArea").startswith("demo: serving, 1 to look at")


@pytest.mark.parametrize("width", [400, 1280])
def test_cells_of_tables_belong_to_headers_at_every_width(browser: Browser, url: str, width: int) -> None:
    """Where the page is narrow the rows are laid out as blocks; they stay rows for a screen reader."""
    roles = Counter(one.role for one in opened(browser, url, width=width).spoken())
    assert roles["table"] == 2
    assert roles["columnheader"] == 8 + 12
    assert roles["rowheader"] == 1 + 2
    assert roles["cell"] == 7 + 2 * 11


# --- light and dark, wide and narrow --------------------------------------------------------------------------

ROOM_LEFT = "document.documentElement.clientWidth - document.documentElement.scrollWidth"


AXE = importlib.util.find_spec("axe_playwright_python")
CHECKED = """axe.run().then(found => found.violations.map(
  one => one.id + ': ' + one.nodes.map(node => node.target + ' ' + node.failureSummary).join('; ')))"""
NO_AXE = "the extra `test` of lakeward-page is missing"
OF_TABLES_AND_ROUNDS = ("/tables/shop.broken", "/tables/shop.orders", "/rounds/7-1-1", "/rounds/7-1-9")
PAGES = ("/", *OF_TABLES_AND_ROUNDS, "/services/sales", "/tables/x")


def broken_rules(tab: Tab) -> list[str]:
    """Return what axe finds wrong on a page: the rule, and where."""
    tab.run((Path(str(AXE and AXE.origin)).parent / "axe.min.js").read_text(encoding="utf-8"))
    found: list[str] = tab.run(CHECKED)
    return found


@pytest.fixture
def many_pages(page: Page, url_with_others: str) -> str:
    """The address of a service with rounds that have ended, and two others beside it."""
    ended = replace(
        ROUND, outcome="failed", reason="no room", code="LW-302", subtasks=(), timings_s={"job": 3.0, "encode": 2.0},
        ended_ms=9_000, complete_ms=5_000, lag_rows=5, table="shop.orders", table_id=7, offsets={"0": 9, "1": 1},
        round_name="demo-1/7-1-9",
    )  # fmt: skip
    page.remember(replace(ended, ended_ms=8_000, offsets={"0": 1, "1": 1}, round_name="demo-1/7-1-8"), ended)
    return url_with_others.rstrip("/")


@pytest.mark.skipif(AXE is None, reason=NO_AXE)
@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)], ids=["narrow-light", "wide-dark"])
def test_a_checker_of_accessibility_finds_nothing(
    browser: Browser, many_pages: str, address: str, width: int, *, dark: bool
) -> None:
    """Contrast, names, roles, headings and landmarks, by the rules of axe."""
    tab = opened(browser, f"{many_pages}{address}", dark=dark, width=width)
    assert broken_rules(tab) == []


@pytest.mark.skipif(AXE is None, reason=NO_AXE)
def test_the_checker_finds_a_text_that_is_hard_to_read(browser: Browser, url: str) -> None:
    tab = opened(browser, url)
    tab.run("document.querySelector('h2').style.color = '#bbb'")
    (found,) = broken_rules(tab)
    assert found.startswith("color-contrast: #h-attention")


@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize("width", [320, 1280])
def test_no_page_is_wider_than_the_window(browser: Browser, many_pages: str, address: str, width: int) -> None:
    assert opened(browser, f"{many_pages}{address}", width=width).run(ROOM_LEFT) >= 0


@pytest.mark.parametrize("width", [320, 400, 800, 1264, 1265, 1280])
def test_other_services_make_nothing_wider(browser: Browser, url_with_others: str, width: int) -> None:
    tab = opened(browser, url_with_others, width=width)
    assert "Other services" in tab.text()
    assert tab.run(ROOM_LEFT) >= 0


@pytest.mark.parametrize("width", [400, 1280])
def test_light_and_dark_are_two_pictures(browser: Browser, url: str, width: int) -> None:
    pictures = [opened(browser, url, dark=dark, width=width).picture() for dark in (False, True)]
    assert all(len(picture) > PAINTED for picture in pictures)
    assert pictures[0] != pictures[1]
    grounds = [
        opened(browser, url, dark=dark).run("getComputedStyle(document.body).backgroundColor") for dark in (False, True)
    ]
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize("width", [320, 400, 800, 1264, 1265, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, url: str, width: int) -> None:
    assert opened(browser, url, width=width).run(ROOM_LEFT) >= 0


@pytest.mark.parametrize("width", [320, 400, 800, 1264, 1265, 1280])
def test_long_names_large_numbers_and_lines_of_the_log_make_nothing_wider(
    page: Page, browser: Browser, url: str, width: int
) -> None:
    large = replace(
        TABLE, path=f"shop.{'by_region_' * 6}", lag_rows=98_765_432, lag_s=7_384.0, freshness_s=7_260.0,
        complete_ms=-7_384_000, lake_files=12_345, rounds=12_345, rows=1_234_567_890, queue_position=3,
    )  # fmt: skip
    page.problems.listen()
    logging.getLogger("lakeward.test").warning("a round failed")
    page.show(replace(REPORT, tables=(large, replace(BROKEN, rows=1_234_567_890))))
    assert opened(browser, url, width=width).run(ROOM_LEFT) >= 0
