"""A limit on the time in which a Spark master has to answer; Spark itself tries for a minute and more."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import SparkContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.settings import SparkSettings

_LOOK_S = 0.1


@contextmanager
def limited_connecting(settings: SparkSettings) -> Iterator[threading.Event]:
    """End Spark's Java process where the master does not answer in time; the call that waits for it then fails.

    The time runs from the start of the Java process. A master in this process is not limited.

    Args:
        settings: the section `[spark]`.

    Yields:
        An event that is set where the time was over.
    """
    connected, late = threading.Event(), threading.Event()
    watch = threading.Thread(target=_watch, args=(settings.connect_timeout_s, connected, late), daemon=True)
    watch.name = "spark-connecting"
    if not settings.on_this_machine:
        watch.start()
    try:
        yield late
    finally:
        connected.set()


def _watch(limit_s: float, connected: threading.Event, late: threading.Event) -> None:
    while SparkContext._gateway is None:  # noqa: SLF001 - pyspark keeps it nowhere else
        if connected.wait(_LOOK_S):
            return
    if not connected.wait(limit_s):
        late.set()
        SparkContext._gateway.proc.kill()  # noqa: SLF001 - as above
