"""The thread that reads a split: what becomes of one that hangs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read, SplitReading
from lakeward.threads import ThreadExecutor
from lakeward_testing.clock import FakeClock
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.splits import SnapshotSplit
    from lakeward.ports import SourceBatch

SPLIT = LogSplit("log-0", TableBucket(1, None, 0), (), 0, 10)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitReading, "stop_s", 0.05)


class Hanging:
    """A source that hangs in the first read until it is let go, and fails or ends then."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        del split
        self.begun.set()
        self.let_go.wait(LIMIT_S)
        if self.error is not None:
            raise self.error
        yield from ()

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        raise NotImplementedError

    def close(self) -> None: ...


def stop_one_that_hangs(source: Hanging, mailbox: Mailbox) -> None:
    reading = SplitReading(SPLIT, source, FakeClock(), ThreadExecutor(), mailbox, 0)
    assert source.begun.wait(LIMIT_S)
    reading.stop()


def join_it() -> None:
    for thread in threading.enumerate():
        if thread.name == f"read-{SPLIT.split_id}":
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def test_a_reader_that_hangs_is_left_behind_after_a_while_with_a_warning() -> None:
    source = Hanging()
    with capture_logs() as logs:
        stop_one_that_hangs(source, Mailbox())
    assert [(one["log_level"], one["split"]) for one in logs] == [("warning", SPLIT.split_id)]
    source.let_go.set()
    join_it()


@pytest.mark.parametrize("error", [None, OSError("the network is back")])
def test_nothing_that_a_reader_does_after_it_was_left_behind_reaches_the_subtask(error: Exception | None) -> None:
    source, mailbox = Hanging(), Mailbox()
    source.error = error
    with capture_logs() as logs:
        stop_one_that_hangs(source, mailbox)
        source.let_go.set()
        join_it()
    assert mailbox.get(0) is None
    assert [one.get("reason") for one in logs[1:]] == ([] if error is None else [str(error)])


def test_a_reader_that_is_not_stopped_tells_its_end() -> None:
    source, mailbox = Hanging(), Mailbox()
    source.let_go.set()
    SplitReading(SPLIT, source, FakeClock(), ThreadExecutor(), mailbox, 0)
    assert mailbox.get(60) == Read(SPLIT.split_id, None, None, 0.0)
