"""What snapshots say of us in their properties: the stamp, the round, and the offsets of all buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.identity import Incarnation
from lakeward.model.lake_offsets import OFFSETS, OFFSETS_FILE, complete_in, offsets_in
from lakeward.model.results import OffsetCommit

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_lake_paimon.snapshots import Snapshot

INCARNATION = "lakeward.incarnation"
TABLE_ID = "lakeward.table-id"
ROUND = "lakeward.round"
STEP = "lakeward.step"
NEXT_SEQUENCE = "lakeward.next-sequence"
"""The number after all sequence numbers of the table's files, so that not all manifests are read for it."""
FLUSS_USER = "__fluss_lake_tiering"
"""The commit user of Fluss's tiering service: it looks for the newest snapshot of that user with `FLUSS_OFFSETS`."""
FLUSS_OFFSETS = "fluss-offsets"
OWN_USER = "lakeward"
"""The commit user of snapshots that Fluss has nothing to find in: stamps, and commits to mirrors."""


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
        offsets=offsets_in(said, read, f"snapshot {snapshot.id}"),
        source_path=said.get(FLUSS_OFFSETS),
        incarnation=incarnation_of(snapshot),
        round_name=said.get(ROUND),
        step=None if step is None else int(step),
        timestamp_ms=snapshot.time_millis,
        complete_ms=complete_in(said),
    )
