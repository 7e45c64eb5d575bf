"""Offsets in a lake table: in the snapshot summary, in table properties, or in a file beside the metadata.

Version 1 of the text form: `{"version":1,"table_id":T,"offsets":[[partition id or null, bucket, offset],...]}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.errors import CorruptFileError
from lakeward.model.identity import Incarnation
from lakeward.model.results import OffsetCommit
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INLINE_BYTES = 64 * 1024
"""Longer texts go to a file: a summary and a property are repeated in every metadata file."""
INCARNATION = "lakeward.incarnation"
TABLE_ID = "lakeward.table-id"
OPENED_BY = "lakeward.opened-by"
"""Table property: the start that created the table. It fences earlier starts until the table has a stamp."""
SET_ASIDE_BY = "lakeward.set-aside-by"
"""Table property: the start that was about to rename the table, after the source's table was re-created."""
ROUND = "lakeward.round"
STEP = "lakeward.step"
OFFSETS = "lakeward.offsets"
OFFSETS_FILE = "lakeward.offsets-file"
_COMMIT_USER = "commit-user"
_FLUSS_USER = "__fluss_lake_tiering"
_FLUSS_OFFSETS = "fluss-offsets"

COPIED_SNAPSHOT = "lakeward.offsets-snapshot"
COPIED_SEQUENCE = "lakeward.offsets-sequence"
COPIED_TIMESTAMP = "lakeward.offsets-timestamp-ms"
COPIED_INCARNATION = "lakeward.offsets-incarnation"
COPIED_ROUND = "lakeward.offsets-round"
COPIED_SOURCE = "lakeward.fluss-offsets"
COPIED_STEP = "lakeward.offsets-step"
"""Table properties with a copy of the newest commit's offsets: they survive an expiry by another program."""


class _Text(msgspec.Struct, frozen=True):
    version: int
    table_id: int
    offsets: list[tuple[int | None, int, int]]


_TEXTS = msgspec.json.Decoder(_Text)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_offsets(table_id: int, offsets: Mapping[TableBucket, int]) -> str:
    """Encode offsets, ordered by bucket."""
    rows = [(bucket.partition_id, bucket.bucket, offsets[bucket]) for bucket in sorted(offsets, key=_key)]
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


def source_properties(source_path: str | None) -> dict[str, str]:
    """Return the summary properties by which Fluss's own readers and services find a commit's offsets.

    `source_path` is where the source stored them; None gives no properties (a mirrored table is no business of theirs).
    """
    return {} if source_path is None else {_FLUSS_OFFSETS: source_path, _COMMIT_USER: _FLUSS_USER}


def carries_offsets(summary: Mapping[str, str]) -> bool:
    """True for a commit of ours with offsets, and for one of Fluss's own tiering service."""
    ours = OFFSETS in summary or OFFSETS_FILE in summary
    return ours or (summary.get(_COMMIT_USER) == _FLUSS_USER and _FLUSS_OFFSETS in summary)


def offset_commit(snapshot: Any, summary: Mapping[str, str], read: Callable[[str], bytes]) -> OffsetCommit:  # noqa: ANN401 - anything with a snapshot's id and time
    """Read an offset-carrying snapshot: its id and time, and its summary; `read` returns the bytes of an offsets file.

    Raises:
        CorruptFileError: the offsets are damaged.
    """
    step = summary.get(STEP)
    return OffsetCommit(
        snapshot_id=snapshot.snapshot_id,
        offsets=_offsets(summary, read, f"snapshot {snapshot.snapshot_id}"),
        source_path=summary.get(_FLUSS_OFFSETS),
        incarnation=parse_incarnation(summary.get(INCARNATION)),
        round_name=summary.get(ROUND),
        step=None if step is None else int(step),
        timestamp_ms=snapshot.timestamp_ms,
    )


def copied_commit(properties: Mapping[str, str], read: Callable[[str], bytes]) -> OffsetCommit:
    """Read the copy in the table properties, for a snapshot that was expired by somebody else."""
    step = properties.get(COPIED_STEP)
    return OffsetCommit(
        snapshot_id=int(properties[COPIED_SNAPSHOT]),
        offsets=_offsets(properties, read, f"table property {OFFSETS}"),
        source_path=properties.get(COPIED_SOURCE),
        incarnation=parse_incarnation(properties.get(COPIED_INCARNATION)),
        round_name=properties.get(COPIED_ROUND),
        step=None if step is None else int(step),
        timestamp_ms=int(properties.get(COPIED_TIMESTAMP, "0")),
    )


def parse_incarnation(text: str | None) -> Incarnation | None:
    """Read an incarnation, None where there is none."""
    return None if text is None else Incarnation.parse(text)


def _offsets(where: Mapping[str, str], read: Callable[[str], bytes], place: str) -> dict[TableBucket, int] | None:
    if OFFSETS in where:
        return unpack_offsets(where[OFFSETS], place)
    if OFFSETS_FILE in where:
        file = where[OFFSETS_FILE]
        return unpack_offsets(read(file), file)
    return None


def _key(bucket: TableBucket) -> tuple[int, int, int]:
    return bucket.sort_key()
