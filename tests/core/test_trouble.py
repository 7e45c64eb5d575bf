from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from lakeward.trouble import Trouble

_log = structlog.get_logger("test")


def test_a_failure_that_comes_again_and_again_is_logged_once_and_counted_when_it_is_over() -> None:
    with capture_logs() as lines:
        trouble = Trouble(_log.error, "not written", "written again")
        trouble.over()
        for _ in range(314):
            trouble.found("no space left on device", table="shop.orders")
        trouble.found("read-only file system")
        trouble.over()
        trouble.over()
        trouble.found("read-only file system")
    assert [(line["event"], line.get("reason") or line["failures"]) for line in lines] == [
        ("not written", "no space left on device"),
        ("not written", "read-only file system"),
        ("written again", 315),
        ("not written", "read-only file system"),
    ]
