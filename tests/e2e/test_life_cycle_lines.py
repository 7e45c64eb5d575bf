"""What `run` says of itself where nobody looks at a terminal: its output is a pipe or a file."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from lakeward_e2e.tables import LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
_TIME = re.compile(r"^\d\d:\d\d:\d\d ")
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT")
_WAITING_FOR_SPARK = "waiting for Spark: 0 of "
_PAGE = re.compile(r"service tier: Spark \d+\.\d+\.\d+ has started, its page is (http://\S+)")


def test_start_spark_page_waiting_round_stop_and_end_are_lines_of_a_pipe(world: World) -> None:
    service = world.start(world.configure(), "--progress", "--set", "spark.ui=true")
    wait_until(lambda: "waiting for a table that is due" in service.words(), "the service to wait")
    lines = [_TIME.sub("", line) for line in service.words().splitlines()]
    page = _PAGE.fullmatch(lines[1])
    assert page is not None, lines
    with urlopen(page[1]) as answer:  # noqa: S310 - the address that the service printed
        assert answer.status == 200
    log = LogTable(world.store, "events")
    log.load(500)
    wait_until(lambda: "committed 500 rows" in service.words(), "the round's line")
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    lines = [
        _TIME.sub("", line)
        for line in service.words().splitlines()
        if not _LOG_LINE.match(line) and _WAITING_FOR_SPARK not in line
    ]
    assert lines[:1] == ["service tier: starting, Spark master local[2]"]
    assert lines[2] == "service tier: serving, waiting for a table that is due"
    assert lines[3].startswith("shop.events committed 500 rows in ")
    assert lines[4:] == [
        "service tier: SIGTERM, stopping: rounds finish early and commit within 20 s; a second signal stops at once",
        "service tier: stopped; 1 round committed 500 rows",
    ]
