"""Reads manifests with the fields of format version 3, which pyiceberg 0.12 leaves out: row ids, deletion vectors.

Older manifests lack them, and they are None there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)

from lakeward_lake_iceberg.detail import Vector
from lakeward_lake_iceberg.positions import PATH_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.io import FileIO
    from pyiceberg.table.snapshots import Snapshot

    from lakeward_lake_iceberg.detail import DeleteFile

NEWEST: Literal[3] = 3
"""The newest version of the format that is read and written here."""
VECTORS_FROM = 3
"""From this version on deletes are deletion vectors: files of position deletes may not be added."""
_FIRST_ROW_ID, _REFERENCED, _OFFSET, _SIZE, _FIELDS = 16, 17, 18, 19, 20
"""Places in a data file of version 3, for which pyiceberg has no names, and how many there are."""
_MANIFEST_FIRST_ROW_ID, _MANIFEST_FIELDS = 15, 16
"""The same in a manifest list."""


def manifests_in(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """Return the manifests of a snapshot, none where there is no snapshot."""
    if snapshot is None:
        return []
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[NEWEST],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def entries_in(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the live entries of a manifest, with what they inherit from it."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[NEWEST],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        found = [_inherit_from_manifest(one, manifest) for one in reader if one.status != ManifestEntryStatus.DELETED]
    following = first_row_id_of(manifest)
    if following is not None and manifest.content is ManifestContent.DATA:
        for entry in found:
            if first_row_id(entry.data_file) is None:
                entry.data_file[_FIRST_ROW_ID] = following
                following += entry.data_file.record_count
    return found


def live_entries(manifests: Iterable[ManifestFile], io: FileIO, content: ManifestContent) -> Iterator[ManifestEntry]:
    """Yield the live entries of all manifests of one content."""
    for manifest in manifests:
        if manifest.content is content:
            yield from entries_in(manifest, io)


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """Return the row id that files of a manifest without one begin at; None where none was assigned yet."""
    return cast("int | None", manifest[_MANIFEST_FIRST_ROW_ID]) if len(manifest) >= _MANIFEST_FIELDS else None


def with_first_row_id(manifest: ManifestFile, first: int | None) -> ManifestFile:
    """Return a manifest as a list of version 3 names it."""
    kept = (manifest[place] for place in range(_MANIFEST_FIRST_ROW_ID))
    return ManifestFile(*kept, first)


def first_row_id(file: DataFile) -> int | None:
    """Return the id of a data file's first row; None where none was assigned yet."""
    return cast("int | None", file[_FIRST_ROW_ID]) if len(file) >= _FIELDS else None


def in_newest_form(file: DataFile) -> DataFile:
    """Return a file with the fields of version 3, whichever version it was made for."""
    if len(file) >= _FIELDS:
        return file
    there = len(file)
    made = DataFile(*(file[place] if place < there else None for place in range(_FIELDS)))
    made.spec_id = file.spec_id
    return made


def delete_file(file: DataFile) -> DeleteFile:
    """Return what a delete file is called, or a data file."""
    if file.file_format is not FileFormat.PUFFIN or len(file) < _FIELDS:
        return file.file_path
    return Vector(file.file_path, file[_OFFSET], file[_SIZE])


def named_data_file(delete: DataFile) -> str | None:
    """Return the one data file that position deletes are about, None if they may be about several."""
    if len(delete) >= _FIELDS and delete[_REFERENCED] is not None:
        return cast("str", delete[_REFERENCED])
    lower, upper = (delete.lower_bounds or {}).get(PATH_ID), (delete.upper_bounds or {}).get(PATH_ID)
    if lower is None or lower != upper:
        return None
    try:
        return bytes(lower).decode("utf-8")
    except UnicodeDecodeError:  # another writer has cut it
        return None
