"""The log of a Spark task: lines on the executor's standard error, each with its round and subtask.

A worker runs one task at a time, so the fields are those of the process. The logger is imported by the first line that
is written: with what it imports it would be a fifth of what a new worker loads.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, cast

from lakeward.model.spans import trace_id_of

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor

    from lakeward.model.jobs import SubtaskPlace

_places: list[SubtaskPlace] = []
"""The task that this worker runs, if it is a worker of Spark's."""


def begin_task_log(place: SubtaskPlace) -> None:
    """Give all lines of this process the fields of a task, in the form that the service's own lines have."""
    _places[:] = [place]
    if "structlog" in sys.modules:
        _configure(place)
    elif place.job.exchange:  # what receives rows imports it anyway
        task_log("lakeward.subtask")


def forget_task() -> None:
    """Write lines without the fields of a task from now on."""
    _places.clear()


def task_log(name: str) -> FilteringBoundLogger:
    """Return a logger of a subtask."""
    import structlog  # noqa: PLC0415 - see above

    if _places:
        _configure(_places[0])
    return cast("FilteringBoundLogger", structlog.get_logger(name).bind(logger=name))


def _configure(place: SubtaskPlace) -> None:
    import structlog  # noqa: PLC0415 - see above

    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if place.job.log == "json"
        else [structlog.dev.ConsoleRenderer(colors=False, timestamp_key="time", pad_event_to=0)]
    )
    level = logging.getLevelNamesMapping()[place.job.log_level.upper()]

    def add_fields(_logger: object, _method: str, line: EventDict) -> EventDict:
        return {**fields_of_task(place), **line}

    structlog.configure(
        processors=[
            add_fields,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def fields_of_task(place: SubtaskPlace) -> dict[str, Any]:
    """Return what each line of a task has."""
    job = place.job
    return {
        "round": job.round_name,
        "table": job.pool,
        "subtask": place.subtask,
        "launch": job.job_attempt,
        "spark_attempt": place.spark_attempt,
        **({"trace_id": trace_id_of(job.round_name)} if job.traced else {}),
    }
