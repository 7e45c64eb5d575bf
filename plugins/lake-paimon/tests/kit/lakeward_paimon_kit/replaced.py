"""Puts something into the place of an attribute for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401 - any attribute
    """Replace an attribute for the length of a `with` block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
