"""Finds which of a table's files are referenced, and deletes files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakeward.errors import UsageError
from lakeward.model.identity import Incarnation
from lakeward.model.lake_offsets import OFFSETS_FILE
from lakeward_lake_iceberg.head import summary_of
from lakeward_lake_iceberg.moves import MOVES_FILE
from lakeward_lake_iceberg.storage import Storage, local_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lakeward.model.results import CommitIds

_METADATA_FILE = re.compile(r"(\d+)-[^/]*\.metadata\.json$")
_STAMP_FILE = re.compile(r"/snap-\d+-0-([^/]+)-stamp\.avro$")
_UPGRADE = "-upgrade"


def data_root(metadata: TableMetadata) -> str:
    """Return the directory of data files, with a slash at its end."""
    return (metadata.properties.get("write.data.path") or f"{metadata.location}/data").rstrip("/") + "/"


def metadata_root(metadata: TableMetadata) -> str:
    """Return the directory of metadata files, with a slash at its end."""
    return (metadata.properties.get("write.metadata.path") or f"{metadata.location}/metadata").rstrip("/") + "/"


def may_delete(metadata: TableMetadata) -> bool:
    """Return whether the table lets its files be deleted: another one may name them, too."""
    return metadata.properties.get("gc.enabled", "true").lower() == "true"


def referenced(table: Table, files: Collection[str]) -> frozenset[str]:
    """Return those of `files` that a retained snapshot, or the metadata itself, references.

    Reads the newest manifests first, and stops when all are found: the files of a round that landed are in one
    manifest.
    """
    wanted = {_plain(file): file for file in files}
    found: set[str] = set()
    for name in named(table):
        plain = _plain(name)
        if plain in wanted:
            found.add(wanted.pop(plain))
            if not wanted:
                break
    return frozenset(found)


def leftovers(table: Table, storage: Storage, ids: CommitIds) -> tuple[str, ...]:
    """Return what a commit with these ids wrote: manifests, list, offsets or moves, and metadata files that hold it.

    A metadata file's name does not show which commit wrote it, so those that are neither current nor in the table's own
    log are read.
    """
    root = metadata_root(table.metadata)
    everything = storage.list(root)
    named = [path for path in everything if ids.uuid in path.rpartition("/")[2]]
    known = {_plain(path) for path in _metadata_files(table)}
    dead = [path for path in everything if _METADATA_FILE.search(path) and _plain(path) not in known]
    mark = str(ids.snapshot_id).encode("ascii")
    return tuple(sorted({*named, *(path for path in dead if mark in _content(storage, path))}))


def dead_metadata(table: Table, storage: Storage, *, swaps_in_order: bool) -> list[str]:
    """Return metadata files that are neither current nor in the table's log, and cannot become so.

    None if the table, as it is now, keeps the files that fall out of its log, or if the catalog does not number them.
    `swaps_in_order` is True for a catalog that names a file after the version that it is to become: one of the current
    version or older has lost its swap. Else only what is older than the log is taken.
    """
    numbers = [_version(path) for path in _metadata_files(table)]
    if None in numbers or not trims(table.metadata) or (len(numbers) == 1 and not swaps_in_order):
        return []
    current, oldest = max(one or 0 for one in numbers), min(one or 0 for one in numbers)
    last = current if swaps_in_order else oldest - 1
    known = {_plain(path) for path in _metadata_files(table)}
    return [
        path
        for path in storage.list(metadata_root(table.metadata))
        if (version := _version(path)) is not None and version <= last and _plain(path) not in known
    ]


def stamp_name(incarnation: Incarnation) -> str:
    """Return the part of a stamp's file name that identifies its start, for `dead_stamps`."""
    return f"{incarnation}-stamp"


def dead_stamps(table: Table, storage: Storage, incarnation: Incarnation) -> list[str]:
    """Return manifest lists of stamps that did not land, of this start of a service and of those before it.

    The table is as it is now, with the stamp of this start: none of an earlier head can land any more.
    """
    landed = {_plain(snapshot.manifest_list) for snapshot in table.metadata.snapshots}
    return [
        path
        for path in storage.list(metadata_root(table.metadata))
        if _plain(path) not in landed and (start := _start_of(path)) and not start.succeeds(incarnation)
        if start.service == incarnation.service
    ]


def upgrade_name(uuid: str) -> str:
    """Return the part of the name of an upgrade's files that tells them, for `dead_upgrades`."""
    return f"{uuid}{_UPGRADE}"


def dead_upgrades(table: Table, storage: Storage) -> list[str]:
    """Return manifest lists of upgrades that did not land, of a table that is upgraded: none of them can any more."""
    landed = {_plain(snapshot.manifest_list) for snapshot in table.metadata.snapshots}
    listed = storage.list(metadata_root(table.metadata))
    return [path for path in listed if path.endswith(f"{_UPGRADE}.avro") and _plain(path) not in landed]


def trim_metadata(base: TableMetadata, new: TableMetadata, storage: Storage) -> None:
    """Delete metadata files that fell out of the log, where the table asks for it (as the library's commit does)."""
    if not trims(base):
        return
    kept = {entry.metadata_file for entry in new.metadata_log}
    for entry in base.metadata_log:
        if entry.metadata_file not in kept:
            storage.delete(entry.metadata_file)


def offsets_files(snapshots: Iterable[Snapshot], properties: Mapping[str, str]) -> set[str]:
    """Return the offsets files that snapshots and table properties reference, and the moves of compactions."""
    told = [properties, *map(summary_of, snapshots)]
    return {one[name] for one in told for name in (OFFSETS_FILE, MOVES_FILE) if name in one}


def manifests_of(snapshots: Iterable[Snapshot], io: FileIO) -> dict[str, ManifestFile]:
    """Return the manifests of some snapshots by path, each once."""
    return {manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(io)}


def trims(metadata: TableMetadata) -> bool:
    """Return whether the table wants metadata files deleted that fall out of its log."""
    return metadata.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() == "true"


def _version(path: str) -> int | None:
    found = _METADATA_FILE.search(path)
    return None if found is None else int(found[1])


def _start_of(path: str) -> Incarnation | None:
    """Return the start of a service whose stamp a file is; None for any other file."""
    found = _STAMP_FILE.search(path)
    try:
        return None if found is None else Incarnation.parse(found[1])
    except UsageError:
        return None


def named(table: Table) -> Iterator[str]:
    """Yield all that the metadata and the retained snapshots name, those that snapshots name as removed too."""
    snapshots = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0, reverse=True)
    yield from _metadata_files(table)
    yield from (one.statistics_path for one in table.metadata.statistics)
    yield from (one.statistics_path for one in table.metadata.partition_statistics)
    yield from offsets_files(snapshots, table.metadata.properties)
    yield from (snapshot.manifest_list for snapshot in snapshots)
    manifests = manifests_of(snapshots, table.io)
    yield from manifests
    for manifest in sorted(manifests.values(), key=lambda one: one.sequence_number, reverse=True):
        # Entries that are marked as deleted count too: if in doubt, a file is kept.
        yield from (
            entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        )


def _metadata_files(table: Table) -> Iterator[str]:
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)


def _content(storage: Storage, path: str) -> bytes:
    with storage.open(path) as source:
        return bytes(source.read())


def _plain(path: str) -> str:
    """Normalise the forms of a local path: `/a`, `file:/a`, `file:///a`."""
    return local_path(path)
