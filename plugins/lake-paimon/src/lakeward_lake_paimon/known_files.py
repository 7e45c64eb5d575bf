"""What was read of files that never change: each is read once, in a store by one request or two."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BYTES = 8 << 20
"""Of all files together: some 4,000 entries of a table of few columns, 80 of one of 1,500."""
_OF_FILE = 1000
"""Of the file itself, whose path is long."""


class Record(Protocol):
    """A record that knows about how many bytes of memory it takes."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        ...


class KnownFiles:
    """The records of such files by their paths; those that nobody has asked for the longest are forgotten.

    No name of such a file is used twice but by a try of the same commit, which puts here what it has written. It may be
    deleted, though: whoever has to know whether it is there asks the storage.
    """

    def __init__(self) -> None:
        """Know none."""
        self._records: OrderedDict[str, Sequence[Any]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, path: str) -> Sequence[Any] | None:
        """Return the records of a file, None if they are not known."""
        with self._lock:
            found = self._records.get(path)
            if found is not None:
                self._records.move_to_end(path)
            return found

    def put(self, path: str, records: Sequence[Record]) -> None:
        """Keep the records of a file, unless it is a large one."""
        size = _size(records)
        with self._lock:
            self._bytes -= _size(self._records.pop(path)) if path in self._records else 0
            if size > _MOST_BYTES:
                return
            self._records[path] = records
            self._bytes += size
            while self._bytes > _MOST_BYTES:
                self._bytes -= _size(self._records.popitem(last=False)[1])


def _size(records: Sequence[Record]) -> int:
    return sum(record.memory_bytes for record in records) + _OF_FILE
