"""Tells a program or a web hook of each change of a table's status (`observe.on_status`).

What is told goes through a queue to a thread of its own: whoever is told may be slow, or away, and no round waits.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import structlog

from lakeward.errors import ConfigError
from lakeward.observe.condition import NEW, OK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.status import ServiceReport, TableReport

URLS = ("http://", "https://")
QUEUED = 1000
"""Changes that wait at the most; then the oldest are dropped."""
CLOSE_S = 5.0
"""Seconds in which a service that stops still tells what waits."""
_ANSWER_S = 10.0
_PAUSES_S = (1.0, 5.0)
"""Before the second try and the third, which is the last one."""
_AGAIN = frozenset({408, 425, 429})
"""Answers of 4xx after which the same may be sent again."""
_CLIENT, _SERVER = 400, 500
_KEY = "observe.on_status"
_log = structlog.get_logger("lakeward.status_changes")


class StatusChange(msgspec.Struct, frozen=True):
    """What is told, as JSON. Times are milliseconds since 1970; `before` is empty for a table that was not known."""

    service: str
    incarnation: str
    table: str
    status: str
    before: str
    since_ms: int | None
    at_ms: int
    message: str
    action: str
    code: str


class NotSentError(Exception):
    """A try failed; `again` says whether another one may succeed."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        """Say why."""
        super().__init__(message)
        self.again = again


class StatusChanges:
    """Compares each report with the one before."""

    def __init__(self, last: ServiceReport | None) -> None:
        """Start from the report of the last start, None where there is none: a restart changes no status."""
        tables = () if last is None else last.tables
        self._known = {table.path: table.condition.status for table in tables if table.condition is not None}

    def of(self, report: ServiceReport) -> Iterator[StatusChange]:
        """Yield what has changed since the last report; the tables of `report` have their conditions.

        A service that has stopped changes nothing: its tables wait for the next start.
        """
        if report.state == "stopped":
            return
        for table in report.tables:
            condition, before = table.condition, self._known.get(table.path, "")
            if condition is None or condition.status == before:
                continue
            self._known[table.path] = condition.status
            if before or condition.status not in {OK, NEW}:
                yield _change(report, table, before)


def _change(report: ServiceReport, table: TableReport, before: str) -> StatusChange:
    shown = table.shown
    return StatusChange(
        report.service,
        report.incarnation,
        table.path,
        shown.status,
        before,
        shown.since_ms,
        report.written_ms,
        shown.message,
        shown.action,
        table.code,
    )


class StatusSender:
    """Tells changes one after the other, on a thread of its own, each by up to three tries."""

    def __init__(self, target: str, pauses_s: Sequence[float] = _PAUSES_S) -> None:
        """Begin to tell a target, see `check_target`; `pauses_s` are seconds before each further try."""
        self._send = _post if target.startswith(URLS) else _run
        self._target, self._pauses_s = target, pauses_s
        self._waiting: deque[StatusChange] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="status changes", daemon=True)
        self._thread.start()

    def add(self, change: StatusChange) -> None:
        """Take a change; returns at once."""
        with self._changed:
            if len(self._waiting) == QUEUED:
                dropped = self._waiting.popleft()
                _log.warning("a change of status is told to nobody: too many wait", table=dropped.table, key=_KEY)
            self._waiting.append(change)
            self._changed.notify()

    def close(self) -> None:
        """Tell what waits, for `CLOSE_S` at the most and without further tries, and end the thread."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(CLOSE_S)
        if self._waiting:
            _log.warning(
                "changes of status are told to nobody: the service stops", changes=len(self._waiting), key=_KEY
            )

    def _work(self) -> None:
        while (change := self._next()) is not None:
            self._try(change)

    def _next(self) -> StatusChange | None:
        with self._changed:
            while not self._waiting:
                if self._closing.is_set():
                    return None
                self._changed.wait()
            return self._waiting.popleft()

    def _try(self, change: StatusChange) -> None:
        data = msgspec.json.encode(change)
        for pause_s in (*self._pauses_s, None):
            try:
                self._send(self._target, data)
            except NotSentError as error:
                if pause_s is None or not error.again or self._closing.wait(pause_s):
                    facts = {"table": change.table, "status": change.status, "reason": str(error)}
                    _log.warning("a change of status was told to nobody", key=_KEY, **facts)
                    return
            else:
                return


def check_target(target: str) -> str:
    """Return in words what is told of changes.

    Raises:
        ConfigError: it is neither a URL nor a program that is there.
    """
    if target.startswith(URLS):
        return "each change of a table's status is posted to a web hook"
    expected = "the URL of a web hook (http:// or https://), or a program that can be run, with its arguments"
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise ConfigError(_KEY, expected, f"{target!r}: {error}") from error
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise ConfigError(_KEY, expected, f"{target!r}: there is no such program")
    return f"each change of a table's status is given to {program}"


def _run(target: str, data: bytes) -> None:
    """Run the program without a shell; the change is its standard input."""
    try:
        done = subprocess.run(shlex.split(target), input=data, capture_output=True, timeout=_ANSWER_S, check=False)
    except subprocess.TimeoutExpired as late:
        message = f"the program has not ended within {_ANSWER_S:g} s"
        raise NotSentError(message) from late
    except OSError as error:
        message = f"the program cannot be run: {error.strerror}"
        raise NotSentError(message) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        message = f"the program ended with exit code {done.returncode}{f': {said[-1][:200]}' if said else ''}"
        raise NotSentError(message)


def _post(target: str, data: bytes) -> None:
    """Send the change to the web hook."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(target, data, headers)  # noqa: S310 - http or https, see `check_target`
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S):  # noqa: S310 - as above
            return
    except urllib.error.HTTPError as refused:
        refused.close()
        message = f"the web hook answered {refused.code}"
        raise NotSentError(message, again=not _CLIENT <= refused.code < _SERVER or refused.code in _AGAIN) from refused
    except OSError as away:
        reason = away.reason if isinstance(away, urllib.error.URLError) else away
        message = f"the web hook does not answer: {reason}"
        raise NotSentError(message) from away
