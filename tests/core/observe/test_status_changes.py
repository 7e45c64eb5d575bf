"""Changes of a table's status, and how a program or a web hook is told of them."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from lakeward.errors import ConfigError
from lakeward.model.status import ServiceReport, TableCondition, TableReport
from lakeward.observe import status_changes
from lakeward.observe.status_changes import StatusChange, StatusChanges, StatusSender, check_target
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

OK, NEW = TableCondition("ok", ""), TableCondition("new", "Never tiered.")
SUSPENDED = TableCondition("suspended", "the lake table does not fit", "Remove the cause, then resume it.", 5)
TABLE = TableReport("shop.orders", 7, "idle", "", 0, 0.0, 0, 0, None, OK, code="LW-311")
REPORT = ServiceReport("svc", "svc-1-0123456789abcdef", 1, "serving", 9, None, (TABLE,), None, 0, 0)
CHANGE = StatusChange("svc", "svc-1-0", "shop.orders", "suspended", "ok", 5, 9, "does not fit", "Remove it.", "LW-311")


def having(condition: TableCondition) -> ServiceReport:
    return replace(REPORT, written_ms=9, tables=(replace(TABLE, condition=condition),))


def changes(last: ServiceReport | None, *reports: ServiceReport) -> list[tuple[str, str]]:
    known = StatusChanges(last)
    return [(change.before, change.status) for report in reports for change in known.of(report)]


def test_each_change_is_told_once_with_cause_and_action() -> None:
    known = StatusChanges(REPORT)
    told = [*known.of(having(SUSPENDED)), *known.of(having(SUSPENDED))]
    assert told == [
        StatusChange(
            service="svc",
            incarnation="svc-1-0123456789abcdef",
            table="shop.orders",
            status="suspended",
            before="ok",
            since_ms=5,
            at_ms=9,
            message="the lake table does not fit",
            action="Remove the cause, then resume it.",
            code="LW-311",
        )
    ]
    assert changes(having(SUSPENDED), REPORT) == [("suspended", "ok")]


def test_a_restart_changes_no_status_and_the_end_of_a_service_neither() -> None:
    assert changes(having(SUSPENDED), having(SUSPENDED)) == []
    assert changes(REPORT, replace(having(SUSPENDED), state="stopped")) == []


def test_a_table_that_was_not_known_is_told_of_if_it_is_not_well() -> None:
    assert changes(None, REPORT) == []
    assert changes(None, having(NEW), REPORT) == [("new", "ok")]
    assert changes(None, having(SUSPENDED)) == [("", "suspended")]


class Hook:
    """A web hook that answers as it is told, and keeps what it was sent."""

    def __init__(self, url: str, answers: list[int]) -> None:
        self.url, self.answers = url, answers
        self.got: Queue[tuple[str, dict[str, Any]]] = Queue()


@contextmanager
def hook(*answers: int) -> Iterator[Hook]:
    """Serve a web hook whose last answer is given again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(told.answers.pop(0) if len(told.answers) > 1 else told.answers[0])
            self.send_header("Content-Length", "0")
            self.end_headers()
            told.got.put((self.headers["Content-Type"], json.loads(body)))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told = Hook(f"http://127.0.0.1:{server.server_port}/hook", list(answers))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join()


def told_of(target: str, count: int = 1) -> list[MutableMapping[str, Any]]:
    """Tell a target, without a further try, and return what was logged."""
    with capture_logs() as lines:
        sender = StatusSender(target, pauses_s=(0.0, 0.0))
        for _ in range(count):
            sender.add(CHANGE)
        wait_until(lambda: not sender._waiting, "all to be taken")
        sender.close()
    return lines


def test_a_web_hook_is_posted_json() -> None:
    with hook(204) as told:
        assert told_of(told.url) == []
        kind, body = told.got.get(timeout=LIMIT_S)
    assert kind == "application/json"
    assert (body["table"], body["status"], body["before"], body["action"]) == (
        "shop.orders",
        "suspended",
        "ok",
        "Remove it.",
    )


@pytest.mark.parametrize(
    ("answers", "tries", "reason"),
    [
        ([503, 200], 2, None),
        ([429, 500, 200], 3, None),
        ([500], 3, "the web hook answered 500"),
        ([404], 1, "the web hook answered 404"),
    ],
)
def test_a_web_hook_is_tried_three_times_unless_it_refuses(answers: list[int], tries: int, reason: str | None) -> None:
    with hook(*answers) as told:
        sender = StatusSender(told.url, pauses_s=(0.0, 0.0))
        with capture_logs() as lines:
            sender.add(CHANGE)
            for _ in range(tries):
                told.got.get(timeout=LIMIT_S)
            wait_until(lambda: bool(lines) == bool(reason), "the outcome")
            sender.close()
        assert told.got.empty()
    assert [line["reason"] for line in lines] == ([reason] if reason else [])


def test_a_web_hook_that_is_away_is_a_warning() -> None:
    with hook(200) as told:
        url = told.url
    (line,) = told_of(url)
    assert (line["log_level"], line["key"], line["table"]) == ("warning", "observe.on_status", "shop.orders")
    assert line["reason"].startswith("the web hook does not answer: ")


def test_a_program_gets_json_on_its_standard_input_and_no_shell_reads_its_words(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    file = tmp_path / "told $(now);"
    assert told_of(f'{sys.executable} -c "{code}" "{file}"') == []
    assert json.loads(file.read_text(encoding="utf-8"))["status"] == "suspended"


def test_a_program_that_fails_is_tried_again_and_its_last_line_is_told(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit('no network')"
    file = tmp_path / "tries"
    with capture_logs() as lines:
        sender = StatusSender(f'{sys.executable} -c "{code}" {file}', pauses_s=(0.0, 0.0))
        sender.add(CHANGE)
        wait_until(lambda: lines, "the last try to fail")
        sender.close()
    assert [line["reason"] for line in lines] == ["the program ended with exit code 1: no network"]
    assert file.read_text(encoding="utf-8") == "xxx"


def test_whoever_tells_waits_for_nobody_and_the_oldest_change_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, told = threading.Event(), Queue[bytes]()

    def slow(_: str, data: bytes) -> None:
        go_on.wait(LIMIT_S)
        told.put(data)

    monkeypatch.setattr(status_changes, "_post", slow)
    sender = StatusSender("http://nobody/")
    with capture_logs() as lines:
        sender.add(CHANGE)
        wait_until(lambda: not sender._waiting, "the first to be taken")
        for number in range(status_changes.QUEUED + 1):
            sender.add(replace(CHANGE, at_ms=number))
        go_on.set()
        sender.close()
    assert [line["event"] for line in lines] == ["a change of status is told to nobody: too many wait"]
    assert [json.loads(told.get())["at_ms"] for _ in range(2)] == [9, 1]


@pytest.mark.parametrize("target", ["", "   ", "no-such-program --now", 'sh -c "unended'])
def test_a_target_that_cannot_be_told_is_an_error_that_names_the_key(target: str) -> None:
    with pytest.raises(ConfigError, match=r"observe\.on_status: expected the URL of a web hook"):
        check_target(target)


def test_what_is_told_is_said_in_words() -> None:
    assert check_target("https://hooks.example/T0") == "each change of a table's status is posted to a web hook"
    assert check_target("sh -c true").startswith("each change of a table's status is given to /")
