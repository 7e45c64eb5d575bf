"""Sizes in the configuration: a number of bytes, or a text such as `"64 MiB"`."""

from __future__ import annotations

import re

EXPECTED = "a number of bytes"
AS_TEXT = 'or a text such as "512 KiB", "64 MiB", "2 GiB"'
_TEXT = re.compile(r"(\d+)\s*([KMG]i?B|B)?", re.ASCII | re.IGNORECASE)
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def parse_size(text: str) -> int | None:
    """Return the bytes of a size, None where the text is none: a number, with or without a unit.

    Units are B (the default), KiB, MiB, GiB (powers of 1024), kB, MB, GB (of 1000).
    """
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _BYTES[(match[2] or "B").lower()]
