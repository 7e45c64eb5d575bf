"""The page's connections: one that asks nothing, or takes no answer, is ended within seconds and keeps nobody out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

CONNECTIONS = 64
"""At once; a further one ends the oldest of those that ask nothing, or the oldest of all."""


class PageConnection(H11Protocol):
    """One connection of a client."""

    request_s: ClassVar[float] = 5.0
    """Seconds for a whole request, from the start of the connection or from the last answer on."""
    answer_s: ClassVar[float] = 30.0
    """Seconds for a whole answer."""

    _timer: asyncio.TimerHandle | None = None
    _answered: RequestResponseCycle | None = None
    """The answer that has had its time already."""
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look_after(self.request_s)
        others = [cast("PageConnection", one) for one in self.connections if one is not self]
        if len(others) >= CONNECTIONS:
            min(others, key=lambda one: (one.answering, one._since)).end()  # noqa: SLF001 - of its own class

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """See `H11Protocol`: the client may ask again."""
        self._look_after(self.request_s)
        super().on_response_complete()

    @property
    def answering(self) -> bool:
        """Whether a request has come whose answer is not out yet."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def end(self) -> None:
        """Close it at once, whatever is on its way."""
        self.connections.discard(self)
        self.transport.abort()

    def _look_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        if self.answering and self.cycle is not self._answered:
            self._answered = self.cycle
            self._look_after(self.answer_s)
        else:
            self.end()
