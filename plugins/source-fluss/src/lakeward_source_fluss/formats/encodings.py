"""How each type is stored: in compacted rows, in indexed rows, in slots of arrays.

Source: fluss.md, "KV snapshots and rows".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from lakeward_source_fluss.formats import codes
from lakeward_source_fluss.formats.types import COMPACT_DECIMAL, COMPACT_TIMESTAMP, FlussField, FlussType, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Encoding(StrEnum):
    """A row format, as `table.kv.format` and `table.log.format` name it."""

    COMPACTED = "COMPACTED"
    INDEXED = "INDEXED"


_COMPACTED = {
    Kind.BOOLEAN: codes.FIXED_1,
    Kind.TINYINT: codes.FIXED_1,
    Kind.SMALLINT: codes.FIXED_2,
    Kind.INTEGER: codes.VARINT_32,
    Kind.DATE: codes.VARINT_32,
    Kind.TIME: codes.VARINT_32,
    Kind.BIGINT: codes.VARINT_64,
    Kind.FLOAT: codes.FIXED_4,
    Kind.DOUBLE: codes.FIXED_8,
}
_INDEXED = {
    Kind.BOOLEAN: codes.FIXED_1,
    Kind.TINYINT: codes.FIXED_1,
    Kind.SMALLINT: codes.FIXED_2,
    Kind.INTEGER: codes.FIXED_4,
    Kind.DATE: codes.FIXED_4,
    Kind.TIME: codes.FIXED_4,
    Kind.BIGINT: codes.FIXED_8,
    Kind.FLOAT: codes.FIXED_4,
    Kind.DOUBLE: codes.FIXED_8,
    Kind.CHAR: codes.PADDED,
    Kind.BINARY: codes.PADDED,
}
_STAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ})
_TEXTS = frozenset({Kind.STRING, Kind.CHAR, Kind.BYTES, Kind.BINARY})


def code(kind: FlussType, encoding: Encoding) -> int:
    """Return the kernel's code for a field of a row."""
    compacted = encoding is Encoding.COMPACTED
    if kind.kind is Kind.DECIMAL and kind.precision <= COMPACT_DECIMAL:
        return codes.VARINT_64 if compacted else codes.FIXED_8
    if kind.kind in _STAMPS and kind.precision <= COMPACT_TIMESTAMP:
        return codes.VARINT_64 if compacted else codes.FIXED_8
    if kind.kind in _STAMPS:
        return codes.VARINT_STAMP if compacted else codes.FIXED_STAMP
    table, rest = (_COMPACTED, codes.PREFIXED) if compacted else (_INDEXED, codes.LISTED)
    return table.get(kind.kind, rest)


_SLOT_WIDTHS = {
    Kind.BOOLEAN: 1,
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.INTEGER: 4,
    Kind.FLOAT: 4,
    Kind.DATE: 4,
    Kind.TIME: 4,
}


def slot(kind: FlussType) -> tuple[int, int]:
    """Return the width of an array's slot for this type, and what it holds (a SLOT code)."""
    if kind.kind in _TEXTS:
        return 8, codes.SLOT_TEXT
    if kind.kind in _STAMPS and kind.precision > COMPACT_TIMESTAMP:
        return 8, codes.SLOT_STAMP
    if kind.children or kind.kind is Kind.ROW or (kind.kind is Kind.DECIMAL and kind.precision > COMPACT_DECIMAL):
        return 8, codes.SLOT_REFERENCE
    return _SLOT_WIDTHS.get(kind.kind, 8), codes.SLOT_VALUE


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How the fields of a row are stored, as the kernel wants it."""

    codes: NDArray[np.int8]
    widths: NDArray[np.int32]
    nullable: NDArray[np.uint8]
    lengths: int

    @classmethod
    def of(cls, fields: tuple[FlussField, ...], encoding: Encoding) -> RowLayout:
        """Lay out these fields."""
        found = [code(field.type, encoding) for field in fields]
        return cls(
            np.array(found, "i1"),
            np.array([field.type.length for field in fields], "i4"),
            np.array([field.type.nullable for field in fields], "u1"),
            found.count(codes.LISTED),
        )
