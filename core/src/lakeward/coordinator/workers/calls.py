"""Blocking calls beside the event loop, awaited on it, each with a time limit.

The loop runs them, by asyncio's `run_in_executor`: on daemon threads (`lakeward.threads`), and in virtual time where
the loop is the simulator's. After the limit the outcome is unknown; whatever the call returns later is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lakeward.errors import OutcomeUnknownError
from lakeward.threads import LoopThreads

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def call(
    work: Callable[[], T], *, what: str, timeout_s: float | None = None, on_end: Callable[[], None] = lambda: None
) -> T:
    """Run `work` on a thread of its own and wait for it without blocking the loop. Its log lines have our fields.

    `what` describes the call, for the thread's name and the error. `timeout_s`: seconds, > 0; None = no limit. `on_end`
    is called on the loop once the thread has really ended, within the limit or long after it.

    Raises:
        OutcomeUnknownError: no answer within the limit.
        Exception: whatever it raised.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    loop.run_in_executor(LoopThreads(what), context.run, _run, work, loop, future, on_end)
    limit = None if timeout_s is None else loop.call_later(timeout_s, _give_up, future)
    try:
        return await future
    except TimeoutError as error:
        message = f"{what}: no answer within {timeout_s} s; it may still take effect"
        raise OutcomeUnknownError(message) from error
    finally:
        if limit is not None:
            limit.cancel()


def _give_up(future: asyncio.Future[T]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _run(
    work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], on_end: Callable[[], None]
) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - carried to the awaiting side whole
        _answer(loop, partial(_fail, future, error, on_end))
    else:
        _answer(loop, partial(_succeed, future, result, on_end))


def _succeed(future: asyncio.Future[T], result: T, on_end: Callable[[], None]) -> None:
    if not future.done():
        future.set_result(result)
    on_end()


def _fail(future: asyncio.Future[T], error: BaseException, on_end: Callable[[], None]) -> None:
    if not future.done():
        future.set_exception(error)
    on_end()


def _answer(loop: asyncio.AbstractEventLoop, deliver: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(deliver)
    except RuntimeError:
        # The loop is closed: the service ended during this call, and nothing waits for its answer.
        return
