"""Spark's daemon of Python workers, for `spark.python.daemon.module`: exchanges in its workers have points."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakeward.spark.worker_daemon import prepare

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Work = Callable[[socket.socket, bool], int]


def worker(work: Work, sock: socket.socket, authenticated: bool) -> int:
    """As Spark's, in a process that has just been forked: only there anything may be imported that starts threads."""
    from lakeward_faulty.exchange import watch_subtasks  # noqa: PLC0415

    watch_subtasks()
    return int(work(sock, authenticated))


def serve(worker: Callable[[Work, socket.socket, bool], int]) -> None:
    """Fork workers as Spark's daemon does; each begins in `worker`, which is given what Spark's own would run."""
    prepare()
    daemon: Any = import_module("pyspark.daemon")
    daemon.worker = partial(worker, daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    serve(worker)
