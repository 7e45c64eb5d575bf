"""A disk that refuses: files may not grow beyond a size, or one change of many is refused by the operating system."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

_CHANGES: tuple[tuple[Any, str], ...] = (
    (os, "link"),
    (os, "rename"),
    (os, "fsync"),
    (Path, "write_bytes"),
    (Path, "mkdir"),
)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to make any file of this process larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Refusal:
    """The system refuses one call that changes the disk, the first being number 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, why: int = errno.ENOSPC) -> None:
        """Count from now on."""
        self.changes = 0
        self._at = at
        self._why = why
        for owner, name in _CHANGES:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **told: Any) -> Any:  # noqa: ANN401 - any call
            self.changes += 1
            if self.changes - 1 == self._at:
                raise OSError(self._why, os.strerror(self._why))
            return change(*arguments, **told)

        return counted
