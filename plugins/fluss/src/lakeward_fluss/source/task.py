"""What a subtask's reader is told, as bytes. They hold the cluster's password, so they are never logged."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from lakeward_fluss.source.options import FlussOptions


class ReaderTask(msgspec.Struct, frozen=True):
    """The bytes of `Source.reader_task`: the `[source]` section."""

    options: dict[str, Any]

    def __repr__(self) -> str:
        """Show nothing: there are secrets in it."""
        return "ReaderTask(...)"


def pack_task(options: FlussOptions) -> bytes:
    """Return the bytes for a subtask."""
    return msgspec.msgpack.encode(ReaderTask(asdict(options)))


def unpack_task(task: bytes) -> FlussOptions:
    """Read the bytes."""
    return FlussOptions(**msgspec.msgpack.decode(task, type=ReaderTask).options)
