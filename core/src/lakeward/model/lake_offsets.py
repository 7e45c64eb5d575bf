"""Offsets as a lake table holds them: a text among its properties, or in a file that a property names.

Version 1 of the text form: `{"version":1,"table_id":T,"offsets":[[partition id or null, bucket, offset],...]}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INLINE_BYTES = 64 * 1024
"""Longer texts go to a file: properties are repeated in each metadata file, or are in a row of a database."""
OFFSETS = "lakeward.offsets"
OFFSETS_FILE = "lakeward.offsets-file"
"""The properties."""
COMPLETE_MS = "lakeward.complete-ms"
"""The property with the moment up to which the table is complete with the commit (`CommitRequest.complete_ms`)."""


class _Text(msgspec.Struct, frozen=True):
    version: int
    table_id: int
    offsets: list[tuple[int | None, int, int]]


_TEXTS = msgspec.json.Decoder(_Text)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_offsets(table_id: int, offsets: Mapping[TableBucket, int]) -> str:
    """Encode offsets, ordered by bucket."""
    ordered = sorted(offsets, key=TableBucket.sort_key)
    rows = [(bucket.partition_id, bucket.bucket, offsets[bucket]) for bucket in ordered]
    return msgspec.json.encode(_Text(1, table_id, rows)).decode("utf-8")


def unpack_offsets(text: str | bytes, place: str) -> dict[TableBucket, int]:
    """Decode what `pack_offsets` gave.

    Raises:
        CorruptFileError: damaged, or of another version; names `place`.
    """
    try:
        stored = _TEXTS.decode(text)
    except msgspec.DecodeError as damaged:
        raise CorruptFileError(place, "offsets as JSON", str(damaged)) from damaged
    if stored.version != 1:
        raise CorruptFileError(place, "offsets of version 1", stored.version)
    return {TableBucket(stored.table_id, partition, bucket): offset for partition, bucket, offset in stored.offsets}


def offsets_in(said: Mapping[str, str], read: Callable[[str], bytes], place: str) -> dict[TableBucket, int] | None:
    """Return the offsets that properties hold or name, None where there are none.

    `read` returns the bytes of an offsets file by its name. Raises as `unpack_offsets`.
    """
    if OFFSETS in said:
        return unpack_offsets(said[OFFSETS], place)
    if OFFSETS_FILE in said:
        return unpack_offsets(read(said[OFFSETS_FILE]), said[OFFSETS_FILE])
    return None


def complete_property(complete_ms: int | None) -> dict[str, str]:
    """Return the property that says up to which moment a table is complete; none where nobody knows it."""
    return {} if complete_ms is None else {COMPLETE_MS: str(complete_ms)}


def complete_in(said: Mapping[str, str]) -> int | None:
    """Return the moment that `complete_property` gave, None where there is none."""
    text = said.get(COMPLETE_MS)
    return None if text is None else int(text)
