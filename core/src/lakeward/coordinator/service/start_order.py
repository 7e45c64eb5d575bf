"""When a start says that it started: what its successors and predecessors are told apart by.

One clock alone is not to be trusted. A start whose clock was a day ahead would lock out every later one for a day: its
state file says so, and where the state folder is lost or another one is configured, its stamps in the lake still do.
So a new start comes after every start of its service that left either.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock, Lake, Source
    from lakeward.storage.service_state import ServiceStateStore

_WORKERS = 8
_LIMIT_S = 15.0
"""Seconds that a start waits for the lake's stamps; one that was not seen by then fences the start, which ends."""
_log = structlog.get_logger("lakeward.startup")


def started_ms(
    service: str,
    clock: Clock,
    states: ServiceStateStore,
    source: Source,
    lake: Lake,
    *,
    included: Callable[[TablePath], bool],
) -> int:
    """Return when a new start is to say that it started: now, but after every earlier start of its service. Blocking.

    Args:
        service: its name.
        clock: now.
        states: what earlier starts left beside the lake.
        source: says which tables there are.
        lake: what earlier starts left in it.
        included: whether a table is ours to tier or to mirror.

    Returns:
        Milliseconds since 1970.
    """
    wall_ms = clock.wall_ms()
    after_states = states.started_ms(service, wall_ms)
    stamped = _newest_stamp_ms(service, clock, lake, _paths(source, included))
    chosen = max(after_states, stamped + 1)
    if chosen > wall_ms:
        _log.warning(
            "an earlier start of this service says that it started later than now; one of the clocks is wrong",
            ahead_s=round((chosen - wall_ms) / 1000, 3),
        )
    return chosen


def _paths(source: Source, included: Callable[[TablePath], bool]) -> list[TablePath]:
    try:
        return [table.path for table in source.tables() if included(table.path)]
    except LakewardError as error:
        _log.warning("the stamps of earlier starts could not be looked up", reason=str(error))
        return []


def _newest_stamp_ms(service: str, clock: Clock, lake: Lake, paths: Iterable[TablePath]) -> int:
    """Return the start time in the newest stamp of a service, -1 where there is none."""
    todo: queue.SimpleQueue[TablePath] = queue.SimpleQueue()
    for path in paths:
        todo.put(path)
    found: list[int] = []

    def look() -> None:
        while True:
            try:
                head = lake.head(todo.get_nowait())
            except queue.Empty:
                return
            except LakewardError:
                continue  # its round meets the same error, and says so
            if head is not None and head.stamp is not None and head.stamp.service == service:
                found.append(head.stamp.started_ms)

    deadline = clock.now() + _LIMIT_S
    workers = [threading.Thread(target=look, name="look for stamps", daemon=True) for _ in range(_WORKERS)]
    for worker in workers[: todo.qsize()]:
        worker.start()
    for worker in workers:
        if worker.is_alive():
            worker.join(max(0.0, deadline - clock.now()))
    return max(found, default=-1)
