"""The SQL catalog with tables of format version 3, which pyiceberg 0.12 reads and does not write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.update import SetLocationUpdate, UpgradeFormatVersionUpdate

from lakeward_lake_iceberg.lineage import LINEAGE_FROM

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import StagedTable, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier


class LineageSqlCatalog(SqlCatalog):
    """pyiceberg's SQL catalog; tables can be made in format version 3, committed to, and upgraded to it."""

    @classmethod
    def instead_of(cls, catalog: SqlCatalog) -> LineageSqlCatalog:
        """Open the catalog that another one has opened, which is closed."""
        catalog.engine.dispose()
        return cls(catalog.name, **catalog.properties)

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        if not isinstance(metadata, TableMetadataV3):
            SqlCatalog._write_metadata(metadata, io, metadata_path)  # noqa: SLF001 - the method that is overridden
            return
        if metadata.next_row_id is None:
            # A new table: pyiceberg begins with none, and the specification wants it to be said.
            metadata = metadata.model_copy(update={"next_row_id": 0})
        # pyiceberg refuses to write its own model of version 3; what it is made of does not.
        text = BaseModel.model_dump_json(metadata, by_alias=True, exclude_none=True)
        output = io.new_output(metadata_path)
        content = Compressor.get_compressor(output.location).bytes_compressor()(text.encode("utf-8"))
        with output.create(overwrite=False) as stream:
            stream.write(content)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Stage a commit; pyiceberg upgrades no further than to version 2."""
        if current_table is None or not _upgrades(current_table, updates):
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        # The location as it is: without an update pyiceberg would not take the old metadata file into its log.
        others = (SetLocationUpdate(location=current_table.metadata.location), *_others(updates))
        return super()._update_and_stage_table(upgraded(current_table), table_identifier, (), others)


def _upgrades(table: Table, updates: tuple[TableUpdate, ...]) -> bool:
    wanted = [one.format_version for one in updates if isinstance(one, UpgradeFormatVersionUpdate)]
    return LINEAGE_FROM in wanted and table.metadata.format_version < LINEAGE_FROM


def upgraded(table: Table) -> Table:
    """Return a table as it is after an upgrade to format version 3."""
    said = table.metadata.model_dump(by_alias=True, exclude_none=True)
    metadata = TableMetadataV3.model_validate({**said, "format-version": LINEAGE_FROM, "next-row-id": 0})
    return type(table)(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _others(updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Return the updates beside the upgrade."""
    return tuple(one for one in updates if not isinstance(one, UpgradeFormatVersionUpdate))
