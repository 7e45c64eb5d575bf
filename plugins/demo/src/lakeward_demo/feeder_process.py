"""The feeder as the demo sees it: a process of its own whose lines are shown as they come."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Self

import msgspec

from lakeward.errors import SourceError
from lakeward_demo.feeder import FeederLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_demo.place import Place

_STOP_TIMEOUT_S = 20.0
_LINES = msgspec.json.Decoder(FeederLine)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class FeederProcess:
    """Runs the feeder; a context manager that never leaves it behind."""

    def __init__(self, place: Place, stage: tuple[str, str], days: int, on_line: Callable[[FeederLine], None]) -> None:
        """Start it; it waits for `start`.

        `stage` is the name of the source, and its address. `on_line` is called for each day that is in, on a thread of
        its own.
        """
        self.last: FeederLine | None = None
        self._started = False
        self._place = place
        self._on_line = on_line
        self._log = place.feeder_log.open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lakeward_demo.feeder", *stage, str(days)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - both are pipes
        self._pipe_in = self._process.stdin
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), name="feeder", daemon=True)
        self._reader.start()

    def start(self) -> None:
        """Let it begin; further calls change nothing."""
        if self._started:
            return
        self._started = True
        with contextlib.suppress(BrokenPipeError):  # it is dead: `is_complete` says so
            self._pipe_in.write("go\n")
            self._pipe_in.flush()

    def is_complete(self) -> bool:
        """Say whether all days are in.

        Raises:
            SourceError: the feeder ended without having fed them all.
        """
        if self._reader.is_alive():
            return False
        if self.last is None or not self.last.is_complete:
            code = self._process.wait()
            message = f"demo: the feeding process ended early (exit code {code}): {self._last_log_line()}"
            raise SourceError(message)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to end, and wait for the load that it is in."""
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            self._pipe_in.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._log.close()

    def _last_log_line(self) -> str:
        """Return the last line of its log; the log stays, for the rest."""
        log = self._place.feeder_log
        lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        return f"{lines[-1] if lines else 'it said nothing'} (see {self._place.feeder_log})"

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for text in lines:
                self.last = _LINES.decode(text)
                self._on_line(self.last)
