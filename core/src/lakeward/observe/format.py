"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.status import LakeAway

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400
_KIB = 1024


def catalog_away(away: LakeAway, now_ms: int) -> str:
    """Write `catalog does not answer for 40 s, 31 tables wait: database is locked`; `now_ms` is ms since 1970."""
    verb = "waits" if away.tables == 1 else "wait"
    lasting = seconds(max(0.0, (now_ms - away.since_ms) / 1000))
    return f"catalog does not answer for {lasting}, {count(away.tables, 'table')} {verb}: {away.reason}"


def clock_time(wall_ms: int) -> str:
    """Write a moment as local time of day: `12:03:07`."""
    return _local(wall_ms).strftime("%H:%M:%S")


def date_time(wall_ms: int) -> str:
    """Write a moment as local date and time: `2026-11-21 12:03:07`."""
    return _local(wall_ms).strftime("%Y-%m-%d %H:%M:%S")


def seconds(value: float | None) -> str:
    """Write a duration: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`; unknown is `?`."""
    if value is None:
        return "?"
    if value < 10:  # noqa: PLR2004 - below ten seconds tenths matter
        return f"{value:.1f} s"
    rounded = round(value)
    if rounded < _MINUTE_S:
        return f"{rounded} s"
    if rounded < _HOUR_S:
        return f"{rounded // _MINUTE_S} min {rounded % _MINUTE_S} s"
    if rounded < _DAY_S:
        return f"{rounded // _HOUR_S} h {rounded % _HOUR_S // _MINUTE_S} min"
    return f"{rounded // _DAY_S} d {rounded % _DAY_S // _HOUR_S} h"


def ago(wall_ms: int | None, now_ms: int) -> str:
    """Write how long ago a moment was: `12 s ago`; unknown is empty."""
    return "" if wall_ms is None else f"{seconds(max(0.0, (now_ms - wall_ms) / 1000))} ago"


def promise(missed_by_s: float | None) -> str:
    """Write whether a promised freshness was kept: `kept`, `missed by 12 s`; unknown is empty."""
    if missed_by_s is None:
        return ""
    return f"missed by {seconds(missed_by_s)}" if missed_by_s else "kept"


def count(value: float | None, one: str = "", many: str = "") -> str:
    """Write a number with its noun: `1 row`, `12,345 rows`; unknown is `?`."""
    number = "?" if value is None else f"{value:,.0f}"
    noun = one if value == 1 else (many or (one and f"{one}s"))
    return f"{number} {noun}".rstrip()


def size(value: int) -> str:
    """Write a number of bytes: `617 B`, `1.5 KiB`, `20 MiB`."""
    amount, units = float(value), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if amount < _KIB:
            break
        amount, unit = amount / _KIB, larger
    digits = 1 if unit != "B" and amount < 10 else 0  # noqa: PLR2004 - as for seconds
    return f"{amount:,.{digits}f} {unit}"


def rate(value: float) -> str:
    """Write rows per second: `6,858`, and below ten with a tenth: `0.4`."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"  # noqa: PLR2004 - as for seconds


def _local(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1000, tz=UTC).astimezone()
