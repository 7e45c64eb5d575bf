"""The rounds that have ended: a line of JSON for each, in `<service>/rounds.jsonl` below the state root.

A service appends to the file in a directory; in an object store, where nothing can be appended, it writes it anew.
Of each table the newest rounds are kept, and others spread over a day. A line that cannot be read, such as one that a
crash cut off, is skipped.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

import msgspec
import structlog

from lakeward.errors import LakewardError, StorageError
from lakeward.local_files import is_local, make_private, open_private, refusal
from lakeward.model.status import RoundReport
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.storage.small_files import SmallFiles

HISTORY_FILE = "rounds.jsonl"
KEPT, NEWEST = 100, 50
"""So many rounds of each table are kept, and so many of them are the newest ones."""
_DAY_MS = 86_400_000
_SLACK = 2
"""The file is written anew once it has so many times the lines that are kept."""
_log = structlog.get_logger("lakeward.history")


class _Line(msgspec.Struct, frozen=True):
    version: Literal[2]
    round: RoundReport


class _FirstRound(msgspec.Struct, frozen=True):
    """What version 1 has under another name, or in another form."""

    round: str
    started_ms: int
    ended_ms: int
    rows: int
    aborted: int
    exchanged_bytes: int | None


class _FirstLine(msgspec.Struct, frozen=True):
    version: Literal[1]
    round: _FirstRound


_LINES, _FIRST_LINES = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_FirstLine)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class RoundHistory:
    """The ended rounds of one service. Its methods block on disk or store, but for `of`; not thread-safe besides."""

    def __init__(self, files: SmallFiles, service: str) -> None:
        self._files = files
        self._name = f"{service}/{HISTORY_FILE}"
        self._lines = -1
        """In the file; below 0 before it was read."""
        self._kept: dict[int, tuple[RoundReport, ...]] = {}
        """By table id, the oldest first. Each value is replaced as a whole, so other threads may read it."""

    def read(self) -> list[RoundReport]:
        """Return the rounds that are kept, the newest first.

        Raises:
            StorageError: the file cannot be read.
        """
        lines = (self._files.read(self._name) or b"").split(b"\n")
        found = [record for line in lines if (record := _report(line)) is not None]
        kept: dict[int, tuple[RoundReport, ...]] = {}
        for record in found:
            kept[record.table_id] = _with_newest(kept.get(record.table_id, ()), record)
        return sorted((one for each in kept.values() for one in each), key=_ended_ms, reverse=True)

    def complete_ms(self) -> dict[int, int]:
        """Return by table id the moment up to which the lake is known to be complete; nothing if it cannot be read."""
        try:
            records = self.read()
        except StorageError as error:
            _log.warning("the rounds that ended cannot be read", reason=str(error))
            return {}
        self._keep(records)
        found: dict[int, int] = {}
        for record in records:
            if record.complete_ms is not None:
                found[record.table_id] = max(record.complete_ms, found.get(record.table_id, record.complete_ms))
        return found

    def add(self, record: RoundReport) -> None:
        """Append a round.

        Raises:
            StorageError: the disk or the store refused.
        """
        if self._lines < 0:
            self._keep(self.read())
        self._add_newest(record)
        held = sum(map(len, self._kept.values()))
        if is_local(self._files.root) and self._lines < held * _SLACK + KEPT:
            self._append(_encoded(record))
            self._lines += 1
        else:
            ordered = sorted((one for each in self._kept.values() for one in each), key=_ended_ms)
            self._files.write(self._name, b"".join(map(_encoded, ordered)))
            self._lines = held

    def of(self, table_id: int) -> tuple[RoundReport, ...]:
        """Return the rounds of a table that are kept, the oldest first; none before the file was read. Thread-safe."""
        return self._kept.get(table_id, ())

    def _keep(self, earlier: Sequence[RoundReport]) -> None:
        """Take what the file has, the newest first."""
        self._kept = {}
        for one in reversed(earlier):
            self._add_newest(one)
        self._lines = len(earlier)

    def _add_newest(self, record: RoundReport) -> None:
        self._kept[record.table_id] = _with_newest(self._kept.get(record.table_id, ()), record)

    def _append(self, line: bytes) -> None:
        path = Path(self._files.path(self._name))
        try:
            make_private(path.parent)
            with open_private(path, "ab+") as file:
                # A line that a crash cut off must not take the next one with it.
                end = file.seek(0, os.SEEK_END)
                torn = bool(end) and os.pread(file.fileno(), 1, end - 1) != b"\n"
                file.write(b"\n" + line if torn else line)
        except OSError as error:
            message = f"{path}: cannot be written: {refusal(error, path)}"
            raise StorageError(message) from error


class HistoryWriter:
    """Writes rounds on a thread of its own: a disk or store that is slow keeps nobody from tiering."""

    def __init__(self, history: RoundHistory) -> None:
        self._history = history
        self._queue: SimpleQueue[RoundReport | None] = SimpleQueue()
        self._trouble = RepeatedFailure(
            _log.warning, "a round that ended could not be recorded", "rounds that end are recorded again"
        )
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def add(self, record: RoundReport) -> None:
        """Take a round that has ended; returns at once."""
        self._queue.put(record)

    def close(self) -> None:
        """Write what was taken, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            try:
                self._history.add(record)
            except LakewardError as error:
                self._trouble.failed(str(error), round=record.round_name)
            else:
                self._trouble.succeeded()


def find_rounds(records: Iterable[RoundReport], name: str) -> list[RoundReport]:
    """Return those of all records whose name is this: the full one, or its last part `TABLE_ID-EPOCH-NUMBER`."""
    return [one for one in records if name in {one.round_name, one.short_name}]


def _with_newest(kept: tuple[RoundReport, ...], record: RoundReport) -> tuple[RoundReport, ...]:
    """Return the rounds of a table that are kept once another one has ended, the oldest first.

    A round that goes is a day older than the newest one, or else, of those that are not among the newest, the one whose
    neighbours are nearest to each other in time: what is left shows the day. One that failed goes last.
    """
    rounds = (*kept, record)
    if len(rounds) <= KEPT:
        return rounds
    times = [_ended_ms(one) for one in rounds]
    gone = 0
    if times[0] >= times[-1] - _DAY_MS:
        gone = min(
            range(1, KEPT - NEWEST + 1),
            key=lambda place: (rounds[place].outcome == "failed", times[place + 1] - times[place - 1]),
        )
    return (*rounds[:gone], *rounds[gone + 1 :])


def _ended_ms(report: RoundReport) -> int:
    return report.ended_ms or report.started_ms


def _encoded(report: RoundReport) -> bytes:
    return msgspec.json.encode(_Line(2, report)) + b"\n"


def _report(line: bytes) -> RoundReport | None:
    """Return a line's round; None for one that is cut off, damaged, or of a later version."""
    for decode in (_newest_version, _first_version):
        try:
            return decode(line)
        except msgspec.MsgspecError:
            continue
    return None


def _newest_version(line: bytes) -> RoundReport:
    return _LINES.decode(line).round


def _first_version(line: bytes) -> RoundReport:
    old, same = _FIRST_LINES.decode(line).round, msgspec.json.decode(line)["round"]
    changed = {
        "round_name": old.round,
        "rows_per_s": old.rows * 1000 / max(old.ended_ms - old.started_ms, 1),
        "checkpoint": {"aborted": old.aborted} if old.aborted else None,
        "exchange": None if old.exchanged_bytes is None else {"sent_bytes": old.exchanged_bytes},
    }
    return msgspec.convert({**same, **changed}, RoundReport)
