from __future__ import annotations

import pytest

from lakeward.observe.format import count, rate, seconds, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_has_the_unit_that_fits(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_a_number_comes_with_its_noun() -> None:
    assert [count(1, "row"), count(0, "row"), count(12345, "row"), count(None, "row"), count(3)] == [
        "1 row",
        "0 rows",
        "12,345 rows",
        "? rows",
        "3",
    ]


def test_a_slow_rate_keeps_a_tenth() -> None:
    assert [rate(0.0), rate(0.38), rate(9.9), rate(6858.3)] == ["0", "0.4", "9.9", "6,858"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (617, "617 B"), (1024, "1.0 KiB"), (20 * 1024 * 1024, "20 MiB"), (3 * 2**50, "3,072 TiB")],
)
def test_bytes_are_written_in_their_unit(value: int, text: str) -> None:
    assert size(value) == text
