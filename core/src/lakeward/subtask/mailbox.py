"""A subtask's mailbox: the coordinator's messages come before batches that were read."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _do_nothing() -> None:
    return


class Mailbox:
    """Two lanes to one receiver. Any thread may put; the mailbox thread alone gets.

    The coordinator's messages keep their order and overtake batches that wait to be written, so that a checkpoint does
    not wait for those.
    """

    def __init__(self, on_put: Callable[[], None] = _do_nothing) -> None:
        """Start empty; `on_put` is called after each item that was put, on the thread that put it."""
        self._on_put = on_put
        self._messages: deque[object] = deque()
        self._rest: deque[object] = deque()
        self._filled = threading.Condition()

    def put(self, item: object) -> None:
        """Add something that happened in this process."""
        self._put(self._rest, item)

    def put_message(self, item: object) -> None:
        """Add a message of the coordinator."""
        self._put(self._messages, item)

    def get(self, timeout_s: float) -> object | None:
        """Take the next item; None if there was none within `timeout_s` seconds."""
        with self._filled:
            if timeout_s > 0:
                self._filled.wait_for(lambda: self._messages or self._rest, timeout_s)
            lane = self._messages or self._rest
            return lane.popleft() if lane else None

    def _put(self, lane: deque[object], item: object) -> None:
        with self._filled:
            lane.append(item)
            self._filled.notify()
        self._on_put()
