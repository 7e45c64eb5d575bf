"""Expires old snapshots, and deletes what only they named.

A contiguous piece of main's history is kept, from the head down to the oldest that is still needed: the configured
number, the newest commit, the stamp, the commit whose offsets are copied. So whether main descends from our newest
commit can always be read off the retained snapshots. Single older ones are spared where a reference or the caller
names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, SetPropertiesUpdate

from lakeward_lake_iceberg.commit import main_is
from lakeward_lake_iceberg.files import manifests_of, offsets_files
from lakeward_lake_iceberg.head import Ancestry, summary_of
from lakeward_lake_iceberg.offsets import COPIED_SNAPSHOT, INCARNATION, carries_offsets
from lakeward_lake_iceberg.storage import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate

_EXPIRED = "lakeward.expired"
"""Table property: the ids of the snapshots that our last expiry took out."""


def expirable(metadata: TableMetadata, keep: Collection[int], count: int) -> list[int]:
    """Return the ids of snapshots that nobody needs.

    Args:
        metadata: the table.
        keep: ids to spare.
        count: so many of the newest are kept.
    """
    history = Ancestry.of(metadata).snapshots
    spared = set(keep) | _referenced(metadata)
    return [one.snapshot_id for one in history[_kept(metadata, history, count) :] if one.snapshot_id not in spared]


def removal(table: Table, ids: list[int]) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the commit that expires snapshots; it fails if main has moved on, since then more may be needed."""
    head = table.metadata.current_snapshot_id
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), main_is(head))
    note = SetPropertiesUpdate(updates={_EXPIRED: ",".join(map(str, ids))})
    return requirements, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}), note)


def interrupted(table: Table, files: Collection[str]) -> TableMetadata | None:
    """Find what our last expiry took out of the table, if its process died before it had deleted the files.

    A manifest list goes last, so it is still there; the metadata files of the table's log name it. What others expired
    and left lying is theirs.

    Args:
        table: as it is now.
        files: what lies in its metadata directory.

    Returns:
        The table with those snapshots still in it, None where there are none.
    """
    ours = set(table.metadata.properties.get(_EXPIRED, "").split(","))
    named = {local_path(one.manifest_list) for one in table.metadata.snapshots}
    left = {path for file in files if "/snap-" in file and (path := local_path(file)) not in named}
    there = {local_path(file) for file in files}
    gone: dict[int, Snapshot] = {}
    for entry in table.metadata.metadata_log if left else ():
        if local_path(entry.metadata_file) not in there:
            continue
        before = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        gone |= {one.snapshot_id: one for one in before.snapshots if local_path(one.manifest_list) in left}
    found = [one for number, one in gone.items() if str(number) in ours]
    return table.metadata.model_copy(update={"snapshots": [*table.metadata.snapshots, *found]}) if found else None


def unreachable(
    base: TableMetadata, expired: Collection[int], io: FileIO, deleted: Callable[[str], bool] = lambda _: False
) -> list[str]:
    """Return the files that only the expired snapshots named, in an order that is safe to delete in.

    Args:
        base: the table before the expiry.
        expired: ids of the expired snapshots.
        io: reads manifests.
        deleted: says whether a manifest is gone already; then so are the files that it names.

    Returns:
        Data and delete files first, then manifests, offsets files, and lists.
    """
    gone = [one for one in base.snapshots if one.snapshot_id in expired]
    kept = [one for one in base.snapshots if one.snapshot_id not in expired]
    kept_manifests = manifests_of(kept, io)
    dead = {path: one for path, one in manifests_of(gone, io).items() if path not in kept_manifests}
    dead = {path: one for path, one in dead.items() if not deleted(path)}
    lists = {one.manifest_list for one in gone} - {one.manifest_list for one in kept}
    offsets = offsets_files(gone, {}) - offsets_files(kept, base.properties)
    return [*_dead_files(base, dead, kept_manifests, io), *sorted(dead), *sorted(offsets), *sorted(lists)]


def _dead_files(
    base: TableMetadata, dead: dict[str, ManifestFile], kept: dict[str, ManifestFile], io: FileIO
) -> list[str]:
    """Return files of dead manifests that no kept manifest lists.

    A file disappears from a table only by a commit that removes it and counts that in its summary; where no snapshot
    does, nothing has to be read. Appending and merging of manifests remove no file.
    """
    if not any(_removes(one) for one in base.snapshots):
        return []
    contents = {content for content in ManifestContent if any(one.content is content for one in dead.values())}
    live = {
        entry.data_file.file_path
        for manifest in kept.values()
        if manifest.content in contents
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
    }
    named = {
        entry.data_file.file_path
        for manifest in dead.values()
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)
        if entry.status is not ManifestEntryStatus.DELETED
    }
    return sorted(named - live)


def _removes(snapshot: Snapshot) -> bool:
    summary = summary_of(snapshot)
    counts = (summary.get("deleted-data-files", "0"), summary.get("removed-delete-files", "0"))
    # Somebody else's summary may lack the counts: only ours and plain appends are taken at their word.
    unsaid = INCARNATION not in summary and (snapshot.summary is None or snapshot.summary.operation.value != "append")
    return unsaid or any(int(count) > 0 for count in counts)


def _kept(metadata: TableMetadata, history: tuple[Snapshot, ...], count: int) -> int:
    """Return how many of the newest are needed."""
    copied = metadata.properties.get(COPIED_SNAPSHOT)
    commit = next((place for place, one in enumerate(history) if carries_offsets(summary_of(one))), -1)
    stamp = next((place for place, one in enumerate(history) if INCARNATION in summary_of(one)), -1)
    copy = next((place for place, one in enumerate(history) if str(one.snapshot_id) == copied), -1)
    return max(count, 1, commit + 1, stamp + 1, copy + 1)


def _referenced(metadata: TableMetadata) -> set[int]:
    """Return the snapshots that tags name and that other branches descend from."""
    known = {one.snapshot_id: one for one in metadata.snapshots}
    found: set[int] = set()
    for name, reference in metadata.refs.items():
        current = known.get(reference.snapshot_id)
        if current is None or name == MAIN_BRANCH:
            continue
        found.add(current.snapshot_id)
        while reference.snapshot_ref_type is SnapshotRefType.BRANCH and current is not None:
            found.add(current.snapshot_id)
            current = known.get(current.parent_snapshot_id or 0)
    return found
