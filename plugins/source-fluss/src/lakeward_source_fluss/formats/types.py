"""Fluss's data types (fluss.md, "Tables and types"), their JSON form and their Arrow form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import NewerSourceError, SchemaMismatchError
from lakeward.model.tables import PRECISION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DEPTH = 32
"""Nested types deeper than this are refused, so that a hostile schema cannot exhaust the stack."""
_WHERE = "Fluss schema"
_MAX_PRECISION = 38
_MAX_TIME_PRECISION = 9
_MAX_LENGTH = (1 << 31) - 1
COMPACT_DECIMAL = 18
"""Decimals up to this precision are stored as a long."""
COMPACT_TIMESTAMP = 3
"""Timestamps up to this precision are stored as milliseconds alone."""
MOST_PRECISE = 6
"""Timestamps are given on with at most so many digits: lakes hold microseconds, and nanoseconds end in 2262."""


class Kind(StrEnum):
    """The root of a type; the values are the names in Fluss's JSON."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    BYTES = "BYTES"
    STRING = "STRING"
    CHAR = "CHAR"
    BINARY = "BINARY"
    DECIMAL = "DECIMAL"
    TIME = "TIME_WITHOUT_TIME_ZONE"
    TIMESTAMP = "TIMESTAMP_WITHOUT_TIME_ZONE"
    TIMESTAMP_LTZ = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"


@dataclass(frozen=True, slots=True)
class FlussType:
    """A data type. `children` are the element of an array, key and value of a map, the fields of a row."""

    kind: Kind
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0
    children: tuple[FlussField, ...] = ()

    def to_arrow(self, *, logged: bool = False) -> pa.DataType:
        """Return the Arrow type; TIMESTAMP_LTZ is in UTC.

        If `logged`, it is as Fluss writes it to its logs. There timestamps of more than six digits are nanoseconds,
        which end in the year 2262; everywhere else they are microseconds.
        """
        make = _NESTED.get(self.kind)
        if make is not None:
            return make(self.children, logged)
        if self.kind in {Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}:
            unit = time_unit(self.precision if logged else min(self.precision, MOST_PRECISE))
            return pa.timestamp(unit, "UTC" if self.kind is Kind.TIMESTAMP_LTZ else None)
        make_sized = _SIZED.get(self.kind)
        return _PLAIN[self.kind] if make_sized is None else make_sized(self)


@dataclass(frozen=True, slots=True)
class FlussField:
    """A named type: a column's, or a child of a nested type."""

    name: str
    type: FlussType
    comment: str | None = None
    field_id: int = -1

    def to_arrow(self, *, logged: bool = False) -> pa.Field:
        """Return the Arrow field. `logged` as for the type.

        Metadata: a comment as `comment`, and the digits of a timestamp that is given on with fewer as `precision`.
        """
        metadata = {} if self.comment is None else {b"comment": self.comment.encode("utf-8")}
        if self.type.kind in {Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ} and self.type.precision > MOST_PRECISE:
            metadata[PRECISION] = b"%d" % self.type.precision
        kind = self.type.to_arrow(logged=logged)
        return pa.field(self.name, kind, nullable=self.type.nullable, metadata=metadata or None)


_PLAIN: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INTEGER: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.BYTES: pa.binary(),
    Kind.STRING: pa.string(),
    Kind.CHAR: pa.string(),
}
_UNITS = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")
"""The unit of a time or timestamp by its precision."""


def time_unit(precision: int) -> str:
    """Return the Arrow unit of a TIME or TIMESTAMP of this precision (0 to 9)."""
    return _UNITS[precision]


def _arrow_time(kind: FlussType) -> pa.DataType:
    unit = time_unit(kind.precision)
    return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)


