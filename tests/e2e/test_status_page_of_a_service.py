"""The status page of a real service while one of its tables fails: by HTTP, and in a real browser."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakeward.clock import SystemClock
from lakeward.model.secrets import MASK
from lakeward_e2e.tables import LogTable
from lakeward_e2e.world import World
from lakeward_service_kit.chromium import CHROMIUM, MISSING, Browser
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("uvicorn", reason="the extra `page` is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.crash]
SECRET = "hush-hush"  # noqa: S105 - no secret of anybody
PROMISED_S = 30.0
SUSPEND_AFTER = 2
BAD, HEALTHY = "shop.orders", ("shop.carts", "shop.prices")
CAUSE = rf"{BAD}: the catalog cannot load the table: .*/warehouse/shop/orders/metadata"
_URL = re.compile(r"status page opened .*url=(\S+)")


@dataclass
class Fault:
    """A service one of whose tables is suspended, because somebody moved its metadata; its neighbours are well."""

    world: World
    url: str
    bad: LogTable
    neighbours: tuple[LogTable, ...]
    broken_ms: int = 0
    retrying: str = ""
    """What the page said while the table was still tried again."""

    def get(self, name: str = "") -> str:
        """Return what the service answers, which must be 200."""
        with urlopen(self.url + name, timeout=LIMIT_S) as answer:  # noqa: S310 - the service's own address
            assert answer.status == 200
            return str(answer.read().decode("utf-8"))

    def text(self) -> str:
        """Return the words of the page."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.get())).split())

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the tables of the status document by their names."""
        return {table["path"]: table for table in json.loads(self.get("status.json"))["tables"]}

    def statuses(self) -> dict[str, str]:
        """Return the status of each table."""
        return {name: table["condition"]["status"] for name, table in self.tables().items()}

    def seen_retrying(self) -> bool:
        """Keep what the page says, and return whether it says that the bad table is tried again."""
        self.retrying = self.text()
        return f"{BAD} retrying for" in attention(self.retrying)

    def seen(self, status: str) -> bool:
        """Feed the neighbours, so that they are served, and return whether the bad table has a status."""
        for table in self.neighbours:
            table.load(10)
        return self.statuses()[BAD] == status


@pytest.fixture(scope="module")
def world_with_a_secret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world whose paths have a secret in them: so it is in the messages of errors, too."""
    world = World(tmp_path_factory.mktemp(SECRET))
    yield world
    world.destroy()


@pytest.fixture(scope="module")
def fault(world_with_a_secret: World) -> Fault:
    world = world_with_a_secret
    orders, *neighbours = [LogTable(world.store, name, buckets=1) for name in ("orders", "carts", "prices")]
    config = world.configure(
        service_keys={"suspend_after": SUSPEND_AFTER, "backoff_first_s": 5},
        lake_keys={"properties": f'{{ "s3.secret-access-key" = "{SECRET}" }}'},
        tables=dict.fromkeys(("orders", "carts", "prices"), f"freshness_s = {PROMISED_S}"),
    )
    for table in (orders, *neighbours):
        table.load(100)
    service = world.start(config, "--status-port", "0")
    wait_until(lambda: _URL.search(service.words()), "the page")
    url = _URL.search(service.words())
    assert url is not None
    shown = Fault(world, url[1], orders, tuple(neighbours))
    world.until_same(orders, *neighbours)
    wait_until(lambda: shown.statuses() == dict.fromkeys((BAD, *HEALTHY), "ok"), "all tables to be well", turn_s=0.5)
    shown.broken_ms = SystemClock().wall_ms()
    metadata = world.warehouse.root / "shop" / "orders" / "metadata"
    metadata.rename(metadata.with_name("elsewhere"))
    orders.load(100)
    wait_until(shown.seen_retrying, "the bad table to be tried again")
    wait_until(lambda: shown.seen("suspended"), "the bad table to be suspended")
    return shown


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def attention(text: str) -> str:
    """Return what a page says under `Needs attention`."""
    return text.partition("Needs attention")[2].partition("Overview")[0]


def test_first_the_page_says_that_the_bad_table_is_tried_again_since_when_and_why(fault: Fault) -> None:
    shown = attention(fault.retrying)
    assert re.search(rf"{BAD} retrying for [\d.]+ s: {CAUSE}", shown), shown
    assert "Nothing, unless it stays so; then the log has the details." in shown
    assert "1 with an error" in fault.retrying


