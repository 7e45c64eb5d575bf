"""A process that has everything loaded and forks others: a subtask starts in milliseconds, not in seconds.

It has one thread, always: a fork copies no other, and locks that another one holds would stay held.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LOADED = (
    "encodings.idna",  # by the first look for a host's address
    "pandas",  # by pyarrow, as soon as an array becomes one of NumPy
    "pyarrow.dataset",
    "pyarrow.flight",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "sqlalchemy.dialects.sqlite",
    "lakeward.container",
    "lakeward.sockets.flight.incoming",
    "lakeward.sockets.flight.outgoing",
    "lakeward.sockets.server",
    "lakeward_lake_iceberg.lake",
    "lakeward_lake_iceberg.plugin",
    "lakeward_source_embedded.reader",
    "lakeward_source_embedded.source",
    "lakeward_rescale.run",
    "lakeward_rescale.service",
    "lakeward_rescale.subtask",
)
"""What the processes of a run import: nothing of it starts a thread while it is imported."""
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Libraries that would start threads while they are imported."""
_SIZE = struct.Struct("!q")
_REAP_S = 0.5
"""Seconds after which children that ended are waited for, if none is asked for."""


class Child:
    """A forked process, as whoever asked for it sees it: its end, however it came, is the end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        """Read its process id; see `fork`."""
        self.connection = connection
        self._answer: bytes | None = None
        (self.pid,) = _SIZE.unpack(_exactly(connection, _SIZE.size))

    def result(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - whatever its function returned
        """Wait for its end.

        Args:
            timeout_s: longest wait; None: for ever.

        Returns:
            What its function returned, None if it raised or was killed.

        Raises:
            TimeoutError: it lives.
        """
        if self._answer is None:
            self.connection.settimeout(timeout_s)
            self._answer = _until_end(self.connection)
            self.connection.close()
        return pickle.loads(self._answer) if self._answer else None  # noqa: S301 - from a process of this test

    @property
    def alive(self) -> bool:
        """Whether it has neither ended nor said anything."""
        return self.connection.fileno() >= 0 and not select.select([self.connection], [], [], 0)[0]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to it if it lives."""
        if self.alive:
            os.kill(self.pid, number)


def fork(zygote: Path, function: Callable[..., Any], *arguments: Any, log: Path, group: int = 0) -> Child:  # noqa: ANN401
    """Have a function called in a process of its own.

    Args:
        zygote: its socket.
        function: importable by reference.
        arguments: of it; pickled.
        log: where the process's words go.
        group: the process group that it joins; 0: one of its own.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(zygote))
    request = pickle.dumps((str(log), group, pickle.dumps((function, arguments))))
    connection.sendall(_SIZE.pack(len(request)) + request)
    return Child(connection)


def start(address: Path) -> subprocess.Popen[bytes]:
    """Start a zygote; it ends when its standard input does."""
    command = [sys.executable, "-m", "lakeward_rescale.zygote", str(address)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | _QUIET)
    assert process.stdout is not None
    if not process.stdout.readline():
        message = f"the process that forks others has not started: it ended with {process.wait()}"
        raise RuntimeError(message)
    return process


def stop(process: subprocess.Popen[bytes]) -> float:
    """End a zygote; return the processor time of all that it forked and that has ended, in seconds."""
    answer, _ = process.communicate()
    return float(answer)


def main(address: Path) -> None:
    """Load everything, then fork on request until standard input ends."""
    for name in _LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads: a fork would copy one of them"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(address))
    server.listen(128)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        ready, _, _ = select.select([server, sys.stdin], [], [], _REAP_S)
        _reap()
        if sys.stdin in ready:
            break
        if not ready:
            continue
        connection, _ = server.accept()
        (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
        request = _exactly(connection, size)
        if os.fork() == 0:
            server.close()
            _be(connection, request)
        connection.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    sys.stdout.write(f"{used.ru_utime + used.ru_stime}\n")


def _reap() -> None:
    """Wait for children that have ended: only then is their processor time known."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _be(connection: socket.socket, request: bytes) -> None:
    """Be the child: call the function, answer with what it returns, and end without any clean-up of the zygote's."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        log, group, work = pickle.loads(request)  # noqa: S301 - from a process of this test
        os.setpgid(0, group)
        words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(words, stream)
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        connection.sendall(_SIZE.pack(os.getpid()))
        function, arguments = pickle.loads(work)  # noqa: S301 - as above
        connection.sendall(pickle.dumps(function(*arguments)))
        code = 0
    except BaseException:  # noqa: BLE001 - the last frame of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            message = "the other end of the connection is gone"
            raise EOFError(message)
        data += piece
    return data


def _until_end(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    while True:
        try:
            piece = connection.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
