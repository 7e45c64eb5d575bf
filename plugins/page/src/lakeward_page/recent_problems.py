"""The newest warnings and errors of this process's log, for the status page."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakeward.model.secrets import SecretTexts

KEPT = 20
_NOT_SHOWN = frozenset({"event", "level", "logger", "time", "exc_info", "stack_info", "trace_id"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of the log. `at_ms` is milliseconds since 1970, `times` how often it came in a row."""

    at_ms: int
    level: str
    logger: str
    text: str
    times: int = 1


class RecentProblems(logging.Handler):
    """Keeps the newest lines, without secrets. The same text again and again is kept once, with a count."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Start without lines; `secrets` are hidden wherever they occur."""
        super().__init__(logging.WARNING)
        self._secrets = SecretTexts(secrets)
        self._lines: deque[Problem] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        text = self.without_secrets(_text(record))
        level, at_ms = record.levelname.lower(), round(record.created * 1000)
        last = self._lines[-1] if self._lines else None
        if last is not None and (last.level, last.logger, last.text) == (level, record.name, text):
            self._lines[-1] = Problem(at_ms, level, record.name, text, last.times + 1)
        else:
            self._lines.append(Problem(at_ms, level, record.name, text))

    def newest(self) -> tuple[Problem, ...]:
        """Return the lines, the newest first."""
        self.acquire()
        try:
            return tuple(reversed(self._lines))
        finally:
            self.release()

    def without_secrets(self, text: str) -> str:
        """Return a text in which secrets, and users and passwords in URIs, are hidden."""
        return self._secrets.hide(text)

    def listen(self) -> None:
        """Take each line of this process's log from now on."""
        logging.getLogger().addHandler(self)

    def close(self) -> None:
        """Take no more lines."""
        logging.getLogger().removeHandler(self)
        super().close()


def _text(record: logging.LogRecord) -> str:
    """Return the message and the facts of a line, without time and traceback."""
    if not isinstance(record.msg, Mapping):
        return record.getMessage()
    facts = [f"{key}={value}" for key, value in record.msg.items() if key not in _NOT_SHOWN and key[:1] != "_"]
    return " ".join([str(record.msg.get("event", "")), *facts])
