"""Detects a late commit of another tiering service that moved a table's offsets back.

That happens when the other service was paused in the middle of its commit. It does not know Lakeward's fence, and its
commits that move forward are accepted. So before a round reads, it compares the lake's newest offsets with those of the
newest commit that any start of this service made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import BucketState, TableBucket, TablePath
    from lakeward.storage.commit_records import CommitRecord


def went_back(
    path: TablePath,
    record: CommitRecord | None,
    head: LakeHead | None,
    tiered: Mapping[TableBucket, int],
    buckets: Collection[BucketState],
) -> str:
    """Return what is wrong if the lake's newest commit is behind this service's own newest commit.

    It is the bucket, both offsets and what to do; empty if nothing is wrong or a person has accepted it. `record` is
    this service's; it may contain offsets that a person accepted. `tiered` are the offsets of the lake's newest commit,
    `buckets` the table's buckets now; others no longer count.
    """
    if head is None or head.commit is None or head.own is None or is_accepted(record, head):
        return ""
    own = head.own.offsets or {}
    present = [state.bucket for state in buckets]
    behind = [bucket for bucket in present if bucket in own and tiered.get(bucket, 0) < own[bucket]]
    if not behind:
        return ""
    first = behind[0]
    others = f", and likewise {len(behind) - 1} more" if len(behind) > 1 else ""
    return (
        f"table {path}: bucket {first} went back from offset {own[first]}, which our commit {head.own.snapshot_id} "
        f"says, to offset {tiered.get(first, 0)}, which the lake's newest commit {head.commit.snapshot_id} of another "
        f"service says{others}. No round is started, for it would tier the rows between twice. Find out what that "
        f"commit wrote; then roll the lake table back to {head.own.snapshot_id}, or say which offsets count: "
        f"lakeward tables accept {path} --offsets lake|ours"
    )


def is_accepted(record: CommitRecord | None, head: LakeHead) -> bool:
    """Return whether a person has accepted the record's offsets for the lake's newest commit."""
    newest = head.commit.snapshot_id if head.commit is not None else None
    return record is not None and record.accepted and record.snapshot_id == newest
