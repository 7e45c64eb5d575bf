"""`/metrics`, `/healthz`, `/readyz` and `/status.json`, errors in the page, and its web server."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from lakeward.errors import ConfigError
from lakeward.model.status import ServiceReport
from lakeward.observe.live_status import REPORT_LATE_S, SILENT_AFTER_S, Part
from lakeward_page_kit.page import Page
from lakeward_service_kit.example_reports import REPORT
from lakeward_testing.waiting import LIMIT_S


def test_the_status_document_is_the_report(page: Page) -> None:
    assert page.client().get("/status.json").status_code == 503
    page.show(REPORT)
    answer = page.client().get("/status.json")
    assert answer.headers["content-type"] == "application/json"
    assert msgspec.json.decode(answer.content, type=ServiceReport) == REPORT


def test_the_metrics_are_those_of_the_service(page: Page) -> None:
    page.show(REPORT)
    answer = page.client().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'lakeward_table_lag_seconds{table="shop.orders"} 12.0' in answer.text


def test_a_service_is_ready_once_everything_is_open_and_it_serves(page: Page) -> None:
    client = page.client()
    assert (client.get("/readyz").status_code, client.get("/healthz").text) == (503, "ok\n")
    page.live.opened(Part.SOURCE, Part.LAKE)
    assert client.get("/readyz").text == "Spark is not open yet\nthe service is starting\n"
    page.show(REPORT)
    assert (client.get("/readyz").status_code, client.get("/readyz").text) == (200, "ok\n")
    page.show(replace(REPORT, state="stopping"))
    assert client.get("/readyz").text == "the service is stopping\n"


def test_a_service_whose_event_loop_hangs_is_not_alive(page: Page) -> None:
    page.show(REPORT)
    page.clock.advance(SILENT_AFTER_S + 1)
    answer = page.client().get("/healthz")
    assert (answer.status_code, answer.text) == (503, "the event loop has not stepped for 11 s\n")
    assert "does not answer" in page.client().get("/").text


@pytest.mark.parametrize(("state", "code"), [("serving", 503), ("stopping", 200)])
def test_a_service_that_serves_and_does_not_report_is_not_alive(page: Page, state: str, code: int) -> None:
    page.show(replace(REPORT, state=state))
    page.clock.advance(REPORT_LATE_S + 1)
    page.live.stepped()
    assert page.client().get("/healthz").status_code == code


@pytest.mark.parametrize(
    ("listens_at", "asked_for", "code"),
    [
        ("127.0.0.1", "localhost:8080", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("localhost", "127.0.0.1:1", 200),
        ("127.0.0.1", "[::1]:80", 200),
        ("127.0.0.1", "evil.example", 421),
        ("127.0.0.1", "localhost.evil.example:8080", 421),
        ("127.0.0.1", "10.0.0.1", 421),
        ("127.0.0.1", "[evil", 400),
        ("127.0.0.1", "localhost/evil", 400),
        ("127.0.0.1", "localhost#x", 400),
        ("127.0.0.1", "localhost?x", 400),
        ("127.0.0.1", "evil@localhost", 400),
        ("127.0.0.1", "localhost:80:80", 400),
        ("127.0.0.1", "", 421),
        ("0.0.0.0", "lakeward-page.shop.svc", 200),  # noqa: S104 - as in a pod
    ],
)
def test_a_page_for_this_machine_answers_nobody_who_asks_for_another_one(
    page: Page, listens_at: str, asked_for: str, code: int
) -> None:
    """Else any website could read it, by giving its own name the address 127.0.0.1."""
    shown = page.serve(host=listens_at)
    try:
        for path in ("/", "/status.json", "/metrics", "/healthz", "/page.css"):
            port = int(shown.url.rstrip("/").rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
            connection.request("GET", path, headers={"Host": asked_for})
            answer = connection.getresponse()
            assert answer.status == (503 if code == 200 and path == "/status.json" else code)
            assert "default-src" in str(answer.headers["content-security-policy"])
            connection.close()
    finally:
        shown.close()


def test_an_error_in_the_page_is_logged_once_and_answered_500(page: Page) -> None:
    page.show(replace(REPORT, state="of no such kind"))
    client = page.client()
    with capture_logs() as lines:
        assert [client.get("/").status_code for _ in range(3)] == [500, 500, 500]
    assert [line["event"] for line in lines] == ["the status page cannot be shown"]
    assert client.get("/metrics").status_code == 200


def test_the_page_is_served_until_it_is_closed(page: Page) -> None:
    page.show(REPORT)
    shown = page.serve()
    with urllib.request.urlopen(f"{shown.url}readyz", timeout=LIMIT_S) as answer:  # noqa: S310 - our own address
        assert answer.read() == b"ok\n"
    shown.close()
    assert [thread.name for thread in threading.enumerate() if thread.name == "status page"] == []
    with pytest.raises(OSError, match="refused"), urllib.request.urlopen(shown.url, timeout=LIMIT_S):  # noqa: S310 - as above
        pass


def test_a_client_that_says_nothing_does_not_hold_the_end_up(page: Page) -> None:
    shown = page.serve()
    with socket.create_connection(("127.0.0.1", int(shown.url.rstrip("/").rpartition(":")[2])), timeout=LIMIT_S):
        shown.close()
    assert [thread.name for thread in threading.enumerate() if thread.name == "status page"] == []


def test_a_port_in_use_is_an_error_of_configuration_that_names_key_and_port(page: Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"observe\.status_port: expected a port .*, found {port}\. .*in use"):
            page.serve(port)


def test_an_address_of_another_machine_is_an_error_of_configuration(page: Page) -> None:
    with pytest.raises(ConfigError, match=r"observe\.status_host: expected an address of this machine"):
        page.serve(0, "192.0.2.1")
