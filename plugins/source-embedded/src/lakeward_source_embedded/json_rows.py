"""Rows of JSON, an object each, as batches of a table's columns; what does not fit is named with its column and row."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import RowError, short_repr
from lakeward.model.batches import find_failing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lakeward.model.tables import TableSpec

    Rows = Sequence[tuple[int, Mapping[str, object]]]

_BATCH_ROWS = 10_000
_MARK = b"\xef\xbb\xbf"
"""What some programs write in front of UTF-8."""


_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?")
_UNFIT = (pa.ArrowException, OverflowError, UnicodeEncodeError)
"""What Arrow raises for a value that its type does not hold; the last one for half of a surrogate pair."""
_GREATEST_FLOAT = float(2**128 - 2**103)
"""Of a float of 32 bits, with what is rounded to it; Arrow would make greater ones infinite."""
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class _MisfitError(Exception):
    """A value is of another kind than its column."""


def read_json_lines(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    """Read a file with a JSON object on each line, batch by batch; empty lines are left out.

    `change` is the name of the column that says insert, update or delete.

    Raises:
        RowError: names column and row of what does not fit: the line of the file, from 1.
    """
    with path.open("rb") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        while some := list(islice(lines, _BATCH_ROWS)):
            yield batch_of(
                spec, [(number, _object(spec, number, line)) for number, line in some], change, complete=change is None
            )


def json_schema(path: Path) -> pa.Schema:
    """Guess the columns of a file of JSON lines from its first megabyte."""
    from pyarrow import json as arrow_json  # noqa: PLC0415 - only who names such a file pays for it

    with path.open("rb") as file:
        data = file.read(1 << 20).removeprefix(_MARK)
        data += file.readline()
    return arrow_json.read_json(pa.py_buffer(data), arrow_json.ReadOptions(block_size=len(data) + 1)).schema


def parse_object(text: str | bytes) -> Mapping[str, object]:
    """Read one object; numbers with a fraction are kept as they are written.

    Raises:
        ValueError: it is none.
    """
    found = parse_value(text)
    if not isinstance(found, dict):
        message = f"found a JSON {type(found).__name__}"
        raise ValueError(message)  # noqa: TRY004 - the text is wrong, not a type of ours
    return found


def parse_value(text: str | bytes) -> object:
    """Read a value of JSON; numbers with a fraction are kept as they are written.

    Raises:
        ValueError: it is none, too deep, or names something twice, of which JSON would keep the last.
    """
    try:
        return json.loads(text, parse_float=Decimal, object_pairs_hook=_object_of)
    except RecursionError as error:
        message = "it is too deep"
        raise ValueError(message) from error


def _object_of(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        message = "it names something twice"
        raise ValueError(message)
    return found


def batch_of(spec: TableSpec, rows: Rows, change: str | None, *, complete: bool) -> pa.RecordBatch:
    """Return rows, each with its number, as a batch; it has the columns that any of them has.

    Times are texts as in ISO 8601, decimals numbers or texts, bytes texts in base64, maps objects or lists of pairs. If
    they are `complete`, columns that must not be null have a value.

    Raises:
        RowError: names column and row of what does not fit.
    """
    known = {field.name: field.type for field in spec.schema}
    known |= {} if change is None or change in known else {change: pa.string()}
    present: dict[str, None] = {}
    for number, row in rows:
        present |= dict.fromkeys(row)
        if unknown := [name for name in row if name not in known]:
            expected = ", ".join(known)
            message = f"table {spec.path}, row {number}: expected the columns {expected}, found {unknown[0]!r}"
            raise RowError(message)
    if complete:
        _check_complete(spec, rows)
    arrays = [_column(spec, name, known[name], rows) for name in present]
    return pa.RecordBatch.from_arrays(arrays, names=list(present))


def _check_complete(spec: TableSpec, rows: Rows) -> None:
    for field in spec.schema:
        for number, row in () if field.nullable else rows:
            if row.get(field.name) is None:
                where = f"table {spec.path}, column {field.name!r}, row {number}"
                message = f"{where}: expected {field.type} not null, found None"
                raise RowError(message)


def _object(spec: TableSpec, number: int, line: bytes) -> Mapping[str, object]:
    try:
        return parse_object(line.removeprefix(_MARK) if number == 1 else line)
    except ValueError as error:
        text = short_repr(line.decode("utf-8", "replace").strip())
        message = f"table {spec.path}, row {number}: expected a JSON object, found {text} ({error})"
        raise RowError(message) from error


def _column(
    spec: TableSpec, name: str, kind: pa.DataType, rows: Sequence[tuple[int, Mapping[str, object]]]
) -> pa.Array:
    def refusal(at: int) -> RowError:
        number, row = rows[at]
        where = f"table {spec.path}, column {name!r}, row {number}"
        return RowError(f"{where}: expected {kind}, found {short_repr(row.get(name))}")

    plain: list[object] = []
    for at, (_, row) in enumerate(rows):
        try:
            plain.append(_plain(kind, row.get(name)))
        except _MisfitError as error:
            raise refusal(at) from error

    def fails(first: int, count: int) -> bool:
        try:
            pa.array(plain[first : first + count], _texts(kind)).cast(kind)
        except _UNFIT:
            return True
        return False

    try:
        return pa.array(plain, _texts(kind)).cast(kind)
    except _UNFIT as error:
        raise refusal(find_failing(len(plain), fails)) from error


def _texts(kind: pa.DataType) -> pa.DataType:
    """Return the type from which Arrow casts: with texts in the places of dates, timestamps and decimals."""
    types = pa.types
    if types.is_time(kind):
        return pa.int32() if types.is_time32(kind) else pa.int64()
    if types.is_temporal(kind) or types.is_decimal(kind):
        return pa.string()
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_texts(kind.value_type)))
    if types.is_map(kind):
        item = kind.item_field.with_type(_texts(kind.item_type))
        return pa.map_(kind.key_field.with_type(_texts(kind.key_type)), item)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_texts(field.type)) for field in kind])
    return kind


def _plain(kind: pa.DataType, value: object) -> object:
    """Return a value as `pa.array` takes it for `_texts(kind)`.

    Raises:
        _MisfitError: it is of another kind.
    """
    if value is None:
        return None
    if pa.types.is_nested(kind):
        return _nested(kind, value)
    if pa.types.is_floating(kind):
        return _float(kind, _of(value, int, float, Decimal))
    for is_of, kinds, convert in _SCALARS:
        if is_of(kind):
            return convert(_of(value, *kinds))
    return _time(kind, _of(value, str)) if pa.types.is_time(kind) else _of(value, str)


def _nested(kind: pa.DataType, value: object) -> object:
    if pa.types.is_list(kind):
        return [_plain(kind.value_type, one) for one in _of(value, list)]
    if pa.types.is_map(kind):
        return [(_key(kind.key_type, key), _plain(kind.item_type, one)) for key, one in _pairs(_of(value, dict, list))]
    return _struct(kind, _of(value, dict))


def _of(value: object, *kinds: type) -> Any:  # noqa: ANN401 - one of the kinds
    if isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds):
        return value
    raise _MisfitError


def _float(kind: pa.DataType, value: float | Decimal) -> float:
    """Return a number as a float, if it is not too great for one; of JSON's own only infinity and NaN are floats."""
    if isinstance(value, float):
        return value
    try:
        found = float(value)
    except OverflowError as error:
        raise _MisfitError from error
    if math.isinf(found) or (pa.types.is_float32(kind) and abs(found) >= _GREATEST_FLOAT):
        raise _MisfitError
    return found


