"""What the status page says of the other services of the state root."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from lakeward.model.secrets import MASK
from lakeward_page.other_services import OtherServices
from lakeward_page_kit.page import Page
from lakeward_page_kit.page_text import Document
from lakeward_service_kit.example_reports import REPORT, TABLE
from lakeward_service_kit.other_services import AtOnce, bind, report
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_page.other_services import OtherService


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "hush-hush")


def reader(page: Page, root: str, executor: AtOnce | None = None) -> OtherServices:
    return OtherServices(root, "demo", page.live, page.clock, executor or AtOnce())


def look(page: Page, root: str) -> str:
    """Return what the page says of other services, after a look at their files."""
    page.show(REPORT)
    page.others = reader(page, root)
    return Document(page.client().get("/").text).text.partition("Other services")[2].partition("Last warnings")[0]


def others(page: Page, root: str) -> dict[str, OtherService]:
    return {one.name: one for one in reader(page, root).newest().services}


def gone() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_each_of_two_other_services_is_shown_with_its_tables_and_whether_it_lives(page: Page, root: str) -> None:
    bind(root, "sales", "sales.*", shared=False)
    report(root, "sales", "sales.orders", "sales.items")
    bind(root, "web", "web.*")
    report(root, "web", "web.clicks", pid=gone())
    text = look(page, root)
    sales, _, web = text.partition(" web ")
    assert "sales \u2713 serving" in sales
    assert "sales.items, sales.orders binds sales.*; leaves the others alone" in sales
    assert "s ago" in sales
    assert "! silent died: process" in web
    assert "web.clicks binds web.*" in web


def test_a_service_alone_is_told_of_no_others(page: Page, root: str) -> None:
    report(root, "demo", "shop.orders")
    assert look(page, root) == ""


def test_a_shared_table_is_shown_with_the_service_that_tiered_it_last(page: Page, root: str) -> None:
    report(root, "spare", "shop.orders", "web.clicks")
    page.show(replace(REPORT, tables=(replace(TABLE, committed_ms=6),)))
    assert others(page, root)["spare"].tables == ("web.clicks",)
    page.show(replace(REPORT, tables=(replace(TABLE, committed_ms=4, round=None),)))
    assert others(page, root)["spare"].tables == ("shop.orders", "web.clicks")


def test_a_shared_table_of_a_service_that_died_is_anybodys(page: Page, root: str) -> None:
    report(root, "spare", "web.clicks", pid=gone())
    page.show(REPORT)
    assert others(page, root)["spare"].tables == ()


def test_a_stopped_service_keeps_the_tables_that_are_bound_to_it(page: Page, root: str) -> None:
    bind(root, "sales", "shop.*")
    report(root, "sales", state="stopped")
    page.show(REPORT)
    found = others(page, root)["sales"]
    assert (found.running, found.tables) == (False, ("shop.orders",))
    assert "\u00b7 stopped stopped at" in look(page, root)


def test_a_state_that_only_a_later_release_knows_is_shown_as_it_is_called(page: Page, root: str) -> None:
    report(root, "spare", state="balancing")
    page.show(REPORT)
    assert "balancing" in look(page, root)


def test_files_that_cannot_be_read_are_named_and_what_was_read_stays(page: Page, root: str, tmp_path: Path) -> None:
    report(root, "spare", "web.clicks")
    page.show(REPORT)
    page.others = reader(page, root)
    client = page.client()
    assert "web.clicks" in client.get("/").text
    (tmp_path / "hush-hush" / "spare" / "status.json").write_text("{", encoding="utf-8")
    page.clock.advance(6.0)
    text = Document(client.get("/").text).text
    assert f"cannot be read; this is what they reported before: {tmp_path}/{MASK}" in text
    assert "web.clicks" in text


def test_a_store_that_hangs_keeps_no_page_waiting_and_is_asked_once(page: Page, root: str) -> None:
    report(root, "spare", "web.clicks")
    executor = AtOnce(hold=True)
    found = reader(page, root, executor)
    for _ in range(3):
        assert found.newest().services == ()
        page.clock.advance(60.0)
    (work,) = executor.held
    work()
    assert [one.name for one in found.newest().services] == ["spare"]


def test_a_page_that_is_served_shows_the_others_of_the_state_root(page: Page) -> None:
    report(page.root, "spare", "web.clicks")
    page.show(REPORT)
    shown = page.serve()
    with urllib.request.urlopen(shown.url, timeout=LIMIT_S) as answer:  # noqa: S310 - our own address
        text = Document(answer.read().decode()).text
    shown.close()
    assert "spare \u2713 serving" in text


def test_the_page_of_another_service_lists_its_tables_by_addresses_of_its_own(page: Page, root: str) -> None:
    report(root, "sales", "sales.orders", "sales.items", "sales.carts")
    page.show(REPORT)
    page.others = reader(page, root)
    first = Document(page.client().get("/").text)
    assert "/services/sales" in [one.get("href") for one in first.all("a")]
    shown = Document(page.client().get("/services/sales?q=carts").text)
    assert "1 of 3 tables" in shown.text
    assert shown.all("form")[0]["action"] == "/services/sales#tables"
    links = [str(one.get("href")) for one in shown.all("a")]
    assert "/services/sales?q=carts&sort=-lag#tables" in links
    assert [one for one in links if one.startswith(("/tables/", "/rounds/"))] == []
    assert "Last warnings" not in shown.text


def test_the_page_of_a_service_that_is_silent_says_so_first(page: Page, root: str) -> None:
    report(root, "web", "web.clicks", pid=gone())
    page.show(REPORT)
    page.others = reader(page, root)
    text = Document(page.client().get("/services/web").text).text
    attention = text.partition("Needs attention")[2].partition("Overview")[0]
    assert "died: process" in attention
    assert "This is what it reported last." in attention


def test_a_service_that_is_not_there_is_answered_with_404(page: Page, root: str) -> None:
    page.show(REPORT)
    page.others = reader(page, root)
    assert page.client().get("/services/nobody").status_code == 404
    assert page.client().get("/services/demo").status_code == 404
