"""An event loop in virtual time: the real service runs on it, without selector, threads or waiting.

`asyncio`'s tasks, locks and timeouts need no more of a loop than this. Blocking calls (`run_in_executor`) are done at a
moment of their own, in a nested run of the world where they are slow, and answer a little later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lakeward_simulator.scheduler import Killed, Process, Scheduler

if TYPE_CHECKING:
    from collections.abc import Coroutine

Callback = "Callable[..., object]"


class SimHandle(Struct, eq=False):
    """What `call_soon` and `call_at` return: what is to be called, and in which context, as a task has its own."""

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    at: float
    context: Context | None = None

    def run(self) -> None:
        """Call it, unless it was cancelled."""
        if self.callback is None:
            return
        if self.context is None:
            self.callback(*self.args)
        else:
            self.context.run(self.callback, *self.args)

    def cancel(self) -> None:
        """Do not call it."""
        self.callback = None

    def cancelled(self) -> bool:
        """Say whether it was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """Return its time."""
        return self.at


class SimLoop(Process, asyncio.AbstractEventLoop):
    """The loop of one process."""

    def __init__(self, scheduler: Scheduler, name: str, enter: Callable[[Process | None], Process | None]) -> None:
        """Start with nothing to do.

        Args:
            scheduler: the world's.
            name: of the process.
            enter: says who acts from now on, returns who did before.
        """
        super().__init__(scheduler, name)
        self._enter = enter
        self._ready: deque[SimHandle] = deque()
        self._armed = False
        self._working = 0
        self._coroutines: list[Coroutine[Any, Any, Any]] = []
        """Kept, so that nothing of a dead process is unwound before the run is over."""
        self.look: Callable[[], None] = lambda: None
        """Called whenever the loop has come to rest."""
        self.errors: list[str] = []

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> SimHandle:  # type: ignore[override]  # noqa: ANN401 - asyncio's own
        """See asyncio."""
        handle = SimHandle(callback, args, self.scheduler.now, context)
        self._ready.append(handle)
        if not self._armed:
            self._armed = True
            self.scheduler.at(0.0, self._pump, who=self)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - asyncio's own
        context: Context | None = None,
    ) -> SimHandle:
        """See asyncio; from a blocking call it arrives a little later."""
        if not self.alive:
            message = "the loop is closed"
            raise RuntimeError(message)
        if self._working:
            handle = SimHandle(callback, args, self.scheduler.now, context)
            self.after(self.random.random() * 0.1, self._late, handle)
            return handle
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - asyncio's own
        context: Context | None = None,
    ) -> SimHandle:
        """See asyncio."""
        return self.call_at(self.scheduler.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - asyncio's own
        context: Context | None = None,
    ) -> SimHandle:
        """See asyncio."""
        handle = SimHandle(callback, args, when, context)
        self.scheduler.at(when, self._late, handle, who=self)
        return handle

    def time(self) -> float:
        """See asyncio."""
        return self.scheduler.now

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # noqa: ANN401 - asyncio's own
        """See asyncio."""
        if not self.alive:  # something of a dead process is unwound after all
            coro.close()
            return self.create_future()  # type: ignore[return-value] # nobody will look at it
        self._coroutines.append(coro)
        return asyncio.Task(coro, loop=self, **kwargs)

    def dispose(self) -> None:
        """Unwind what is left of a dead process, here and not whenever garbage is looked for."""
        for coro in self._coroutines:
            with suppress(RuntimeError):
                coro.close()

    def get_debug(self) -> bool:
        """See asyncio."""
        return False

    def is_running(self) -> bool:
        """See asyncio."""
        return True

    def is_closed(self) -> bool:
        """See asyncio."""
        return not self.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nobody retrieved: the run is a failure."""
        if self.alive:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def arrive(self, callback: Callable[..., object], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Do what has come from outside, as the process: at once, unless the loop is at work."""
        self._late(SimHandle(callback, args, self.scheduler.now))

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,
        func: Callable[..., object],
        *args: Any,  # noqa: ANN401 - asyncio's own
    ) -> asyncio.Future[Any]:
        """See asyncio; the future stays pending: the call itself tells whoever waits for it."""
        del executor
        self.after(self.random.random() * 0.1, self._work, partial(func, *args))
        return self.create_future()

    def _work(self, work: Callable[[], object]) -> None:
        before = self._enter(self)
        self._working += 1
        try:
            work()
        except Killed:
            return
        finally:
            self._working -= 1
            self._enter(before)

    def _late(self, handle: SimHandle) -> None:
        if handle.callback is not None:
            self._ready.append(handle)
            if not self._armed:
                self._armed = True
                self._pump()

    def _pump(self) -> None:
        working, self._working = self._working, 0
        asyncio._set_running_loop(self)
        try:
            ready = self._ready
            while ready and self.alive:
                ready.popleft().run()
        finally:
            asyncio._set_running_loop(None)
            self._armed = False
            self._working = working
        self.look()
