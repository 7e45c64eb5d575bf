"""The call site of a job: the name of its stage on Spark's pages."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.traceback_utils import SCCallSiteSync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext

_counting = threading.Lock()


@contextmanager
def call_site(context: SparkContext, name: str) -> Iterator[None]:
    """Name the stages that this thread runs in this block.

    PySpark names a stage after the line of Python that called it, and counts the calls that are under way, over all
    threads: only the outermost one sets a name. So this counts as one more call; what runs inside leaves our name.
    """
    _count(1)
    try:
        context.setLocalProperty("callSite.short", name)
        context.setLocalProperty("callSite.long", name)
        yield
    finally:
        _count(-1)


def _count(calls: int) -> None:
    with _counting:
        SCCallSiteSync._spark_stack_depth += calls  # noqa: SLF001 - pyspark has no other switch
