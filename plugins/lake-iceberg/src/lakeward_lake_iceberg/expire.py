"""Expires old snapshots, and deletes the files that only they referenced.

A contiguous piece of main's history is kept, from the head down to the oldest that is still needed: by the table's
rules (`retention`), the newest commit, the stamp, the commit whose offsets are copied. So the
retained snapshots always show whether main descends from Lakeward's newest commit. Single older snapshots are kept if a
branch, a tag or the caller needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
)

from lakeward_lake_iceberg.commit import ref_is
from lakeward_lake_iceberg.files import manifests_of, offsets_files
from lakeward_lake_iceberg.head import Ancestry, summary_of
from lakeward_lake_iceberg.offsets import COPIED_SNAPSHOT, INCARNATION, carries_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lakeward_lake_iceberg.retention import Retention

_EXPIRED = "lakeward.expired"
"""Table property: the ids of the snapshots that Lakeward's last expiry removed."""


def expirable(metadata: TableMetadata, retention: Retention, keep: Collection[int]) -> list[int]:
    """Return the ids of snapshots that are no longer needed; those in `keep` are."""
    history = Ancestry.of(metadata).snapshots
    kept = max(retention.of_main(history), _needed(metadata, history))
    spared = {*keep, *retention.named(), *retention.staged(), *(one.snapshot_id for one in history[:kept])}
    return [one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in spared]


def removal(
    table: Table, ids: list[int], ended: Mapping[str, int]
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the commit that expires snapshots, and branches and tags that have ended.

    It fails if main or one of those has moved on, since then more may be needed.
    """
    refs = {MAIN_BRANCH: table.metadata.current_snapshot_id, **ended}
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), *(ref_is(*one) for one in refs.items()))
    note = SetPropertiesUpdate(updates={_EXPIRED: _note(ids)})
    gone = (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in ended)
    return requirements, (*gone, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}), note)


def landed(metadata: TableMetadata, ids: Collection[int]) -> bool:
    """Return whether an expiry of Lakeward removed these snapshots; others must delete their own files."""
    return metadata.properties.get(_EXPIRED) == _note(ids)


def unreachable(
    metadata: TableMetadata, gone: Collection[Snapshot], io: FileIO, deleted: Callable[[str], bool]
) -> list[str]:
    """Return the files that only the expired snapshots referenced, in a safe order for deletion.

    That is: data and delete files first, then manifests, offsets files, and lists. `metadata` is the table's since,
    `gone` are the expired ones, whose manifest lists are still there. `deleted` says whether a manifest is gone
    already; then its files are gone, too.
    """
    kept = metadata.snapshots
    kept_manifests = manifests_of(kept, io)
    dead = {path: one for path, one in manifests_of(gone, io).items() if path not in kept_manifests}
    dead = {path: one for path, one in dead.items() if not deleted(path)}
    lists = {one.manifest_list for one in gone} - {one.manifest_list for one in kept}
    offsets = offsets_files(gone, {}) - offsets_files(kept, metadata.properties)
    may_free = any(map(_removes, [*kept, *gone])) or not _lead_to(metadata, gone)
    files = _dead_files(dead, kept_manifests, io) if may_free else []
    return [*files, *sorted(dead), *sorted(offsets), *sorted(lists)]


def _lead_to(metadata: TableMetadata, gone: Collection[Snapshot]) -> bool:
    """Return whether main descends from all of these by snapshots that are known."""
    known = {one.snapshot_id: one for one in (*metadata.snapshots, *gone)}
    left = {one.snapshot_id for one in gone}
    current = known.get(metadata.current_snapshot_id or 0)
    while current is not None and left:
        left.discard(current.snapshot_id)
        current = known.get(current.parent_snapshot_id or 0)
    return not left


def _dead_files(dead: dict[str, ManifestFile], kept: dict[str, ManifestFile], io: FileIO) -> list[str]:
    """Return files of dead manifests that no kept manifest references.

    A file leaves main only by a commit that removes it and counts that in its summary; if no snapshot does, nothing
    has to be read. Appending and merging of manifests remove no file. A kept manifest that lists a file as removed
    keeps it too, until that manifest is dead itself.
    """
    kinds = {one.content for one in dead.values()}
    named = {path for manifest in dead.values() for path in _paths(manifest, io)}
    spared = {path for manifest in kept.values() if manifest.content in kinds for path in _paths(manifest, io)}
    return sorted(named - spared)


def _paths(manifest: ManifestFile, io: FileIO) -> Iterator[str]:
    """Yield every file in a manifest, also those that it lists as removed."""
    return (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=False))


def _note(ids: Collection[int]) -> str:
    return ",".join(map(str, sorted(ids)))


def _removes(snapshot: Snapshot) -> bool:
    summary = summary_of(snapshot)
    counts = (summary.get("deleted-data-files", "0"), summary.get("removed-delete-files", "0"))
    # Other writers' summaries may lack the counts: only Lakeward's and plain appends are trusted.
    unsaid = INCARNATION not in summary and (snapshot.summary is None or snapshot.summary.operation.value != "append")
    return unsaid or any(int(count) > 0 for count in counts)


def _needed(metadata: TableMetadata, history: tuple[Snapshot, ...]) -> int:
    """Return how many of the newest snapshots are needed to know whose the table is, and how far it is."""
    copied = metadata.properties.get(COPIED_SNAPSHOT)
    commit = next((place for place, one in enumerate(history) if carries_offsets(summary_of(one))), -1)
    stamp = next((place for place, one in enumerate(history) if INCARNATION in summary_of(one)), -1)
    copy = next((place for place, one in enumerate(history) if str(one.snapshot_id) == copied), -1)
    return max(commit + 1, stamp + 1, copy + 1)
