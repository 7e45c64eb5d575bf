"""Many calls at once, and calls that are asked again while a server settles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lakeward.errors import SourceError
from lakeward.model.backoff import backoff_s
from lakeward_source_fluss.wire.errors import ServerUnreachableError, StaleMetadataError, UnansweredReadError

Given = TypeVar("Given")
Got = TypeVar("Got")
WIDTH = 8
"""Calls at once: the server has eight workers for a connection's requests (fluss.md, "The protocol")."""
MOVING = (StaleMetadataError, ServerUnreachableError, UnansweredReadError)
"""What a read meets while a bucket's leader dies, moves or starts: it passes by itself."""
_FIRST_S, _MOST_S = 0.05, 1.0


def run_parallel(call: Callable[[Given], Got], arguments: Iterable[Given]) -> list[Got]:
    """Make one call, which may block, for each argument, some at once; return the results in their order.

    The first error is raised, once all calls are over.
    """
    listed = list(arguments)
    if len(listed) <= 1:
        return [call(one) for one in listed]
    with ThreadPoolExecutor(min(WIDTH, len(listed)), thread_name_prefix="fluss-call") as pool:
        return list(pool.map(call, listed))


def retry(
    call: Callable[[], Got],
    passing: type[SourceError] | tuple[type[SourceError], ...],
    patience_s: float,
    between: Callable[[], None] = lambda: None,
) -> Got:
    """Make a call again while its refusal may pass by itself (`passing`); it has no effect when it is refused.

    After `patience_s` seconds a refusal is believed, those of the calls included. `between` is done before each further
    try; what it raises ends them.
    """
    failures, deadline = 0, time.monotonic() + patience_s
    while True:
        try:
            return call()
        except passing:
            if time.monotonic() >= deadline:
                raise
            between()
            failures += 1
            time.sleep(backoff_s(failures, _FIRST_S, _MOST_S))
