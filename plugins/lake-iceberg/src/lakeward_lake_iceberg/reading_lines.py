"""How other programs read a table: by its metadata file or its folder, so that no catalog has to be set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table

    from lakeward.model.tables import TablePath


def reading_lines(path: TablePath, table: Table) -> Mapping[str, str]:
    """Return a line for each program; each names the newest metadata file, and so the table as it is now."""
    metadata, folder = table.metadata_location, table.location()
    file = metadata.rpartition("/")[2]
    registered = f"schema_name => {_text(path.database)}, table_name => {_text(path.table)}"
    place = f"table_location => {_text(folder)}, metadata_file_name => {_text(file)}"
    return {
        "DuckDB": f"INSTALL iceberg; LOAD iceberg; SELECT * FROM iceberg_scan({_text(metadata)});",  # noqa: S608 - is shown
        "pyiceberg": (
            f"from pyiceberg.table import StaticTable; rows = StaticTable.from_metadata({metadata!r}).scan().to_arrow()"
        ),
        "Spark": f"spark.read.format('iceberg').load({metadata!r})",
        "Trino": f"CALL iceberg.system.register_table({registered}, {place});",
    }


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
