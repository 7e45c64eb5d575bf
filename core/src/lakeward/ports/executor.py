"""The port of whatever runs blocking work beside its caller: threads, or virtual time in the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Running(Protocol):
    """Work that was started."""

    def join(self, timeout_s: float) -> bool:
        """Wait for its end, at most so many seconds; return whether it has ended."""
        ...


class Worker(Protocol):
    """Does one piece of work after the other, all on one thread."""

    def submit(self, work: Callable[[], None]) -> None:
        """Queue a piece of work, which must not raise; ignored after `stop`."""
        ...

    def stop(self, timeout_s: float) -> bool:
        """Drop what is queued, and wait at most `timeout_s` seconds for the piece that is under way.

        Return False where that piece still runs: its thread is left behind, and ends with it.
        """
        ...


class Executor(Protocol):
    """Runs blocking work. Nothing that it runs keeps the process from ending."""

    def start(self, work: Callable[[], object], *, name: str) -> Running:
        """Run a piece of work, which must not raise, on a thread of its own; return what to wait for its end with.

        `name` says what it is, in words, for people who look at threads.
        """
        ...

    def worker(self, *, name: str) -> Worker:
        """Make a worker; its thread starts with its first piece of work."""
        ...
