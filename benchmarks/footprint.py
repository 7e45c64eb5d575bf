"""What a service costs while it works: memory and processor time of driver, JVM and workers together."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Self

import psutil

_STEP_S = 0.5
_MIB = 1 << 20


class Footprint:
    """Watches this process, Spark's JVM and its workers for the length of a `with` block.

    Memory is the sum of their proportional set sizes, looked at twice a second.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self.peak: dict[str, int] = {}
        self.together = 0
        self.seconds = 0.0
        self.cpu = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.seconds, self.cpu = time.perf_counter(), _cpu_s()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self.seconds, _cpu_s() - self.cpu
        self._over.set()
        self._thread.join()

    def __str__(self) -> str:
        each = ", ".join(f"{kind} {size}" for kind, size in sorted(self.peak.items()))
        return f"{self.together} MiB at the most ({each}), {self.cpu:.2f} CPU-s"

    def _watch(self) -> None:
        while not self._over.wait(_STEP_S):
            now: dict[str, int] = {}
            for kind, process in _ours():
                with contextlib.suppress(psutil.Error):
                    now[kind] = now.get(kind, 0) + process.memory_full_info().pss // _MIB
            for kind, size in now.items():
                self.peak[kind] = max(self.peak.get(kind, 0), size)
            self.together = max(self.together, sum(now.values()))


def _cpu_s() -> float:
    """Return the processor time of all so far, with that of workers which ended."""
    spent = 0.0
    for kind, process in _ours():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            ended = times.children_user + times.children_system if kind != "driver" else 0.0
            spent += times.user + times.system + ended
    return spent


def _ours() -> Iterator[tuple[str, psutil.Process]]:
    """Yield the driver, Spark's JVM and what is below it; not the cluster, the catalog, or those who write."""
    me = psutil.Process()
    yield "driver", me
    for child in me.children():
        with contextlib.suppress(psutil.Error):
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                yield "jvm", child
                for worker in child.children(recursive=True):
                    yield "workers", worker
