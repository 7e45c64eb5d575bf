from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from lakeward.repeated_failure import RepeatedFailure

_log = structlog.get_logger("test")


def test_a_failure_that_comes_again_and_again_is_logged_once_and_counted_when_it_is_over() -> None:
    with capture_logs() as lines:
        trouble = RepeatedFailure(_log.error, "not written", "written again")
        trouble.succeeded()
        for _ in range(314):
            trouble.failed("no space left on device", table="shop.orders")
        trouble.failed("read-only file system")
        trouble.succeeded()
        trouble.succeeded()
        trouble.failed("read-only file system")
    assert [(line["event"], line.get("reason") or line["failures"]) for line in lines] == [
        ("not written", "no space left on device"),
        ("not written", "read-only file system"),
        ("written again", 315),
        ("not written", "read-only file system"),
    ]
