"""Fields that each log line of a task has, also those that it writes on worker threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.contextvars import bind_contextvars

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from lakeward.model.identity import RoundId
    from lakeward.model.tables import TablePath


def fields_of_round(round_id: RoundId, path: TablePath) -> Mapping[str, str]:
    """Return what each log line has that belongs to a round."""
    return {"round": str(round_id), "table": str(path)}


def with_log_fields(
    fields: Mapping[str, str], work: Callable[[], Coroutine[None, None, None]]
) -> Callable[[], Coroutine[None, None, None]]:
    """Return work for a task of its own, whose log lines have these fields, unless a line names its own."""

    async def run() -> None:
        bind_contextvars(**fields)  # for good: a task has a context of its own
        await work()

    return run
