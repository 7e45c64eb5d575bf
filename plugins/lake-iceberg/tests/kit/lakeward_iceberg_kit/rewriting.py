"""Writes a table's rows to new files, as somebody else's maintenance does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

if TYPE_CHECKING:
    from pyiceberg.table import Table


def rewrite_each_file(table: Table) -> None:
    """Replace each data file by one of the rows that are left of it; of any partitioning, on a local disk."""
    kind = schema_to_pyarrow(table.schema())
    with table.transaction() as change, change.update_snapshot().overwrite() as files:
        for task in [*table.scan().plan_files()]:
            rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])
            path = f"{task.file.file_path}-again.parquet"
            pq.write_table(rows.cast(kind), path.removeprefix("file://"))
            files.delete_data_file(task.file)
            new = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path,
                file_format=FileFormat.PARQUET,
                partition=task.file.partition,
                record_count=len(rows),
                file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
            )
            files.append_data_file(new)
