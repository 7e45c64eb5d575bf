"""Says where the rows of merged files have gone, so that deletes of the old files become deletes of the new ones.

A round writes position deletes of the files that it has found. If these are merged before it commits, its deletes would
name files that are gone. So a compaction writes down, in a file beside the metadata, which rows of which file are where
in the new ones: those that were live, in the same order, one file after the other. Nobody waits for anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from lakeward_lake_iceberg.detail import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_lake_iceberg.keys import Codes

MOVES_FILE = "lakeward.moves-file"
"""Summary property of a compaction's snapshot: where it has written down its moves."""
_CODEC = "zstd"


class Moved(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one file. `first` is the number of its first live row among all rows of the new files."""

    path: str
    first: int
    gone: bytes
    """Positions that were left out, packed."""


class Merge(msgspec.Struct, frozen=True, array_like=True):
    """What one merge has made of which files: `files` are the new ones and their rows, all in one partition.

    `deletes` are files of position deletes that were merged into others, which say the same of the same data files.
    """

    spec_id: int
    partition: tuple[Value, ...]
    compression: str
    sources: tuple[Moved, ...]
    files: tuple[tuple[str, int], ...]
    deletes: tuple[str, ...] = ()

    def moved(self, source: Moved, positions: Codes) -> Iterator[tuple[str, Codes]]:
        """Yield where rows of a source are now: the path of a new file, and positions in it, ascending.

        `positions` are in the source, ascending. Those that were left out are nowhere.
        """
        gone = unpack_positions(source.gone)
        kept = np.setdiff1d(positions, gone, assume_unique=True)
        numbers = source.first + kept - np.searchsorted(gone, kept)
        start = 0
        for path, rows in self.files:
            low, high = np.searchsorted(numbers, (start, start + rows))
            if low < high:
                yield path, numbers[low:high] - start
            start += rows


_MERGES = msgspec.msgpack.Decoder(tuple[Merge, ...])
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_moves(merges: tuple[Merge, ...]) -> bytes:
    """Encode and compress."""
    return _compress(msgspec.msgpack.encode(merges))


def unpack_moves(data: bytes) -> tuple[Merge, ...]:
    """Decode what `pack_moves` gave."""
    return _MERGES.decode(_decompress(data))


def pack_positions(positions: Codes) -> bytes:
    """Encode ascending positions, as compressed differences."""
    return _compress(np.diff(positions, prepend=0).astype("<i8").tobytes())


def unpack_positions(data: bytes) -> Codes:
    """Decode what `pack_positions` gave."""
    found: Codes = np.cumsum(np.frombuffer(_decompress(data), dtype="<i8"), dtype=np.int64)
    return found


def _compress(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "big") + bytes(pa.Codec(_CODEC).compress(raw, asbytes=True))


def _decompress(packed: bytes) -> bytes:
    return bytes(pa.Codec(_CODEC).decompress(packed[8:], int.from_bytes(packed[:8], "big"), asbytes=True))
