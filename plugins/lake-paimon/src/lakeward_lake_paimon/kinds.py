"""Paimon's data types: their JSON form in a schema file, and the Arrow types of data files.

The names are those of Paimon's `DataTypeJsonParser`. Precisions are those of a schema file; a value is stored as Paimon
stores it, so a TIME has milliseconds whatever its precision says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIELD_ID = b"PARQUET:field_id"
MOST_DIGITS = 38
_COMPACT_TIME, _MICROSECONDS = 3, 6
"""Digits of a second up to which a timestamp is milliseconds, and microseconds; a finer one is nanoseconds."""
_LARGEST = 2**31 - 1
_ATOMIC = re.compile(
    r"(?P<root>[A-Z]+(?: PRECISION)?)\s*(?:\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>\d+)\s*)?\))?"
    r"(?P<zone> WITH(?:OUT)? (?:LOCAL )?TIME ZONE)?(?P<required> NOT NULL)?"
)
_ALIASES = {
    "INTEGER": "INT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "DOUBLE PRECISION": "DOUBLE",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ",
}
_DEFAULT_DIGITS = {"DECIMAL": 10, "TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6, "CHAR": 1, "BINARY": 1}
_TEXTS = frozenset({"CHAR", "VARCHAR", "STRING"})
_BYTES = frozenset({"BINARY", "VARBINARY", "BYTES"})


@dataclass(frozen=True, slots=True)
class Kind:
    """A data type.

    `digits` is the precision, or the length of a text or of bytes; `scale` that of a decimal. A ROW has `fields`, an
    ARRAY one child, a MAP two: key and value.
    """

    root: str
    nullable: bool = True
    digits: int = 0
    scale: int = 0
    fields: tuple[Field, ...] = ()
    children: tuple[Kind, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether values are text."""
        return self.root in _TEXTS

    @property
    def is_bytes(self) -> bool:
        """Whether values are bytes."""
        return self.root in _BYTES

    @property
    def is_timestamp(self) -> bool:
        """Whether values are timestamps, with a time zone or without."""
        return self.root in {"TIMESTAMP", "TIMESTAMP_LTZ"}

    @property
    def has_nanoseconds(self) -> bool:
        """Whether values are, or have in them, timestamps finer than a microsecond."""
        inside = (*self.children, *(field.kind for field in self.fields))
        return (self.is_timestamp and self.digits > _MICROSECONDS) or any(one.has_nanoseconds for one in inside)

    @property
    def is_nested(self) -> bool:
        """Whether values have parts."""
        return bool(self.fields or self.children) or self.root == "ROW"

    def __str__(self) -> str:
        """The form in a schema file; of a nested type, its name and what it is made of."""
        if self.root == "ROW":
            inside = ", ".join(f"{field.name} {field.kind}" for field in self.fields)
            return f"ROW<{inside}>{self._required}"
        if self.children:
            return f"{self.root}<{', '.join(map(str, self.children))}>{self._required}"
        return f"{self._atomic}{self._required}"

    @property
    def _required(self) -> str:
        return "" if self.nullable else " NOT NULL"

    @property
    def _atomic(self) -> str:
        if self.root == "DECIMAL":
            return f"DECIMAL({self.digits}, {self.scale})"
        if self.root == "TIMESTAMP_LTZ":
            return f"TIMESTAMP({self.digits}) WITH LOCAL TIME ZONE"
        if self.root in {"TIME", "TIMESTAMP", "CHAR", "BINARY", "VARCHAR", "VARBINARY"}:
            return f"{self.root}({self.digits})"
        return self.root

    def to_json(self) -> object:
        """Return the form in a schema file."""
        if self.root == "ROW":
            return {"type": f"ROW{self._required}", "fields": [field.to_json() for field in self.fields]}
        if self.root == "MAP":
            key, value = self.children
            return {"type": f"MAP{self._required}", "key": key.to_json(), "value": value.to_json()}
        if self.root == "ARRAY":
            return {"type": f"ARRAY{self._required}", "element": self.children[0].to_json()}
        return str(self)


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a ROW. `extra` is what else a schema file says of it, such as a default value."""

    id: int
    name: str
    kind: Kind
    description: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form in a schema file."""
        described = {} if self.description is None else {"description": self.description}
        return {"id": self.id, "name": self.name, "type": self.kind.to_json(), **described, **dict(self.extra)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Field:
        """Read the form in a schema file.

        Raises:
            UnknownTypeError: a type that is not known here.
        """
        known = {"id", "name", "type", "description"}
        extra = tuple((key, value) for key, value in stored.items() if key not in known)
        return cls(int(stored["id"]), stored["name"], parse_kind(stored["type"]), stored.get("description"), extra)


class UnknownTypeError(SchemaMismatchError):
    """A type in a schema file that cannot be written here; the message names it."""


def parse_kind(stored: Any) -> Kind:  # noqa: ANN401 - JSON
    """Read a type of a schema file.

    Raises:
        UnknownTypeError: it is not known here.
    """
    if isinstance(stored, str):
        return _parse_atomic(stored)
    root, _, required = str(stored["type"]).partition(" ")
    nullable = required != "NOT NULL"
    if root == "ROW":
        return Kind("ROW", nullable, fields=tuple(map(Field.from_json, stored["fields"])))
    if root == "ARRAY":
        return Kind("ARRAY", nullable, children=(parse_kind(stored["element"]),))
    if root == "MAP":
        return Kind("MAP", nullable, children=(parse_kind(stored["key"]), parse_kind(stored["value"])))
    message = f"type {stored['type']} of Paimon: expected one that Lakeward writes, found another one"
    raise UnknownTypeError(message)


def _parse_atomic(text: str) -> Kind:
    found = _ATOMIC.fullmatch(text.strip())
    root = "" if found is None else _ALIASES.get(found["root"], found["root"])
    if root == "TIMESTAMP" and found is not None and "LOCAL" in (found["zone"] or ""):
        root = "TIMESTAMP_LTZ"
    if found is None or not (root in _ARROW or root in _DEFAULT_DIGITS or root in _TEXTS or root in _BYTES):
        message = f"type {text} of Paimon: expected one that Lakeward writes, found another one"
        raise UnknownTypeError(message)
    digits = int(found["first"]) if found["first"] else _DEFAULT_DIGITS.get(root, 0)
    if root in {"VARCHAR", "VARBINARY"} and digits in {0, _LARGEST}:
        root, digits = ("STRING" if root == "VARCHAR" else "BYTES"), 0
    return Kind(root, found["required"] is None, digits, int(found["second"] or 0))


_ARROW: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
}


