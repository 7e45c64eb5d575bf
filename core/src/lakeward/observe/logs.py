"""Send the logs of structlog and of the standard library to standard error, as text or as JSON lines."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from lakeward.model.spans import trace_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, Processor

QUIETED = ("py4j", "pyspark", "fsspec", "sqlalchemy", "urllib3", "asyncio", "uvicorn")
"""Libraries whose log lines below a warning are of no use to an operator."""


class _StandardError:
    """Standard error as it is at the moment of writing: a live display or a test may have replaced it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Handler(logging.StreamHandler[_StandardError]):
    """Our handler; `setup_logs` removes it before it adds another one."""


def setup_logs(form: str, level: str, *, traced: bool = False) -> None:
    """Send all logs of this process to standard error; calling it again replaces the earlier setting.

    Args:
        form: `text`, or `json` for one object on each line.
        level: `debug`, `info`, `warning` or `error`.
        traced: whether a line that names its round also has the id of the round's trace.
    """
    handler = _Handler(_StandardError())
    handler.setFormatter(_formatter(form, traced=traced))
    handler.addFilter(_is_not_py4j)
    root = logging.getLogger()
    root.handlers = [kept for kept in root.handlers if not isinstance(kept, _Handler)]
    root.addHandler(handler)
    root.setLevel(level.upper())
    _quiet(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(traced=traced),
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _quiet(level: str) -> None:
    for name in QUIETED:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    # Its server thread logs each connection that a dying driver breaks off as an error, with a traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Drop py4j's records in the root logger: two tracebacks for each call to a Java process that has ended."""
    return not (record.name == "root" and record.module in {"clientserver", "java_gateway"})


def _add_trace_id(_logger: object, _method: str, line: EventDict) -> EventDict:
    round_name = line.get("round")
    return line if round_name is None else {**line, "trace_id": trace_id_of(str(round_name))}


def _shared(*, traced: bool) -> Sequence[Processor]:
    return (
        structlog.contextvars.merge_contextvars,
        *([_add_trace_id] if traced else []),
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    )


def _formatter(form: str, *, traced: bool) -> logging.Formatter:
    last: list[Any]
    if form == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        plain = structlog.dev.plain_traceback
        last = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=plain, timestamp_key="time", pad_event_to=0
            )
        ]
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=list(_shared(traced=traced)), processors=[remove, *last]
    )
