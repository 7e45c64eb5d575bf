"""Durations in the configuration and on the command line: a number of seconds, or a text such as `"10m"`."""

from __future__ import annotations

import re

EXPECTED = "a number of seconds"
AS_TEXT = 'or a text such as "90s", "10m", "2h"'
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration, None where the text is none: a number, with or without a unit.

    Units are ms, s (the default), m or min, h, d.
    """
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _SECONDS[match[2] or "s"]
