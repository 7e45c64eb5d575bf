"""Rows of primary-key tables as Paimon's files hold them: `_KEY_*`, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.tables import Change
from lakeward_lake_paimon.binary_row import encode_row, value_of
from lakeward_lake_paimon.kinds import FIELD_ID, arrow_field

if TYPE_CHECKING:
    from lakeward_lake_paimon.table_schema import TableSchema

KEY_PREFIX = "_KEY_"
SEQUENCE = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
_SYSTEM_ID = 2**30 - 1
"""Field ids of key columns are so much greater than those of the columns themselves."""
_SEQUENCE_ID, _KIND_ID = 2**31 - 2, 2**31 - 3
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""Paimon's kinds of rows."""
_KINDS = np.zeros(5, dtype=np.int8)
_KINDS[[Change.UPDATE_BEFORE, Change.UPDATE_AFTER, Change.DELETE]] = UPDATE_BEFORE, UPDATE_AFTER, DELETE


def kinds_of(changes: pa.Array) -> pa.Array:
    """Return Paimon's kinds of a batch's changes (`lakeward.model.tables.Change`)."""
    return pa.array(_KINDS[changes.to_numpy(zero_copy_only=False)])


class KeyLayout:
    """The columns of the files of one key table."""

    def __init__(self, schema: TableSchema) -> None:
        """Remember the keys."""
        self.keys = schema.named(schema.key_columns)
        keys = [
            pa.field(
                f"{KEY_PREFIX}{field.name}",
                arrow_field(field).type,
                nullable=False,
                metadata={FIELD_ID: str(_SYSTEM_ID + field.id)},
            )
            for field in self.keys
        ]
        system = [
            pa.field(SEQUENCE, pa.int64(), nullable=False, metadata={FIELD_ID: str(_SEQUENCE_ID)}),
            pa.field(VALUE_KIND, pa.int8(), nullable=False, metadata={FIELD_ID: str(_KIND_ID)}),
        ]
        self.schema = pa.schema([*keys, *system, *schema.arrow_schema])
        self._names = [field.name for field in self.keys]

    def file_rows(self, rows: pa.Table, sequences: pa.Array, kinds: pa.ChunkedArray) -> pa.Table:
        """Return rows of the table's columns as files hold them, ordered by key, then by sequence number."""
        # Sequence numbers ascend already, and this sort is stable.
        order = pc.sort_indices(rows.select(self._names), sort_keys=[(name, "ascending") for name in self._names])
        ordered, sequences, kinds = (one.take(order) for one in (rows, sequences, kinds))
        keys = [ordered.column(name) for name in self._names]
        return pa.Table.from_arrays([*keys, sequences, kinds, *ordered.columns], schema=self.schema)

    def last_of_each_key(self, rows: pa.Table) -> pa.Table:
        """Return the last row of each key, of rows that `file_rows` ordered, without rows from before an update."""
        is_newer = pc.not_equal(rows.column(VALUE_KIND), pa.scalar(UPDATE_BEFORE, pa.int8()))
        if not pc.all(is_newer).as_py():
            rows = rows.filter(is_newer)
        count = rows.num_rows
        if count <= 1:
            return rows
        differs = np.zeros(count, dtype=np.bool_)
        differs[-1] = True
        for name in self._names:
            column = rows.column(f"{KEY_PREFIX}{name}").combine_chunks()
            found = pc.not_equal(column.slice(0, count - 1), column.slice(1))
            differs[:-1] |= found.to_numpy(zero_copy_only=False)
        return rows if differs.all() else rows.filter(pa.array(differs))

    @property
    def key_names(self) -> list[str]:
        """The names of the key columns in files."""
        return [f"{KEY_PREFIX}{name}" for name in self._names]


class KeyEnds:
    """The first and the last key of a file whose rows come in order, a table at a time."""

    def __init__(self, layout: KeyLayout) -> None:
        """Know no row yet."""
        self._names = layout.key_names
        self._kinds = [field.kind for field in layout.keys]
        self._ends: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Take the next rows; at least one."""
        keys = rows.select(self._names)
        self._ends = [*self._ends[:1], keys.slice(0, 1), keys.slice(rows.num_rows - 1)]

    def rows(self) -> tuple[bytes, bytes]:
        """Return them as a manifest holds them."""
        return self._encoded(self._ends[0]), self._encoded(self._ends[-1])

    def _encoded(self, key: pa.Table) -> bytes:
        pairs = zip(self._names, self._kinds, strict=True)
        return encode_row([value_of(key.column(name)[0], kind) for name, kind in pairs], self._kinds)
