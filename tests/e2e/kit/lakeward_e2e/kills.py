"""How many kills a run makes: the gate a choice of them, `tox run -e kills-all` each one that the tests know."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
ALL = os.environ.get("LAKEWARD_KILLS") == "all"
NOT_IN_GATE = pytest.mark.skipif(not ALL, reason="too long for the gate: `tox run -e kills-all,kills-all-cluster`")
"""For tests that take minutes, and of whose kind another one is in the gate."""


def chosen(all_cases: Iterable[T], some: Iterable[T]) -> list[T]:
    """Return all cases, or in the gate some of them.

    Raises:
        ValueError: one of the some is none of them.
    """
    cases, few = list(all_cases), list(some)
    if unknown := [case for case in few if case not in cases]:
        message = f"not among the cases: {unknown}"
        raise ValueError(message)
    return cases if ALL else few
