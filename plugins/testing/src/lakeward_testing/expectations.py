"""Messages of the conformance suites: where it was, what was expected, what was found."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

Raised = TypeVar("Raised", bound=BaseException)

_LONGEST = 400


def mismatch(where: str, expected: object, found: object) -> str:
    """Return the message of a check that failed, in one line; long values are cut in the middle.

    `where` is the hook or method, and what the check looks at.
    """
    return f"{where}: expected {_shown(expected)}, found {_shown(found)}"


@contextmanager
def expect_error(kind: type[Raised], where: str, match: str = "") -> Iterator[pytest.ExceptionInfo[Raised]]:
    """Fail unless the block raises this error, as `pytest.raises` does, with a message that says where it was.

    `where` is the hook or method, and the circumstances in which it has to raise; `match` is a regular expression that
    the error's text has to contain. The error is yielded, once the block has been left.

    Yields:
        The error, once the block has been left.
    """
    __tracebackhide__ = True
    try:
        with pytest.raises(kind) as caught:
            yield caught
    except pytest.fail.Exception as nothing:
        message = f"{where}: expected {kind.__name__}, found no error ({nothing})"
        raise AssertionError(message) from None
    except Exception as other:
        message = f"{where}: expected {kind.__name__}, found {type(other).__name__}: {other}"
        raise AssertionError(message) from other
    said = str(caught.value)
    if not re.search(match, said):
        message = f"{where}: expected {kind.__name__} with a text that contains {match!r}, found {said!r}"
        raise AssertionError(message) from caught.value


@contextmanager
def expect_no_error(where: str) -> Iterator[None]:
    """Fail where the block raises, with a message that says where it was.

    `where` is the hook or method, and the circumstances in which it must not raise.
    """
    __tracebackhide__ = True
    try:
        yield
    except Exception as error:
        message = f"{where}: expected no error, found {type(error).__name__}: {error}"
        raise AssertionError(message) from error


def _shown(value: object) -> str:
    text = repr(value)
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
