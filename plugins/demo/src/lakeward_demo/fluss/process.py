"""One server process of a cluster: started, killed, paused and looked at."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import NoReturn

from lakeward.errors import LakewardError

_GUARD = """exec 3<&0; trap : TERM
"$@" 3<&- </dev/null & server=$!
(cat <&3 >/dev/null; kill -9 $server) 2>/dev/null & guard=$!
while kill -0 $server 2>/dev/null; do wait $server; code=$?; done
kill $guard 2>/dev/null
exit $code"""
"""A shell between us and the server: it ends the server when the pipe to us breaks, so that none outlives a test."""
_STEP_S = 0.1
_STOP_S = 15.0


class ClusterError(LakewardError):
    """A server of a private cluster did not start; the message has the end of its log."""

    code = "LW-321"


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A Java server that listens on one port of this machine."""

    def __init__(self, name: str, command: list[str], port: int, log: Path, environ: dict[str, str]) -> None:
        """Say what to run; nothing is started.

        Messages call it `name`; it will listen at `port`; its output is appended to the file `log`; `environ` goes over
        our own.
        """
        self.name = name
        self.port = port
        self.log = log
        self._command = command
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 60.0) -> None:
        """Start it and wait until it listens.

        Raises:
            ClusterError: it ended, or does not listen in time.
        """
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, self.name, *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=os.environ | self._environ,
                start_new_session=True,
            )
        for _ in range(int(timeout_s / _STEP_S)):
            if not self.running:
                self._fail("ended at its start")
            if self._listens():
                return
            time.sleep(_STEP_S)
        self._fail(f"does not listen on port {self.port} after {timeout_s:g} s")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, for tests that pause a server."""
        if self._process is not None and self.running:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it without warning, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; kill it if it takes too long."""
        self.send(signal.SIGCONT)
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self.send(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_STEP_S):
                return True
        except OSError:
            return False

    def _fail(self, what: str) -> NoReturn:
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        self.kill()
        message = "\n".join([f"{self.name} {what}; the end of {self.log}:", *tail])
        raise ClusterError(message)
