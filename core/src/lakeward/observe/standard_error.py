"""Standard error of this process and of its children, as lines: so that a live table can stand below them."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STANDARD_ERROR = 2
_DRAIN_S = 1.0


@contextmanager
def lines_of_standard_error(on_line: Callable[[str], None]) -> Iterator[None]:
    """Pass each line that is written to standard error on to `on_line`, until the end.

    `on_line` runs on a thread of its own; it must not write to standard error. The file descriptor itself is replaced
    by a pipe, as Spark's Java and its Python workers inherit it. Children that outlive the end keep the pipe, and what
    they write then is dropped.
    """
    sys.stderr.flush()
    real = os.dup(_STANDARD_ERROR)
    read, write = os.pipe()
    os.dup2(write, _STANDARD_ERROR)
    os.close(write)
    ended = threading.Event()
    reader = threading.Thread(target=_pass_on, args=(read, on_line, ended), name="standard-error", daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.write(_STANDARD_ERROR, _END)
        os.dup2(real, _STANDARD_ERROR)
        os.close(real)
        ended.wait(_DRAIN_S)


_END = b"\0"
"""Written by us as the last byte; children may keep the pipe open after it."""


def _pass_on(read: int, on_line: Callable[[str], None], ended: threading.Event) -> None:
    rest = b""
    with open(read, "rb", buffering=0) as pipe:
        while piece := pipe.read(65536):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not ended.is_set():
                    on_line(line.strip(_END).decode(errors="replace"))
            if _END in piece:
                if last := rest.replace(_END, b""):
                    on_line(last.decode(errors="replace"))
                rest = b""
                ended.set()