def _time(kind: pa.DataType, text: str) -> int:
    """Return a time of the day in the column's unit."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise _MisfitError
    hours, minutes, seconds, fraction = (int(part or 0) for part in (*found.groups()[:3], f"{found[4] or '':0<9}"))
    count, rest = divmod(((hours * 60 + minutes) * 60 + seconds) * 10**9 + fraction, _NANOSECONDS[kind.unit])
    if rest:
        raise _MisfitError
    return count


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise _MisfitError from error


_SCALARS: Sequence[tuple[Callable[[pa.DataType], bool], tuple[type, ...], Callable[[Any], object]]] = (
    (pa.types.is_boolean, (bool,), bool),
    (pa.types.is_integer, (int,), int),
    (pa.types.is_decimal, (int, Decimal, str), str),
    (pa.types.is_binary, (str,), _bytes),
    (pa.types.is_fixed_size_binary, (str,), _bytes),
)
"""Of each kind of column, what JSON may have for it, and what becomes of that; decimals count as binaries, too."""


def _struct(kind: pa.StructType, value: Mapping[str, object]) -> Mapping[str, object]:
    types = {field.name: field.type for field in kind}
    if not value.keys() <= types.keys():
        raise _MisfitError
    return {name: _plain(types[name], one) for name, one in value.items()}


def _pairs(value: Mapping[str, object] | Sequence[object]) -> Iterator[tuple[object, object]]:
    if isinstance(value, dict):
        yield from value.items()
        return
    for pair in value:
        key, item = pair if isinstance(pair, list) and len(pair) == 2 else _of(pair)  # noqa: PLR2004 - a pair
        yield key, item


def _key(kind: pa.DataType, key: object) -> object:
    """Return the key of a map: names of an object are texts, whatever the keys are."""
    if isinstance(key, str) and not pa.types.is_string(kind):
        return _plain(kind, from_text(kind, key))
    return _plain(kind, key)


def from_text(kind: pa.DataType, text: str) -> object:
    """Return a value as JSON would have it, of a text that stands for one; the text itself where it does not."""
    types = pa.types
    if types.is_boolean(kind):
        return {"true": True, "false": False}.get(text.lower(), text)
    read: Callable[[str], object] | None = None
    if types.is_nested(kind):
        read = parse_value
    elif types.is_integer(kind) or types.is_floating(kind):
        read = int if types.is_integer(kind) else Decimal
    if read is None:
        return text
    try:
        return read(text)
    except (ValueError, ArithmeticError):
        return text
