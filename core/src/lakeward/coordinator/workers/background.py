"""The event loop on which the service's collaborators run their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine


class Background(Protocol):
    """The service's event loop, as its collaborators see it."""

    def spawn(self, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        """Run a coroutine as a task; an unexpected error of it ends the service.

        Its log lines have none of the caller's fields: a round that ends may start one of another table.
        """
        ...

    def wake(self) -> None:
        """Make the loop check immediately whether anything is due."""
        ...

    def call_soon_threadsafe(self, work: Callable[[], None]) -> None:
        """Run a callable on the loop, from any thread; does nothing if the loop is closed."""
        ...
