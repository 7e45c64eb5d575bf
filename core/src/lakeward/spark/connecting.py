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
    settings: SparkSettings, launcher: OwnedFolder, late: threading.Event, abandoned: threading.Event
) -> Iterator[None]:
    """End Spark's Java process where the start is abandoned or the master does not answer in time.

    The call that waits for Spark then fails. The time runs from the start of the Java process; a master in this process
    is not limited. `launcher` is the JAVA_HOME that Spark is started with: nothing is written there after the end.
    `late` is set here where the time was over; `abandoned` is set by whoever no longer wants this Spark.
    """
    connected = threading.Event()
    limit_s = None if settings.on_this_machine else settings.connect_timeout_s
    watch = threading.Thread(target=_watch, args=(limit_s, launcher, abandoned, connected, late), daemon=True)
    watch.name = "spark-connecting"
    watch.start()
    try:
        yield
    finally:
        connected.set()
        watch.join()  # it writes into the folder of `launcher`, which may be deleted from now on


def _watch(
    limit_s: float | None,
    launcher: OwnedFolder,
    abandoned: threading.Event,
    connected: threading.Event,
    late: threading.Event,
) -> None:
    looks, refused = 0, False
    while not connected.wait(_LOOK_S):
        if abandoned.is_set() and not refused:
            refuse_start(launcher)
            refused = True
        if SparkContext._gateway is None:  # noqa: SLF001 - pyspark keeps it nowhere else
            continue
        looks += 1
        if limit_s is not None and looks * _LOOK_S >= limit_s:
            late.set()
        if late.is_set() or abandoned.is_set():
            SparkContext._gateway.proc.kill()  # noqa: SLF001 - as above
            return
