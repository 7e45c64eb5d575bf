"""Spark's daemon of Python workers, for `spark.python.daemon.module`: exchanges in its workers have points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    import socket

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """As Spark's, in a process that has just been forked: only there anything may be imported that starts threads."""
    from lakeward_faulty.exchange import watch_subtasks  # noqa: PLC0415

    watch_subtasks()
    return int(_work(sock, authenticated))


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