def test_then_it_says_that_the_bad_table_is_suspended_since_when_why_and_what_to_do(fault: Fault) -> None:
    shown = attention(fault.text())
    assert re.search(rf"{BAD} suspended for [\d.minhs ]+: {CAUSE}", shown), shown
    assert f"({SUSPEND_AFTER} rounds in a row failed while other tables were served)" in shown
    assert f"Remove the cause, then `lakeward tables resume {BAD}`." in shown
    condition = fault.tables()[BAD]["condition"]
    assert fault.broken_ms <= condition["since_ms"] <= SystemClock().wall_ms()
    assert not any(name in shown for name in HEALTHY)


def test_its_neighbours_were_ok_all_the_time_and_are_as_fresh_as_promised(fault: Fault) -> None:
    for table in fault.neighbours:
        table.load(10)
    loaded_ms = SystemClock().wall_ms()  # not before: a round may begin between the two
    wait_until(lambda: all(fault.tables()[name]["complete_ms"] > loaded_ms for name in HEALTHY), "a round of each")
    tables = fault.tables()
    assert fault.statuses() == {BAD: "suspended"} | dict.fromkeys(HEALTHY, "ok")
    assert all(tables[name]["condition"]["since_ms"] < fault.broken_ms for name in HEALTHY)
    assert all(SystemClock().wall_ms() - tables[name]["complete_ms"] < PROMISED_S * 1000 for name in HEALTHY)
    assert fault.world.same(*fault.neighbours)
    text = fault.text()
    assert "2 of 3 1 with an error" in text
    for name in HEALTHY:
        assert re.search(rf"{name} \S ok ", text.partition("what is wrong or late comes first")[2])


def test_a_service_with_a_suspended_table_is_alive_and_ready(fault: Fault) -> None:
    assert [fault.get(name) for name in ("healthz", "readyz")] == ["ok\n", "ok\n"]


def test_the_metrics_say_what_the_page_says(fault: Fault) -> None:
    before = fault.tables()
    families = {one.name: one for one in text_string_to_metric_families(fault.get("metrics"))}
    after = fault.tables()
    named = [one.labels for one in families["lakeward_table_status"].samples if one.value]
    assert {one["table"]: one["status"] for one in named} == {BAD: "suspended"} | dict.fromkeys(HEALTHY, "ok")
    promised, complete = (
        {one.labels["table"]: one.value for one in families[f"lakeward_table_{name}"].samples}
        for name in ("promised_freshness_seconds", "complete_timestamp_seconds")
    )
    assert promised == dict.fromkeys((BAD, *HEALTHY), PROMISED_S)
    assert complete[BAD] < fault.broken_ms / 1000
    for name in (BAD, *HEALTHY):
        assert before[name]["complete_ms"] / 1000 <= complete[name] <= after[name]["complete_ms"] / 1000


def test_no_secret_of_the_configuration_is_in_any_answer_though_it_is_in_the_error(fault: Fault) -> None:
    message = fault.world.table_status(fault.bad)["condition"]["message"]
    assert f"{MASK}0/warehouse/shop/orders/metadata" in message, "the error tells it, and the service hides it"
    answers = [fault.get(name) for name in ("", "status.json", "metrics", "healthz", "readyz")]
    assert [answer for answer in (message, *answers) if SECRET in answer] == []
    assert f"{MASK}0/warehouse/shop/orders/metadata" in answers[0]


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_a_browser_shows_all_of_it_without_javascript_and_updates_itself_with_it(
    fault: Fault, browser: Browser
) -> None:
    plain, live = browser.tab(javascript=False), browser.tab()
    for tab in (plain, live):
        tab.open(fault.url)
        shown = attention(tab.text())
        assert re.search(rf"{BAD}\s+suspended for", shown), shown
        assert f"`lakeward tables resume {BAD}`" in shown
        assert all(name in tab.text() for name in HEALTHY)
    assert plain.has('meta[http-equiv="refresh"]')
    live.run("window.same = true")
    carts = fault.neighbours[0]
    total = f"{len(carts.rows()) + 1234:,}"
    assert total not in live.text()
    carts.load(1234)
    live.until(lambda: total in live.text())
    assert live.run("window.same") is True
    assert f"`lakeward tables resume {BAD}`" in attention(live.text())
