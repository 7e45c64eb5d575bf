"""Ends a start of Spark that nobody waits for any longer, or whose master does not answer in time.

Spark itself tries for a minute and more, and cannot be interrupted: what ends is its Java process.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import SparkContext

from lakeward.spark.java import refuse_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.settings import SparkSettings
    from lakeward.owned_folder import OwnedFolder

_LOOK_S = 0.1


@contextmanager
def limited_connecting(
    settings: SparkSettings, launcher: OwnedFolder, abandoned: threading.Event
) -> Iterator[threading.Event]:
    """End Spark's Java process where the start is abandoned or the master does not answer in time.

    The call that waits for Spark then fails. The time runs from the start of the Java process; a master in this process
    is not limited. `launcher` is the JAVA_HOME that Spark is started with; `abandoned` is set by whoever no longer
    wants this Spark.

    Yields:
        An event that is set where the time was over.
    """
    connected, late = threading.Event(), threading.Event()
    limit_s = None if settings.on_this_machine else settings.connect_timeout_s
    watch = threading.Thread(target=_watch, args=(limit_s, launcher, abandoned, connected, late), daemon=True)
    watch.name = "spark-connecting"
    watch.start()
    try:
        yield late
    finally:
        connected.set()


def _watch(
    limit_s: float | None,
    launcher: OwnedFolder,
    abandoned: threading.Event,
    connected: threading.Event,
    late: threading.Event,
) -> None:
    looks = 0
    while not connected.wait(_LOOK_S):
        if abandoned.is_set():
            refuse_start(launcher)
        if SparkContext._gateway is None:  # noqa: SLF001 - pyspark keeps it nowhere else
            continue
        looks += 1
        if limit_s is not None and looks * _LOOK_S >= limit_s:
            late.set()
        if late.is_set() or abandoned.is_set():
            SparkContext._gateway.proc.kill()  # noqa: SLF001 - as above
            return
