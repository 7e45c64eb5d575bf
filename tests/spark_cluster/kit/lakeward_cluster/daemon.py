"""Spark's daemon of Python workers, for `spark.python.daemon.module`: as the faulty one, and spills are noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_faulty import daemon as faulty

if TYPE_CHECKING:
    import socket


def worker(work: faulty.Work, sock: socket.socket, authenticated: bool) -> int:
    """As the other one's: what starts threads is imported here alone."""
    from lakeward_cluster.spills import watch_spills  # noqa: PLC0415

    watch_spills()
    return faulty.worker(work, sock, authenticated)


if __name__ == "__main__":
    faulty.serve(worker)
