"""Columns as text, in Fluss's SQL type names: `id bigint not null, name string, tags array<string>`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from lakeward.errors import UsageError
from lakeward.model.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w]*)|`(?P<quoted>[^`]+)`|(?P<number>\d+)|(?P<mark>[<>(),:]))")
_PLAIN: dict[str, Callable[[], pa.DataType]] = {
    "boolean": pa.bool_,
    "bool": pa.bool_,
    "tinyint": pa.int8,
    "smallint": pa.int16,
    "int": pa.int32,
    "integer": pa.int32,
    "bigint": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "string": pa.string,
    "bytes": pa.binary,
    "date": pa.date32,
}
TYPES = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), char(n), string, binary(n), bytes, date, "
    "time(p), timestamp(p), timestamp_ltz(p), array<T>, map<K,V>, row<NAME TYPE, ...>"
)
_ELSEWHERE = {
    "varchar": "string",
    "text": "string",
    "long": "bigint",
    "numeric": "decimal",
    "list": "array",
    "struct": "row",
}
"""Types of other systems, and what they are called here."""
_DECIMAL_MOST = 38
_PRECISION_MOST = 9
_LENGTH_MOST = 2**31 - 1
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def parse_columns(text: str, keys: Collection[str] = ()) -> pa.Schema:
    """Read a column list: `NAME TYPE [not null]`, joined by commas; the types are `TYPES`.

    A name in backticks may hold anything. Columns in `keys` have a value in each row, so `null` must not be said of
    them.

    Raises:
        UsageError: names the piece that does not fit.

    Source: Fluss data types (fluss.md, "Lake tables").
    """
    parser = _Parser(text, keys)
    fields = parser.fields(end=None)
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            message = f"columns: expected distinct names, found {name!r} more than once"
            raise UsageError(message)
    return pa.schema(fields)


def unit_of(precision: int) -> str:
    """Return the Arrow unit that holds so many digits of a second."""
    return ("s", "ms", "us", "ns")[(precision + 2) // 3]


def columns_text(schema: pa.Schema) -> str:
    """Return columns as `parse_columns` reads them."""
    return ", ".join(f"{_quoted(field.name)} {_field_text(field)}" for field in schema)


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether a type is another one than the first and holds all its values, as a column may be widened."""
    types = pa.types
    if types.is_decimal(narrow) and types.is_decimal(wide):
        return bool(narrow.scale == wide.scale and narrow.precision < wide.precision)
    if types.is_signed_integer(narrow) and types.is_signed_integer(wide):
        return bool(narrow.bit_width < wide.bit_width)
    return bool(types.is_float32(narrow) and types.is_float64(wide))


def type_text(kind: pa.DataType) -> str:  # noqa: PLR0911 - one for each kind of type
    """Return a type's name, as `parse_columns` reads it."""
    types = pa.types
    plain = {make(): name for name, make in reversed(_PLAIN.items())}
    if kind in plain:
        return plain[kind]
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_fixed_size_binary(kind):
        return f"binary({kind.byte_width})"
    if types.is_time(kind):
        return f"time({_DIGITS[kind.unit]})"
    if types.is_timestamp(kind):
        return f"timestamp{'' if kind.tz is None else '_ltz'}({_DIGITS[kind.unit]})"
    if types.is_list(kind):
        return f"array<{_field_text(kind.value_field)}>"
    if types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {_field_text(kind.item_field)}>"
    if types.is_struct(kind):
        return f"row<{columns_text(pa.schema(list(kind)))}>"
    return str(kind)


def _field_text(field: pa.Field) -> str:
    return f"{type_text(field.type)}{'' if field.nullable else ' not null'}"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"