_SIZED: dict[Kind, Callable[[FlussType], pa.DataType]] = {
    Kind.BINARY: lambda kind: pa.binary(kind.length),
    Kind.DECIMAL: lambda kind: pa.decimal128(kind.precision, kind.scale),
    Kind.TIME: _arrow_time,
}
_NESTED: dict[Kind, Callable[[tuple[FlussField, ...], bool], pa.DataType]] = {
    Kind.ARRAY: lambda children, logged: pa.list_(children[0].to_arrow(logged=logged)),
    # Arrow's map keys are never null, whatever Fluss's key type says.
    Kind.MAP: lambda children, logged: pa.map_(
        children[0].type.to_arrow(logged=logged), children[1].to_arrow(logged=logged)
    ),
    Kind.ROW: lambda children, logged: pa.struct([child.to_arrow(logged=logged) for child in children]),
}


def parse_type(value: object, depth: int = 0) -> FlussType:
    """Read a `data_type` object of Fluss's JSON, parsed; `depth` is how deep it is nested.

    Raises:
        NewerSourceError: not a type that is known here; says what was found.
        SchemaMismatchError: not a whole type.
    """
    if depth > MAX_DEPTH:
        raise _refusal(depth, f"types nested at most {MAX_DEPTH} deep")
    if not isinstance(value, dict):
        raise _refusal(value, "a data type as a JSON object")
    try:
        kind = Kind(str(value.get("type")))
    except ValueError:
        raise NewerSourceError.at(_WHERE, "a known data type", value.get("type")) from None
    children = _children(kind, value, depth + 1)
    nullable = value.get("nullable", True)
    if not isinstance(nullable, bool):
        raise _refusal(nullable, "nullable as a boolean")
    return FlussType(kind, nullable, *_sizes(kind, value), children)


def _children(kind: Kind, value: Mapping[str, Any], depth: int) -> tuple[FlussField, ...]:
    if kind is Kind.ARRAY:
        return (FlussField("element", parse_type(value.get("element_type"), depth)),)
    if kind is Kind.MAP:
        key = parse_type(value.get("key_type"), depth)
        return (FlussField("key", key), FlussField("value", parse_type(value.get("value_type"), depth)))
    if kind is not Kind.ROW:
        return ()
    fields = value.get("fields")
    if not isinstance(fields, list):
        raise _refusal(fields, "a list of a row's fields")
    return tuple(_row_field(field, depth) for field in fields)


def _row_field(value: object, depth: int) -> FlussField:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _refusal(value, "a row's field with a name")
    return FlussField(
        value["name"],
        parse_type(value.get("field_type"), depth),
        text_or_none(value, "description"),
        number(value, "field_id", -1, (-1, _MAX_LENGTH)),
    )


def _sizes(kind: Kind, value: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return (length, precision, scale), 0 where the kind has none."""
    if kind in {Kind.CHAR, Kind.BINARY}:
        return number(value, "length", None, (1, _MAX_LENGTH)), 0, 0
    if kind is Kind.DECIMAL:
        precision = number(value, "precision", None, (1, _MAX_PRECISION))
        return 0, precision, number(value, "scale", None, (0, precision))
    if kind in {Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}:
        return 0, number(value, "precision", None, (0, _MAX_TIME_PRECISION)), 0
    return 0, 0, 0


def number(value: Mapping[str, Any], key: str, default: int | None, limits: tuple[int, int]) -> int:
    """Return an integer of a JSON object, between two limits; `default` where the key is missing, if there is one.

    Raises:
        SchemaMismatchError: missing, no integer, or out of the limits.
    """
    found = value.get(key, default)
    low, high = limits
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        raise _refusal(found, f"{key} between {low} and {high}")
    return found


def text_or_none(value: Mapping[str, Any], key: str) -> str | None:
    """Return a text of a JSON object, None where it is missing.

    Raises:
        SchemaMismatchError: it is something else.
    """
    found = value.get(key)
    if found is None or isinstance(found, str):
        return found
    raise _refusal(found, f"{key} as text")


def _refusal(found: object, expected: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"{_WHERE}: expected {expected}, found {found!r:.200}")
