"""Writes manifests: of data and of deletes, new ones, merged ones, and ones with entries taken out.

pyiceberg has no writer for delete manifests and none that merges them (iceberg.md, "Deletes"). Merging is by size
class, ten to one: each entry is rewritten once per class, so that the cost of a commit does not grow with the number
of commits before it, and the number of manifests grows with its logarithm alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StructType

from lakeward_lake_iceberg.avro_names import NamingOutputFile
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.entries import NEWEST, delete_file, entries_in, in_newest_form, with_first_row_id
from lakeward_lake_iceberg.positions import PATH_ID, POSITION_ID
from lakeward_lake_iceberg.records import partition_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyiceberg.io import FileIO, OutputFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import TableVersion

    from lakeward.model.results import LakeFile
    from lakeward_lake_iceberg.detail import DeleteFile

MERGED_MANIFESTS = 10
"""This many manifests of one size class are merged into one."""
_LARGEST_BYTES = 8 * 1024 * 1024
"""Manifests of this size are not merged (Iceberg's own target size)."""
NO_SEQUENCES: Mapping[str, int] = MappingProxyType({})


class _Writer(ManifestWriterV2):
    """pyiceberg's writer, for either content, with all entries in one Avro block."""

    def __init__(self, metadata: TableMetadata, spec: PartitionSpec, file: OutputFile, snapshot_id: int) -> None:
        codec: Any = metadata.properties.get("write.avro.compression-codec", "gzip")
        super().__init__(spec, metadata.schema(), file, snapshot_id, codec)
        self._format_version = metadata.format_version
        self._content = ManifestContent.DATA

    def holding(self, content: ManifestContent) -> _Writer:
        """Set the content, before anything is written."""
        self._content = content
        return self

    def content(self) -> ManifestContent:
        return self._content

    @property
    def version(self) -> TableVersion:
        return self._format_version

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "data" if self._content is ManifestContent.DATA else "deletes"}

    def new_writer(self) -> NamingOutputFile[ManifestEntry]:
        """Return the writer of the file: as pyiceberg's, but two fields of one type do not share a type's name."""
        return NamingOutputFile(
            output_file=self._output_file,
            file_schema=self._with_partition(self.version),
            record_schema=self._with_partition(NEWEST),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def _with_partition(self, format_version: TableVersion) -> Schema:
        """Return the schema of an entry. A void field is null also where its column is never null: pyiceberg errs."""
        void = {field.field_id for field in self._spec.fields if isinstance(field.transform, VoidTransform)}
        fields = (
            NestedField(one.field_id, one.name, one.field_type, required=one.required and one.field_id not in void)
            for one in self._spec.partition_type(self._schema).fields
        )
        data_file_type = data_file_with_partition(StructType(*fields), format_version)
        return manifest_entry_schema_with_data_file(format_version, data_file_type)

    def add_all(self, entries: Collection[ManifestEntry]) -> None:
        """Write entries as they are, in one block."""
        for entry in entries:
            self._count(entry)
        self._writer.write_block([self.prepare_entry(entry) for entry in entries])

    def to_manifest_file(self) -> ManifestFile:
        return with_first_row_id(super().to_manifest_file(), None)

    def _count(self, entry: ManifestEntry) -> None:
        rows = entry.data_file.record_count
        if entry.status is ManifestEntryStatus.ADDED:
            self._added_files, self._added_rows = self._added_files + 1, self._added_rows + rows
        elif entry.status is ManifestEntryStatus.EXISTING:
            self._existing_files, self._existing_rows = self._existing_files + 1, self._existing_rows + rows
        else:
            self._deleted_files, self._deleted_rows = self._deleted_files + 1, self._deleted_rows + rows
        self._partitions.append(entry.data_file.partition)
        sequence = entry.sequence_number
        if entry.status is not ManifestEntryStatus.DELETED and sequence is not None:
            known = self._min_sequence_number
            self._min_sequence_number = sequence if known is None else min(known, sequence)


class ManifestSet:
    """The manifests of one snapshot that is being built."""

    def __init__(self, metadata: TableMetadata, io: FileIO, snapshot_id: int, new_path: Callable[[], str]) -> None:
        """Prepare; nothing is written yet."""
        self._metadata = metadata
        self._io = io
        self._snapshot_id = snapshot_id
        self._new_path = new_path

    def added(
        self,
        files: Collection[DataFile],
        content: ManifestContent,
        sequences: Mapping[str, int] = NO_SEQUENCES,
        superseded: Collection[DataFile] = (),
    ) -> list[ManifestFile]:
        """Write new files, a manifest for each partition spec.

        `sequences` has the data sequence numbers of files, by path, that have another one than the snapshot.
        `superseded` were written for this snapshot and are named as removed, so that its expiry deletes them.
        """
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for file in files:
            by_spec[file.spec_id].append(_added(file, self._snapshot_id, sequences.get(file.file_path)))
        following = self._metadata.next_sequence_number()
        for file in superseded:
            entry = _added(file, self._snapshot_id, following)
            entry.file_sequence_number = following
            by_spec[file.spec_id].append(_restated(entry, self._snapshot_id, removed=True))
        return [self._write(spec_id, content, entries) for spec_id, entries in by_spec.items()]

    def without(
        self, manifests: Iterable[ManifestFile], removed: Collection[DeleteFile], *, data: bool = False
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """Mark these files as deleted; return the base's manifests, and the files that were found.

        They are delete files; with `data`, data files too. Those manifests are rewritten that named one of them.
        """
        kept: list[ManifestFile] = []
        found: list[DataFile] = []
        for manifest in manifests:
            looked_at = bool(removed) and (data or manifest.content is ManifestContent.DELETES)
            entries = self._read(manifest) if looked_at else []
            gone = [entry for entry in entries if delete_file(entry.data_file) in removed]
            if gone:
                found += [entry.data_file for entry in gone]
                kept_on = [entry for entry in entries if delete_file(entry.data_file) not in removed]
                # Removed ones last: files after them without a row id of their own count the rows of those before.
                restated = [_restated(entry, self._snapshot_id, removed=False) for entry in kept_on]
                restated += [_restated(entry, self._snapshot_id, removed=True) for entry in gone]
                kept.append(self._write(manifest.partition_spec_id, manifest.content, restated))
            else:
                kept += self._living(manifest)
        return kept, found

    def _living(self, manifest: ManifestFile) -> list[ManifestFile]:
        """Leave out entries that the base's own commit removed: else they would stay as long as the manifest."""
        if not manifest.deleted_files_count:
            return [manifest]
        entries = self._read(manifest)
        if any(entry.data_file.equality_ids for entry in entries):
            return [manifest]  # as in `_merge`
        restated = [_restated(entry, self._snapshot_id, removed=False) for entry in entries]
        return [self._write(manifest.partition_spec_id, manifest.content, restated)] if restated else []

    def merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge manifests of the base, newest first, by content, spec and size class."""
        classes: dict[tuple[ManifestContent, int, int], list[ManifestFile]] = defaultdict(list)
        for manifest in manifests:
            if manifest.manifest_length < _LARGEST_BYTES:
                classes[manifest.content, manifest.partition_spec_id, _size_class(manifest)].append(manifest)
        result = list(manifests)
        for (content, spec_id, _), alike in classes.items():
            if len(alike) >= MERGED_MANIFESTS:
                result = self._merge(result, alike, content, spec_id)
        return result

    def _merge(
        self, manifests: list[ManifestFile], alike: list[ManifestFile], content: ManifestContent, spec_id: int
    ) -> list[ManifestFile]:
        entries = [entry for manifest in alike for entry in self._read(manifest)]
        if any(entry.data_file.equality_ids for entry in entries):
            # pyiceberg would write these ids with a type that Java cannot read (iceberg.md, "Deletes").
            return manifests
        rest = [manifest for manifest in manifests if manifest not in alike]
        if not entries:
            return rest
        restated = [_restated(entry, self._snapshot_id, removed=False) for entry in entries]
        return [*rest, self._write(spec_id, content, restated)]

    def _read(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return entries_in(manifest, self._io)

    def _write(self, spec_id: int, content: ManifestContent, entries: Collection[ManifestEntry]) -> ManifestFile:
        spec = self._metadata.specs()[spec_id]
        output = self._io.new_output(self._new_path())
        writer = _Writer(self._metadata, spec, output, self._snapshot_id).holding(content)
        with writer:
            writer.add_all(entries)
        return writer.to_manifest_file()


def data_file(file: LakeFile, partition_types: Mapping[int, StructType]) -> DataFile:
    """Return a worker's file, of any spec of the table, in Iceberg's terms.

    `partition_types` has the type of a partition, by spec.
    """
    detail = unpack_detail(file.detail)
    deletes = file.kind == "deletes"
    counted = deletes and detail.vector is None
    offset, size = detail.vector or (None, None)
    built = DataFile.from_args(
        _table_format_version=NEWEST,
        content=DataFileContent.POSITION_DELETES if deletes else DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET if detail.vector is None else FileFormat.PUFFIN,
        partition=partition_record(detail.partition, partition_types[detail.spec_id]),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes=detail.column_sizes or None,
        value_counts={PATH_ID: file.rows, POSITION_ID: file.rows} if counted else detail.value_counts or None,
        null_value_counts=detail.null_counts or None,
        nan_value_counts=detail.nan_counts or None,
        lower_bounds=detail.lower or None,
        upper_bounds=detail.upper or None,
        key_metadata=None,
        split_offsets=list(detail.split_offsets) or None,
        equality_ids=None,
        sort_order_id=None,
        referenced_data_file=None if detail.vector is None else detail.references,
        content_offset=offset,
        content_size_in_bytes=size,
    )
    built.spec_id = detail.spec_id
    return built


def _size_class(manifest: ManifestFile) -> int:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return len(str(max(1, files)))


def _added(file: DataFile, snapshot_id: int, sequence: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=sequence,
        file_sequence_number=None,
        data_file=in_newest_form(file),
    )


def _restated(entry: ManifestEntry, snapshot_id: int, *, removed: bool) -> ManifestEntry:
    """Copy an entry with its own sequence numbers; a removed one keeps the id of the snapshot that removed it."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.DELETED if removed else ManifestEntryStatus.EXISTING,
        snapshot_id=snapshot_id if removed else entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
