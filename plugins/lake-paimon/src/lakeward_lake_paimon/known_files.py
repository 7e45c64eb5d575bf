"""What was read of files that never change: each is read once, in a store by one request or two."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 4096
"""Records of all files together; one of a manifest takes some 2 KB."""


class KnownFiles:
    """The records of such files by their paths; those that nobody has asked for the longest are forgotten.

    No name of such a file is used twice, so what was read stays right. It may be deleted, though: whoever has to know
    whether it is there asks the storage.
    """

    def __init__(self) -> None:
        """Know none."""
        self._records: OrderedDict[str, Sequence[Any]] = OrderedDict()
        self._count = 0
        self._lock = Lock()

    def get(self, path: str) -> Sequence[Any] | None:
        """Return the records of a file, None if they are not known."""
        with self._lock:
            found = self._records.get(path)
            if found is not None:
                self._records.move_to_end(path)
            return found

    def put(self, path: str, records: Sequence[Any]) -> None:
        """Keep the records of a file, unless it is a large one."""
        with self._lock:
            if path in self._records or _weight(records) > _MOST:
                return
            self._records[path] = records
            self._count += _weight(records)
            while self._count > _MOST:
                self._count -= _weight(self._records.popitem(last=False)[1])


def _weight(records: Sequence[Any]) -> int:
    return 1 + len(records)
