"""Suggests the name that was meant, in messages about a name that nothing has."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name, None where none is near. Arguments as `did_you_mean`."""
    folded = {one.casefold(): one for one in sorted(known, reverse=True)}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest known name, empty where none is near."""
    near = nearest_name(name, known)
    return f"Did you mean {near!r}?" if near else ""
