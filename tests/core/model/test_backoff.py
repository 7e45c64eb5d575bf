from __future__ import annotations

from lakeward.model.backoff import backoff_s


def test_a_pause_doubles_up_to_the_longest() -> None:
    assert [backoff_s(failures, 1.0, 10.0) for failures in (1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 10, 10]
