"""Everything that happens to a subtask, in order; what the coordinator says goes before what was read."""

from __future__ import annotations

import threading
from collections import deque


class Mailbox:
    """Two lanes to one receiver. Any thread may put; the mailbox thread alone gets.

    What the coordinator says keeps its own order and passes batches that wait to be written, so that a checkpoint
    does not wait for them.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._said: deque[object] = deque()
        self._rest: deque[object] = deque()
        self._filled = threading.Condition()

    def put(self, item: object) -> None:
        """Add something that happened here."""
        with self._filled:
            self._rest.append(item)
            self._filled.notify()

    def put_said(self, item: object) -> None:
        """Add something that the coordinator said."""
        with self._filled:
            self._said.append(item)
            self._filled.notify()

    def get(self, timeout_s: float) -> object | None:
        """Take the next item.

        Args:
            timeout_s: seconds to wait for one.

        Returns:
            The item, None if there was none in time.
        """
        with self._filled:
            self._filled.wait_for(lambda: self._said or self._rest, timeout_s)
            lane = self._said or self._rest
            return lane.popleft() if lane else None
