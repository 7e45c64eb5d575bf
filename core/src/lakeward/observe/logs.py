"""Send the logs of structlog and of the standard library to standard error, as text or as JSON lines.

Secrets are masked in each line, tracebacks included: libraries put addresses with passwords into their errors.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from lakeward.model.secrets import SecretTexts
from lakeward.model.spans import trace_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, Processor

QUIETED = ("py4j", "pyspark", "fsspec", "sqlalchemy", "urllib3", "asyncio", "uvicorn")
"""Libraries whose log lines below a warning are of no use to an operator."""

_PLAIN = (str, int, float, bool, type(None), dict, list, tuple)
"""What a line in JSON has as it is; of anything else it has the text."""


class _StandardError:
    """Standard error as it is at the moment of writing: a live display or a test may have replaced it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Handler(logging.StreamHandler[_StandardError]):
    """Our handler; `setup_logs` removes it before it adds another one."""


def setup_logs(form: str, level: str, *, traced: bool = False, secrets: SecretTexts | None = None) -> None:
    """Send all logs of this process to standard error; calling it again replaces the earlier setting.

    `form` is `text`, or `json` for one object on each line; `level` is `debug`, `info`, `warning` or `error`. If
    `traced`, a line that names its round also has the id of the round's trace. `secrets` are masked beside passwords in
    URIs.
    """
    handler = _Handler(_StandardError())
    handler.setFormatter(_formatter(form, secrets or SecretTexts(), traced=traced))
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


class _TextFormatter(structlog.stdlib.ProcessorFormatter):
    """Masks secrets in a line once it is a text: a traceback becomes one only then."""

    def __init__(self, secrets: SecretTexts, **options: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(**options)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.hide(super().format(record))


def _formatter(form: str, secrets: SecretTexts, *, traced: bool) -> logging.Formatter:
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    before = list(_shared(traced=traced))
    if form == "json":

        def hide(_logger: object, _method: str, line: EventDict) -> EventDict:
            # Before the line is JSON: an escaped text is another one than the secret.
            plain = {key: value if isinstance(value, _PLAIN) else str(value) for key, value in line.items()}
            return {key: secrets.hide_in(value) for key, value in plain.items()}

        to_json = structlog.processors.JSONRenderer(default=str)
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before, processors=[remove, structlog.processors.format_exc_info, hide, to_json]
        )
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(),
        exception_formatter=structlog.dev.plain_traceback,
        timestamp_key="time",
        pad_event_to=0,
    )
    return _TextFormatter(secrets, foreign_pre_chain=before, processors=[remove, renderer])
