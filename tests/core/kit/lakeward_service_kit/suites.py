"""Run the tests of a conformance suite on a plugin that may be wrong, and collect what they say."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def failures(suite: type, make_fixtures: Callable[[], dict[str, Any]], wanted: str = "") -> dict[str, str]:
    """Run tests of a suite without pytest's runner, each case with fixtures of its own.

    Args:
        suite: the class of tests, with what the plugin declares.
        make_fixtures: makes the fixtures, by name.
        wanted: run only tests whose name begins so; "" for all.

    Returns:
        Name of each test that failed, and the message of its first case that did.
    """
    failed: dict[str, str] = {}
    for name, test in inspect.getmembers(suite, inspect.isfunction):
        if not name.startswith(wanted or "test_"):
            continue
        for case in _cases(test):
            try:
                arguments = make_fixtures() | case
                taken = {key: value for key, value in arguments.items() if key in inspect.signature(test).parameters}
                test(suite(), **taken)
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error is the suite's verdict
                failed.setdefault(name, f"{type(error).__name__}: {error}")
    return failed


def plain_part(said: str) -> str:
    """Return what a suite says in words: its first line, without the values that pytest shows below it."""
    return said.partition("\n")[0]


def _cases(test: Any) -> Iterator[dict[str, object]]:  # noqa: ANN401 - a test function with its marks
    """Yield the arguments of each case of a test, as pytest would."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        case: dict[str, object] = {}
        for mark, value in zip(marks, values, strict=True):
            names = [mark.args[0]] if isinstance(mark.args[0], str) else list(mark.args[0])
            case |= dict(zip(names, [value] if len(names) == 1 else value, strict=True))
        yield case