def arrow_field(field: Field, *, nullable: bool | None = None) -> pa.Field:
    """Return the Arrow field of data files, with the field's id for Parquet."""
    may_be_null = field.kind.nullable if nullable is None else nullable
    return pa.field(field.name, arrow_type(field.kind), nullable=may_be_null, metadata={FIELD_ID: str(field.id)})


def arrow_type(kind: Kind) -> pa.DataType:
    """Return the Arrow type of data files.

    What is nested is nullable in the files even if the table says otherwise: readers accept that, and a source need not
    repeat the nullability of every level in its batches.
    """
    return _nested_arrow_type(kind) if kind.is_nested else _atomic_arrow_type(kind)


def _nested_arrow_type(kind: Kind) -> pa.DataType:
    if kind.root == "ROW":
        return pa.struct([arrow_field(field, nullable=True) for field in kind.fields])
    if kind.root == "ARRAY":
        return pa.list_(pa.field("element", arrow_type(kind.children[0])))
    key, value = kind.children
    return pa.map_(pa.field("key", arrow_type(key), nullable=False), pa.field("value", arrow_type(value)))


def _atomic_arrow_type(kind: Kind) -> pa.DataType:
    if kind.root == "DECIMAL":
        return pa.decimal128(kind.digits, kind.scale)
    if kind.is_timestamp:
        return pa.timestamp(timestamp_unit(kind.digits), "UTC" if kind.root == "TIMESTAMP_LTZ" else None)
    if kind.is_text:
        return pa.string()
    return pa.binary() if kind.is_bytes else _ARROW[kind.root]


def timestamp_unit(digits: int) -> str:
    """Return the Arrow unit in which a timestamp of so many digits of a second is stored."""
    return "ms" if digits <= _COMPACT_TIME else "us" if digits <= _MICROSECONDS else "ns"


def paimon_kind(kind: pa.DataType, ids: Iterator[int], *, nullable: bool = True) -> Kind | None:
    """Return the Paimon type of an Arrow type, None where there is none; fields of a ROW take their ids from `ids`."""
    found = _nested_kind(kind, ids) or _timed_kind(kind) or _plain_kind(kind)
    return None if found is None else replace(found, nullable=nullable)


def _nested_kind(kind: pa.DataType, ids: Iterator[int]) -> Kind | None:
    if pa.types.is_struct(kind) and kind.num_fields:
        # A field's id comes before those of the fields inside it, as Paimon numbers them.
        fields = []
        for child in kind:
            number = next(ids)
            inner = paimon_kind(child.type, ids, nullable=child.nullable)
            if inner is None:
                return None
            fields.append(Field(number, child.name, inner))
        return Kind("ROW", fields=tuple(fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = paimon_kind(kind.value_type, ids, nullable=kind.value_field.nullable)
        return None if element is None else Kind("ARRAY", children=(element,))
    if pa.types.is_map(kind):
        key = paimon_kind(kind.key_type, ids, nullable=False)
        value = paimon_kind(kind.item_type, ids, nullable=kind.item_field.nullable)
        return None if key is None or value is None else Kind("MAP", children=(key, value))
    return None


def _timed_kind(kind: pa.DataType) -> Kind | None:
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}
    if pa.types.is_timestamp(kind):
        return Kind("TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ", digits=digits[kind.unit])
    # Paimon stores milliseconds, whatever the precision.
    return Kind("TIME", digits=min(digits[kind.unit], _COMPACT_TIME)) if pa.types.is_time(kind) else None


def _plain_kind(kind: pa.DataType) -> Kind | None:
    if pa.types.is_dictionary(kind):
        return _plain_kind(kind.value_type)
    if pa.types.is_decimal(kind):
        fits = kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision
        return Kind("DECIMAL", digits=kind.precision, scale=kind.scale) if fits else None
    # Before bytes of any length: Arrow has those of one length as a type of its own.
    if pa.types.is_fixed_size_binary(kind):
        return Kind("BINARY", digits=kind.byte_width)
    return next((Kind(root) for fits, root in _PLAIN if fits(kind)), None)


_PLAIN = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INT"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_large_string, "STRING"),
    (pa.types.is_string_view, "STRING"),
    (pa.types.is_binary, "BYTES"),
    (pa.types.is_large_binary, "BYTES"),
    (pa.types.is_binary_view, "BYTES"),
)
