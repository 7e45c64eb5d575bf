"""Finds older versions of keys in data files, by reading only their key columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from lakeward.errors import SchemaMismatchError
from lakeward.local_files import storage_errors
from lakeward_lake_iceberg.bounds import range_of
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.parquet_fields import FIELD_ID, top_columns
from lakeward_lake_iceberg.task import BaseFile

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.results import LakeFile
    from lakeward_lake_iceberg.keys import Codes, KeyIndex
    from lakeward_lake_iceberg.storage import Storage
    from lakeward_lake_iceberg.task import WriterTask

_LEAST_ROWS = 1 << 17
_MOST_ROWS = 1 << 20
"""Rows of a file that are looked at in one step: as many as there are keys, within these bounds.

Each step makes a hash table of all keys: in steps of 131,072 rows that took most of the time where keys are many.
"""


class KeyScan:
    """Scans data files of one bucket for keys."""

    def __init__(self, storage: Storage, task: WriterTask) -> None:
        """Remember the key columns and their types."""
        schema = task.arrow_schema()
        self._storage = storage
        self._fields = [schema.field(name) for name in task.key_columns]
        self._ids = {field.name: int(field.metadata[FIELD_ID]) for field in self._fields}
        self._key = self._ids[self._fields[0].name]
        self._kind = task.types.get(self._key, "")

    def describe(self, file: LakeFile) -> BaseFile:
        """Return a data file of this split as a file in which later rows look for older versions."""
        detail = unpack_detail(file.detail)
        lower, upper = detail.lower.get(self._key, b""), detail.upper.get(self._key, b"")
        return BaseFile(file.path, file.rows, lower, upper)

    def may_hold(self, file: BaseFile, index: KeyIndex) -> bool:
        """Return False if the file's bounds show that it contains none of the keys."""
        if not (file.lower and file.upper):
            return True
        held = range_of(self._kind, file.lower, file.upper)
        if held is None:
            return True
        lower, upper = held
        smallest, largest = index.raw_bounds()
        # Text is ordered by code point in Python and by bytes in Iceberg: the two agree for UTF-8.
        return bool(smallest <= upper and largest >= lower)

    def positions(self, path: str, index: KeyIndex) -> Codes:
        """Return the positions of all rows of a file whose key is in the index, ascending.

        Raises:
            StorageError: the file cannot be read.
            SchemaMismatchError: it has no column with the field id of a key column.
        """
        found = [np.empty(0, dtype=np.int64)]
        start = 0
        with storage_errors(path), self._storage.open(path) as source:
            file = pq.ParquetFile(source)
            places = self._places(path, file.schema_arrow)
            ordered = sorted(places)
            step = min(max(_LEAST_ROWS, index.size), _MOST_ROWS)
            # `file.iter_batches` takes names alone.
            for batch in file.reader.iter_batches(step, range(file.num_row_groups), column_indices=ordered):
                columns = (batch.column(ordered.index(place)) for place in places)
                keys = [column.cast(field.type) for column, field in zip(columns, self._fields, strict=True)]
                flags = index.contains(keys)
                found.append(np.flatnonzero(flags) + start)
                start += batch.num_rows
        return np.concatenate(found)

    def _places(self, path: str, schema: pa.Schema) -> list[int]:
        """Return the positions of the key columns in a file, in the order of the key."""
        found = top_columns(schema, self._ids)
        for name, field_id in self._ids.items():
            if name not in found:
                message = (
                    f"file {path}: expected key column {name!r} with field id {field_id}, found columns "
                    f"{', '.join(map(repr, schema.names))} without it"
                )
                raise SchemaMismatchError(message)
        return [found[name] for name in self._ids]
