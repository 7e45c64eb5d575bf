"""What happened, for people: one line each, with the time and who."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from lakeward_simulator.scheduler import Scheduler

_SILENT = 50


class Story:
    """Lines, kept only where somebody will read them."""

    def __init__(self, scheduler: Scheduler, *, on: bool) -> None:
        """Start empty.

        Args:
            scheduler: for the time.
            on: keep lines at all.
        """
        self.on = on
        self.lines: list[str] = []
        self._scheduler = scheduler

    def note(self, who: str, what: str) -> None:
        """Write a line."""
        if self.on:
            self.lines.append(f"{self._scheduler.now:9.3f}  {who:<14} {what}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the product's own log in, or keep it silent."""
        before = structlog.get_config()
        level = 0 if self.on else _SILENT
        structlog.configure(
            processors=[self._take],
            logger_factory=_no_logger,
            wrapper_class=structlog.make_filtering_bound_logger(level),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)

    def _take(self, logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        del logger
        what = event.pop("event", "")
        error = event.pop("exc_info", None)
        rest = " ".join(f"{key}={_text(value)}" for key, value in event.items())
        self.note("log", f"{method}: {what} {rest}{f' {error!r}' if error else ''}".rstrip())
        raise structlog.DropEvent


def _no_logger(*_: object) -> None:
    """Make nothing: `Story` takes each line before a logger would."""


def _text(value: object) -> str:
    """Return a value as text in which sets have one order: a seed's story is the same in every process."""
    return value if isinstance(value, str) else _repr(value)


def _repr(value: object) -> str:
    match value:
        case set() | frozenset():
            return f"{type(value).__name__}({{{', '.join(sorted(map(_repr, value)))}}})"
        case Mapping():
            return f"{{{', '.join(f'{_repr(key)}: {_repr(one)}' for key, one in value.items())}}}"
        case tuple() if not hasattr(value, "_fields"):
            return f"({', '.join(map(_repr, value))})"
        case list():
            return f"[{', '.join(map(_repr, value))}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [field.name for field in dataclasses.fields(value) if field.repr]
        return f"{type(value).__name__}({', '.join(f'{name}={_repr(getattr(value, name))}' for name in shown)})"
    return repr(value)
