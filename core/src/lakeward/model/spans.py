"""Spans of rounds, as tracing exports them. Their ids follow from the round's, so that log lines need no lookup."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

ROUND = ""
"""The key of a round's own span."""
_TRACE_DIGITS, _SPAN_DIGITS = 32, 16


@dataclass(frozen=True, slots=True)
class RoundSpan:
    """A part of a round, or the whole of it. Times are milliseconds since 1970.

    `key` is unique within the round, `parent` is the key of the span that this one is a part of, None for the round's
    own. `error` is empty where it went well.
    """

    round_name: str
    key: str
    parent: str | None
    name: str
    started_ms: int
    ended_ms: int
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    error: str = ""


def trace_id_of(round_name: str) -> str:
    """Return the id of a round's trace: 32 hexadecimal digits.

    `round_name` is incarnation and name; no other round has the same.
    """
    return _digest(round_name)[:_TRACE_DIGITS]


def span_id_of(round_name: str, key: str) -> str:
    """Return the id of a span: 16 hexadecimal digits."""
    return _digest(f"{round_name} {key}")[:_SPAN_DIGITS]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
