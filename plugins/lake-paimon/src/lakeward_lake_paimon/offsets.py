"""What snapshots say of us in their properties: the stamp, the round, and the offsets of all buckets.

Version 1 of the text form: `{"version":1,"table_id":T,"offsets":[[partition id or null, bucket, offset],...]}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError
from lakeward.model.identity import Incarnation
from lakeward.model.results import OffsetCommit
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward_lake_paimon.snapshots import Snapshot

INLINE_BYTES = 64 * 1024
"""Longer texts go to a file: some catalogs hold a snapshot in a row of a database."""
INCARNATION = "lakeward.incarnation"
TABLE_ID = "lakeward.table-id"
ROUND = "lakeward.round"
STEP = "lakeward.step"
OFFSETS = "lakeward.offsets"
OFFSETS_FILE = "lakeward.offsets-file"
NEXT_SEQUENCE = "lakeward.next-sequence"
"""The number after all sequence numbers of the table's files, so that not all manifests are read for it."""
FLUSS_USER = "__fluss_lake_tiering"
"""The commit user of Fluss's tiering service: it looks for the newest snapshot of that user with `FLUSS_OFFSETS`."""
FLUSS_OFFSETS = "fluss-offsets"
OWN_USER = "lakeward"
"""The commit user of snapshots that Fluss has nothing to find in: stamps, and commits to mirrors."""


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


def carries_offsets(snapshot: Snapshot) -> bool:
    """True for a commit of ours with offsets, and for one of Fluss's own tiering service."""
    said = snapshot.said
    ours = OFFSETS in said or OFFSETS_FILE in said
    return ours or (snapshot.commit_user == FLUSS_USER and FLUSS_OFFSETS in said)


def incarnation_of(snapshot: Snapshot) -> Incarnation | None:
    """Return the stamp that a snapshot carries, None if it carries none."""
    text = snapshot.said.get(INCARNATION)
    return None if text is None else Incarnation.parse(text)


def round_of(snapshot: Snapshot) -> tuple[str | None, str | None, str | None]:
    """Return the texts of incarnation, round and step, which are those of one commit."""
    said = snapshot.said
    return said.get(INCARNATION), said.get(ROUND), said.get(STEP)


def offset_commit(snapshot: Snapshot, read: Callable[[str], bytes]) -> OffsetCommit:
    """Read a snapshot that carries offsets; `read` returns the bytes of an offsets file by its name.

    Raises:
        CorruptFileError: the offsets are damaged.
    """
    said = snapshot.said
    step = said.get(STEP)
    return OffsetCommit(
        snapshot_id=snapshot.id,
        offsets=_offsets(snapshot, read),
        source_path=said.get(FLUSS_OFFSETS),
        incarnation=incarnation_of(snapshot),
        round_name=said.get(ROUND),
        step=None if step is None else int(step),
        timestamp_ms=snapshot.time_millis,
    )


def _offsets(snapshot: Snapshot, read: Callable[[str], bytes]) -> dict[TableBucket, int] | None:
    said = snapshot.said
    if OFFSETS in said:
        return unpack_offsets(said[OFFSETS], f"snapshot {snapshot.id}")
    if OFFSETS_FILE in said:
        return unpack_offsets(read(said[OFFSETS_FILE]), said[OFFSETS_FILE])
    return None
