"""Durations as Fluss writes them in a table's properties: `3 min`, `500ms`, `PT30S` (fluss.md, "Tables and types")."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakeward.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG_TTL = "table.log.ttl"
_LOG_TTL_S = 7 * 86400.0
"""Its default (ConfigOptions.TABLE_LOG_TTL)."""
_UNITS_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_NAMES = {
    "nano": "ns",
    "nanosecond": "ns",
    "micro": "us",
    "microsecond": "us",
    "\N{MICRO SIGN}s": "us",
    "milli": "ms",
    "millisecond": "ms",
    "sec": "s",
    "second": "s",
    "m": "min",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "": "ms",
}
_PLAIN = re.compile(r"\s*(\d+)\s*(\D*?)\s*")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_ISO_S = (86400.0, 3600.0, 60.0, 1.0)


def seconds(key: str, text: str) -> float:
    """Read a duration, in seconds >= 0: a number with a unit (none: milliseconds), or ISO 8601.

    `key` is the property, for the error.

    Raises:
        SourceError: not a duration.
    """
    if found := _PLAIN.fullmatch(text):
        unit = found[2].lower()
        unit = unit if unit in _UNITS_S or unit in _NAMES else unit.removesuffix("s")
        unit = _NAMES.get(unit, unit)
        if unit in _UNITS_S:
            return int(found[1]) * _UNITS_S[unit]
    if (iso := _ISO.fullmatch(text.strip())) and any(iso.groups()):
        return sum(float(part) * unit_s for part, unit_s in zip(iso.groups(), _ISO_S, strict=True) if part)
    message = f"table property {key}: expected a duration such as '3 min', found {text!r}"
    raise SourceError(message)


def log_ttl_s(properties: Mapping[str, str]) -> float | None:
    """Return for how many seconds the log of a table that no lake has is kept; None: for ever, or nobody can tell."""
    try:
        return seconds(_LOG_TTL, properties[_LOG_TTL]) if _LOG_TTL in properties else _LOG_TTL_S
    except SourceError:
        return None
