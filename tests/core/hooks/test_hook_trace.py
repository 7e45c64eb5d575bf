"""`LAKEWARD_TRACE_HOOKS=1` writes each hook call to the log."""

from __future__ import annotations

import json
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from lakeward.errors import SourceError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.hooks.trace import LOGGER, _brief
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, FailoverKind, Lease, Protection
from lakeward.model.options import Options, Secret
from lakeward.model.tables import TableBucket
from lakeward.observe.logs import setup_logs
from lakeward_testing.lease_server import MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Lines = Callable[[], list[dict[str, Any]]]

BUCKET = TableBucket(7, None, 0)
LEASE = Lease("svc-1-a-1", 1, 60.0, {BUCKET: 9}, MemoryLeaseServer())


class SpareOptions(Options, frozen=True, kw_only=True):
    address: str = "spare:1"
    token: str = "hush-hush"  # noqa: S105 - what must not be shown
    pin: Secret = "hush-1234"


class Spare:
    """Protects for a minute; its errors and its state tell secrets."""

    options = SpareOptions

    def __init__(self, options: SpareOptions) -> None:
        self._options = options

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        return Protection(60.0)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        options = self._options
        answer = "401 of http://me:secret1@spare/?access_key=secret2 with password: secret3"
        message = f"{answer} and {options.token}, {options.pin}"
        raise SourceError(message)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        return None

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        return FailoverAnswer(FailoverAction.KEEP)

    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes:
        return b"secret4"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Give the lines of a log whose level is `info`, as JSON; the process gets its logging back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    setup_logs("json", "info")
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    root.handlers = handlers
    root.setLevel(level)
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)
    structlog.reset_defaults()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> LeaseBackend:
    monkeypatch.setenv("LAKEWARD_TRACE_HOOKS", "1")
    return LeaseBackend("mine", Spare, options=SpareOptions())


def test_a_call_is_logged_with_its_arguments_its_result_and_its_time(traced: LeaseBackend, lines: Lines) -> None:
    traced.acquire(LEASE, {BUCKET: 9})

    before, after = lines()
    assert before["event"] == "lease hook acquire(lease=svc-1-a-1 holding 1, snapshots=1 buckets)"
    assert after["event"].startswith("lease hook acquire -> Protection(until_s=60.0")
    assert 0 <= after["seconds"] < 60
    assert (before["level"], before["logger"]) == ("debug", LOGGER)


def test_an_error_is_logged_without_the_secrets_that_it_tells(traced: LeaseBackend, lines: Lines) -> None:
    with pytest.raises(SourceError):
        traced.release(LEASE, frozenset({BUCKET}))

    text = lines()[-1]["event"]
    assert text.startswith("lease hook release raised SourceError: 401 of http://********@spare/?access_key=********")
    assert "secret" not in text
    assert "hush" not in text


def test_persisted_bytes_are_counted_and_not_shown(traced: LeaseBackend, lines: Lines) -> None:
    traced.serialize_state(LEASE)
    traced.on_failover(LEASE, Failover(FailoverKind.COORDINATOR, 0, state=b"secret5"))

    events = [line["event"] for line in lines()]
    assert events[1] == "lease hook serialize_state -> 7 bytes"
    assert events[2].endswith("failover=coordinator attempt 0, 0 splits back, state 7 bytes)")
    assert events[3] == "lease hook on_failover -> keep"


def test_a_line_has_no_buckets_however_many_there_are(traced: LeaseBackend, lines: Lines) -> None:
    many = {TableBucket(7, None, number): number for number in range(3000)}
    traced.acquire(LEASE, MappingProxyType(many))
    assert lines()[0]["event"].endswith("snapshots=3000 buckets)")
    assert _brief(Protection(1.0, many)) == "Protection(until_s=1.0, 3000 unavailable)"


def test_the_rest_of_the_log_keeps_its_level(traced: LeaseBackend, lines: Lines) -> None:
    structlog.get_logger("lakeward.other").debug("not asked for")
    traced.drop(LEASE)

    assert {line["logger"] for line in lines()} == {LOGGER}


@pytest.mark.parametrize("value", [None, "", "0", "false", "no"])
def test_nothing_is_traced_unasked(monkeypatch: pytest.MonkeyPatch, lines: Lines, value: str | None) -> None:
    monkeypatch.delenv("LAKEWARD_TRACE_HOOKS", raising=False)
    if value is not None:
        monkeypatch.setenv("LAKEWARD_TRACE_HOOKS", value)

    LeaseBackend("mine", Spare, options=SpareOptions()).drop(LEASE)

    assert lines() == []