class _Parser:
    """A recursive descent over the tokens of one column list."""

    def __init__(self, text: str, keys: Collection[str]) -> None:
        self._text = text
        self._keys = keys
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                self._refuse("a name, a number or one of < > ( ) , :", text[position:].strip()[:20])
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind]))
            position = match.end()

    def fields(self, end: str | None) -> list[pa.Field]:
        keys = self._keys if end is None else ()
        fields = [self._field(keys)]
        while self._peek() == ",":
            self._next()
            fields.append(self._field(keys))
        if end is not None:
            self._expect(end)
        elif self._at < len(self._tokens):
            self._refuse("a comma or the end", self._peek())
        return fields

    def _field(self, keys: Collection[str]) -> pa.Field:
        kind, name = self._next()
        if kind not in {"name", "quoted"}:
            self._refuse("a column name", name)
        if self._peek() == ":":
            self._next()
        data_type = self._type(name)
        if name in keys and self._peek().lower() == "null":
            self._refuse(f"key column {name!r} to be not null", "null")
        return pa.field(name, data_type, nullable=self._nullable())

    def _nullable(self) -> bool:
        keyword = self._peek().lower()
        if keyword == "null":
            self._next()
        if keyword != "not":
            return True
        self._next()
        found = self._next()[1]
        if found.lower() != "null":
            self._refuse("'null' after 'not'", found)
        return False

    def _type(self, column: str) -> pa.DataType:
        keyword = self._peek() and self._next()[1]
        name = keyword.lower()
        if name in _PLAIN:
            return _PLAIN[name]()
        builder = getattr(self, f"_type_{name}", None)
        if builder is None:
            known = re.findall(r"(?:^|, )(\w+)", TYPES)
            meant = did_you_mean(name, known) if name not in _ELSEWHERE else f"Did you mean {_ELSEWHERE[name]!r}?"
            self._refuse(f"for column {column!r} one of the types {TYPES}", keyword or "nothing", meant)
        built: pa.DataType = builder()
        return built

    def _type_decimal(self) -> pa.DataType:
        numbers = self._numbers(2) or [10, 0]
        precision, scale = (*numbers, 0)[:2]
        if not (1 <= precision <= _DECIMAL_MOST and scale <= precision):
            self._refuse("decimal(p,s) with 1 <= p <= 38 and s <= p", f"decimal({precision},{scale})")
        return pa.decimal128(precision, scale)

    def _type_char(self) -> pa.DataType:
        self._length()
        return pa.string()

    def _type_binary(self) -> pa.DataType:
        return pa.binary(self._length())

    def _type_time(self) -> pa.DataType:
        unit = unit_of(self._precision(0))
        return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)

    def _type_timestamp(self) -> pa.DataType:
        return pa.timestamp(unit_of(self._precision(6)))

    def _type_timestamp_ltz(self) -> pa.DataType:
        return pa.timestamp(unit_of(self._precision(6)), tz="UTC")

    def _type_array(self) -> pa.DataType:
        self._expect("<")
        element = pa.field("element", self._type("element"), nullable=self._nullable())
        self._expect(">")
        return pa.list_(element)

    def _type_map(self) -> pa.DataType:
        self._expect("<")
        key = self._type("key")
        self._nullable()
        self._expect(",")
        value = pa.field("value", self._type("value"), nullable=self._nullable())
        self._expect(">")
        return pa.map_(pa.field("key", key, nullable=False), value)

    def _type_row(self) -> pa.DataType:
        mark = self._next()[1]
        if mark not in {"<", "("}:
            self._refuse("'<' after 'row'", mark)
        return pa.struct(self.fields(end=">" if mark == "<" else ")"))

    def _length(self) -> int:
        length = (self._numbers(1) or [1])[0]
        if not 1 <= length <= _LENGTH_MOST:
            self._refuse(f"a length from 1 to {_LENGTH_MOST}", length)
        return length

    def _precision(self, default: int) -> int:
        numbers = self._numbers(1) or [default]
        if numbers[0] > _PRECISION_MOST:
            self._refuse("a precision from 0 to 9", numbers[0])
        return numbers[0]

    def _numbers(self, most: int) -> list[int]:
        if self._peek() != "(":
            return []
        self._next()
        numbers = [self._number()]
        while self._peek() == "," and len(numbers) < most:
            self._next()
            numbers.append(self._number())
        self._expect(")")
        return numbers

    def _number(self) -> int:
        kind, text = self._next()
        if kind != "number":
            self._refuse("a number", text)
        return int(text)

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            self._refuse("more", "the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        found = self._next()[1]
        if found != mark:
            self._refuse(repr(mark), found)

    def _refuse(self, expected: str, found: object, hint: str = "") -> NoReturn:
        message = f"columns {self._text!r}: expected {expected}, found {found!r}. {hint}".removesuffix(". ")
        raise UsageError(message)
