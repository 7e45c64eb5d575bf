"""Chooses the start time in a new start's incarnation, by which earlier and later starts are told apart.

The clock alone is not enough: a start whose clock was a day ahead would lock out every later start for a day, by its
state file and by its stamps in the lake. So a new start takes a time after those of all earlier starts of its service
that are found in either place.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import ConfigError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock, Lake
    from lakeward.storage.service_state import ServiceStateStore

_WORKERS = 8
_LIMIT_S = 15.0
"""Seconds that a start waits for the lake's stamps; a newer stamp that it has not seen by then fences it later."""
_log = structlog.get_logger("lakeward.startup")


def started_ms(
    service: str,
    clock: Clock,
    states: ServiceStateStore,
    lake: Lake,
    tables: Callable[[], Sequence[TablePath]],
) -> int:
    """Return the start time for a new incarnation: now, or after the newest earlier start of its service. Blocking.

    In milliseconds since 1970; `clock` is the wall clock. Earlier starts are in `states` and in the stamps of
    `tables`, those of the lake.

    Raises:
        ConfigError: as `tables`; any other error of it is logged.
    """
    wall_ms = clock.wall_ms()
    after_states = states.started_ms(service, wall_ms)
    stamped = _newest_stamp_ms(service, clock, lake, _paths(tables))
    chosen = max(after_states, stamped + 1)
    if chosen > wall_ms:
        _log.warning(
            "an earlier start of this service says that it started later than now; one of the clocks is wrong",
            ahead_s=round((chosen - wall_ms) / 1000, 3),
        )
    return chosen


def _paths(tables: Callable[[], Sequence[TablePath]]) -> Sequence[TablePath]:
    try:
        return tables()
    except ConfigError:
        raise  # two tables have one lake table: neither may be served
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
                continue  # the table's round meets the same error and reports it
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
