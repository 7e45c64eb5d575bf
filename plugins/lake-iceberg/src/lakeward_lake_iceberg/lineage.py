"""Row ids of format version 3: each data file of a snapshot has a range of them, given out by its manifest list.

Source: Iceberg spec, "Row Lineage" and "First Row ID Inheritance".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile, ManifestListWriterV2

from lakeward_lake_iceberg.entries import NEWEST, first_row_id_of, with_first_row_id

if TYPE_CHECKING:
    from typing import Self

    from pyiceberg.avro.codecs import AvroCompressionCodec
    from pyiceberg.io import OutputFile
    from pyiceberg.table.metadata import TableMetadata

LINEAGE_FROM = 3
"""From this format version on rows have ids."""


def next_row_id(metadata: TableMetadata) -> int | None:
    """Return the first row id that no row has; None where rows have none."""
    if metadata.format_version < LINEAGE_FROM:
        return None
    known: int | None = getattr(metadata, "next_row_id", None)
    return known or 0


class LineageListWriter(ManifestListWriterV2):
    """Writes a manifest list of format version 3; a data manifest without row ids gets the next ones."""

    def __init__(  # noqa: PLR0917 - pyiceberg's, and the row id
        self,
        output_file: OutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        compression: AvroCompressionCodec,
        first_row_id: int,
    ) -> None:
        """Begin at `first_row_id`, the table's next row id."""
        super().__init__(output_file, snapshot_id, parent_snapshot_id, sequence_number, compression)
        self._meta = {**self._meta, "format-version": str(NEWEST), "first-row-id": str(first_row_id)}
        self.next_row_id = first_row_id

    def __enter__(self) -> Self:
        """Open the file."""
        schema = MANIFEST_LIST_FILE_SCHEMAS[NEWEST]
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=schema,
            file_schema=schema,
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        """Give it its sequence number, and its first row id."""
        prepared = super().prepare_manifest(manifest_file)
        if prepared.content is not ManifestContent.DATA:
            return with_first_row_id(prepared, None)
        first = first_row_id_of(prepared)
        if first is None:
            # Existing rows count, too: a file of before the upgrade has no ids of its own.
            first = self.next_row_id
            self.next_row_id += (prepared.added_rows_count or 0) + (prepared.existing_rows_count or 0)
        return with_first_row_id(prepared, first)
