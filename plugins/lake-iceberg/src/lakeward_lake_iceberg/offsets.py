"""Offsets in a lake table: in the snapshot summary, in table properties, or in a file beside the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.model.identity import Incarnation
from lakeward.model.lake_offsets import OFFSETS, OFFSETS_FILE, complete_in, offsets_in
from lakeward.model.results import OffsetCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INCARNATION = "lakeward.incarnation"
TABLE_ID = "lakeward.table-id"
OPENED_BY = "lakeward.opened-by"
"""Table property: the start that created the table. It fences earlier starts until the table has a stamp."""
SET_ASIDE_BY = "lakeward.set-aside-by"
"""Table property: the start that was about to rename the table, after the source's table was re-created."""
ROUND = "lakeward.round"
STEP = "lakeward.step"
UPKEEP = "lakeward.upkeep"
"""Summary property of a compaction's snapshot: the id of its job. It has no stamp, so it counts as no commit."""
UPGRADED = "lakeward.upgraded-to"
"""Summary property of the snapshot of an upgrade: the version of the format since."""
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
        offsets=offsets_in(summary, read, f"snapshot {snapshot.snapshot_id}"),
        source_path=summary.get(_FLUSS_OFFSETS),
        incarnation=parse_incarnation(summary.get(INCARNATION)),
        round_name=summary.get(ROUND),
        step=None if step is None else int(step),
        timestamp_ms=snapshot.timestamp_ms,
        complete_ms=complete_in(summary),
    )


def copied_commit(properties: Mapping[str, str], read: Callable[[str], bytes]) -> OffsetCommit:
    """Read the copy in the table properties, for a snapshot that was expired by somebody else."""
    step = properties.get(COPIED_STEP)
    return OffsetCommit(
        snapshot_id=int(properties[COPIED_SNAPSHOT]),
        offsets=offsets_in(properties, read, f"table property {OFFSETS}"),
        source_path=properties.get(COPIED_SOURCE),
        incarnation=parse_incarnation(properties.get(COPIED_INCARNATION)),
        round_name=properties.get(COPIED_ROUND),
        step=None if step is None else int(step),
        timestamp_ms=int(properties.get(COPIED_TIMESTAMP, "0")),
        complete_ms=complete_in(properties),
    )


def parse_incarnation(text: str | None) -> Incarnation | None:
    """Read an incarnation, None where there is none."""
    return None if text is None else Incarnation.parse(text)
