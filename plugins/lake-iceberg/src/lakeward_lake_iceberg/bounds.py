"""Iceberg's single-value bytes, and the metrics of a file from its Parquet footer.

Source: Iceberg spec, "Binary single-value serialization" and `data_file` metrics. Bounds of text and bytes are cut to
16 code points or bytes, as Iceberg's own writers do by default; an upper bound is then raised by one in its last
place, so that it stays a bound.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from lakeward_lake_iceberg.parquet_fields import columns_by_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.parquet as pq

_TRUNCATED = 16
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_PACKED = {
    "boolean": "<?",
    "int": "<i",
    "date": "<i",
    "long": "<q",
    "time": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
    "float": "<f",
    "double": "<d",
}
_WIDTHS = {"int": (4,), "date": (4,), "long": (4, 8), "time": (8,), "timestamp": (8,), "timestamptz": (8,)}
"""Bytes of the bounds of types that are compared. A column that was `int` before it was `long` has bounds of 4."""


def lower_bound(kind: str, raw: Any) -> bytes | None:  # noqa: ANN401 - whatever the footer holds
    """Encode a smallest value; None where its type gets no bound.

    `kind` is the Iceberg type's name, such as `long` or `decimal(10,2)`; `raw` the physical value of the footer: bool,
    int, float or bytes.
    """
    if kind == "string":
        return bytes(raw).decode("utf-8")[:_TRUNCATED].encode("utf-8")
    if kind == "binary":
        return bytes(raw[:_TRUNCATED])
    return _exact(kind, raw)


def upper_bound(kind: str, raw: Any) -> bytes | None:  # noqa: ANN401 - whatever the footer holds
    """Encode a largest value; as `lower_bound`. None also if a truncated value cannot be raised."""
    if kind == "string":
        return _raised_text(raw.decode("utf-8"))
    if kind == "binary":
        return _raised_bytes(bytes(raw))
    return _exact(kind, raw)


def range_of(kind: str, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any] | None:
    """Decode the bounds of a column for comparison: the smallest and the largest value that the file may hold.

    None where values of this type are not compared here, and where the bounds say nothing: one is absent, no text in
    UTF-8 (another writer has cut it within a letter) or of a wrong width, or the lower one is above the upper one.
    """
    if lower is None or upper is None:
        return None
    smallest, largest = _value_of(kind, bytes(lower)), _value_of(kind, bytes(upper))
    return None if smallest is None or largest is None or smallest > largest else (smallest, largest)


def _value_of(kind: str, bound: bytes) -> Any:  # noqa: ANN401 - depends on `kind`
    if kind == "string":
        try:
            return bound.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return int.from_bytes(bound, "little", signed=True) if len(bound) in _WIDTHS.get(kind, ()) else None


def _exact(kind: str, raw: Any) -> bytes | None:  # noqa: ANN401 - whatever the footer holds
    layout = _PACKED.get(kind)
    if layout is not None:
        return struct.pack(layout, raw)
    if kind.startswith("decimal"):
        return _decimal(raw)
    return bytes(raw) if kind == "uuid" or kind.startswith("fixed") else None


def _decimal(raw: int | bytes) -> bytes:
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _raised_text(text: str) -> bytes | None:
    if len(text) <= _TRUNCATED:
        return text.encode("utf-8")
    for end in range(_TRUNCATED, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode("utf-8")
    return None


def _raised_bytes(value: bytes) -> bytes | None:
    if len(value) <= _TRUNCATED:
        return value
    kept = value[:_TRUNCATED].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class Metrics:
    """Counts, sizes and bounds of one file, by field id."""

    def __init__(self, footer: pq.FileMetaData, types: Mapping[int, str], unbounded: set[int]) -> None:
        """Gather them from a file's Parquet footer.

        `types` maps field id to Iceberg type name, for primitive fields outside lists and maps. Fields in `unbounded`
        get no bounds (they hold NaN, which sorts differently in each engine).
        """
        self.column_sizes: dict[int, int] = {}
        self.value_counts: dict[int, int] = {}
        self.null_counts: dict[int, int] = {}
        self.lower: dict[int, bytes] = {}
        self.upper: dict[int, bytes] = {}
        self.split_offsets = tuple(_group_start(footer, group) for group in range(footer.num_row_groups))
        for field_id, position in columns_by_id(footer.schema.to_arrow_schema()).items():
            if field_id in types:
                self._column(footer, position, field_id, types[field_id], bounded=field_id not in unbounded)

    def _column(self, footer: pq.FileMetaData, position: int, field_id: int, kind: str, *, bounded: bool) -> None:
        chunks = [footer.row_group(group).column(position) for group in range(footer.num_row_groups)]
        statistics = [chunk.statistics for chunk in chunks]
        self.column_sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        self.value_counts[field_id] = sum(chunk.num_values for chunk in chunks)
        if any(one is None or not one.has_null_count for one in statistics):
            return
        self.null_counts[field_id] = sum(one.null_count for one in statistics)
        valued = [one for one in statistics if one.num_values]
        if bounded and valued and all(one.has_min_max for one in valued):
            self._bounds(field_id, kind, valued)

    def _bounds(self, field_id: int, kind: str, statistics: list[pq.Statistics]) -> None:
        smallest = _decoded_min(kind, [one.min_raw for one in statistics])
        largest = _decoded_max(kind, [one.max_raw for one in statistics])
        lower, upper = lower_bound(kind, smallest), upper_bound(kind, largest)
        if lower is not None:
            self.lower[field_id] = lower
        if upper is not None:
            self.upper[field_id] = upper


def _decoded_min(kind: str, raws: list[Any]) -> Any:  # noqa: ANN401 - whatever the footer holds
    return min(raws, key=lambda raw: _order(kind, raw))


def _decoded_max(kind: str, raws: list[Any]) -> Any:  # noqa: ANN401 - whatever the footer holds
    return max(raws, key=lambda raw: _order(kind, raw))


def _order(kind: str, raw: Any) -> Any:  # noqa: ANN401 - whatever the footer holds
    """Return a sort key: decimals of a fixed length are two's complement, and bytes would sort negative ones last."""
    return int.from_bytes(raw, "big", signed=True) if kind.startswith("decimal") and isinstance(raw, bytes) else raw


def _group_start(footer: pq.FileMetaData, group: int) -> int:
    first = footer.row_group(group).column(0)
    offsets = [first.data_page_offset, first.dictionary_page_offset]
    return min(int(offset) for offset in offsets if offset is not None)
