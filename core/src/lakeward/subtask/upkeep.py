"""Runs one Spark task of a job of upkeep: the lake's own work, with a limit of time.

It has no connection to the driver. A driver that dies takes Spark's application with it. A task that lives on all the
same ends at its limit, and what it has written is in no snapshot: only the driver commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from lakeward.arrow_alone import use_arrow_alone
from lakeward.clock import SystemClock
from lakeward.errors import LakeError
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP
from lakeward.model.upkeep import UpkeepOrder
from lakeward.subtask.task_log import forget_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.hooks.plugins import UpkeepLakePlugin
    from lakeward.ports import Clock

_ORDERS = msgspec.msgpack.Decoder(UpkeepOrder)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def run_upkeep(order: bytes, attempt: int) -> str:
    """Do one task in a worker of Spark's. See `do_upkeep`."""
    use_arrow_alone()
    forget_task()  # the worker may have run a subtask before
    return do_upkeep(order, attempt)


def do_upkeep(order: bytes, attempt: int) -> str:
    """Do one task; return its result as `lakeward.model.upkeep.UpkeepResult` in JSON.

    Args:
        order: an encoded `UpkeepOrder`.
        attempt: Spark's number of this try.

    Raises:
        LakewardError: it could not be done, or took longer than its limit.
    """
    found = _ORDERS.decode(order)
    plugin = cast("UpkeepLakePlugin", load(LAKE_GROUP, found.lake))
    result = plugin.upkeep(found.task, attempt, _limit(SystemClock(), found.limit_s))
    return msgspec.json.encode(msgspec.structs.replace(result, attempt=attempt)).decode()


def _limit(clock: Clock, limit_s: float) -> Callable[[], None]:
    """Return what raises once so many seconds have passed."""
    until = clock.now() + limit_s

    def check() -> None:
        if clock.now() >= until:
            message = f"a task of upkeep has not ended within {limit_s:g} s"
            raise LakeError(message)

    return check
