"""Partitions: how a value is named in a path, and where the files of a partition and bucket lie."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from lakeward.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward_lake_paimon.binary_row import Value
    from lakeward_lake_paimon.kinds import Field, Kind
    from lakeward_lake_paimon.table_schema import TableSchema

_DEFAULT = "__DEFAULT_PARTITION__"
_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{}\\[\\]^]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_IN_S = 1000
_NS_IN_MS = 1_000_000
_S_IN_HOUR, _S_IN_MINUTE = 3600, 60


def partition_folder(schema: TableSchema, values: Sequence[Value]) -> str:
    """Return the folder of a partition within the table's, such as `day=2026-01-01/`; empty without partition keys."""
    fields = schema.named(schema.partition_keys)
    default = schema.options.get("partition.default-name", _DEFAULT)
    pairs = zip(fields, values, strict=True)
    return "".join(f"{_escaped(field.name)}={_escaped(_text(field, value, default))}/" for field, value in pairs)


def check_partition_names(schema: TableSchema) -> None:
    """Refuse a table whose partitions have names that only Paimon's own code can make.

    Raises:
        SchemaMismatchError: it has.
    """
    if schema.options.get("partition.legacy-name", "true") == "false":
        return
    for field in schema.named(schema.partition_keys):
        if not (field.kind.is_text or field.kind.root in {"TINYINT", "SMALLINT", "INT", "BIGINT", "BOOLEAN"}):
            message = (
                f"partition key {field.name!r} of type {field.kind}: expected the table option partition.legacy-name = "
                "false, which Fluss sets, found another one"
            )
            raise SchemaMismatchError(message)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _text(field: Field, value: Value, default: str) -> str:
    text = "" if value is None else _named(field.kind, value)
    return text if text.strip() else default


def _named(kind: Kind, value: Value) -> str:
    """Return a value as Paimon casts it to text."""
    if kind.is_timestamp:
        return _timestamp(kind, *value)
    if kind.root == "DATE":
        return str(date(1970, 1, 1) + timedelta(days=value))
    if kind.root == "TIME":
        return _time(kind, value)
    if kind.root == "DECIMAL":
        return _decimal(kind, value)
    if kind.root == "BOOLEAN":
        return str(value).lower()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _decimal(kind: Kind, value: int) -> str:
    digits = str(abs(value)).rjust(kind.scale + 1, "0")
    text = f"{digits[: -kind.scale]}.{digits[-kind.scale :]}" if kind.scale else digits
    return f"-{text}" if value < 0 else text


def _timestamp(kind: Kind, millis: int, nanos: int) -> str:
    seconds, rest = divmod(millis, _MS_IN_S)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    fraction = f"{rest * _NS_IN_MS + nanos:09d}"
    while len(fraction) > kind.digits and fraction.endswith("0"):
        fraction = fraction[:-1]
    return f"{text}.{fraction}" if fraction else text


def _time(kind: Kind, millis: int) -> str:
    seconds, rest = divmod(millis, _MS_IN_S)
    minutes = seconds % _S_IN_HOUR // _S_IN_MINUTE
    text = f"{seconds // _S_IN_HOUR:02d}:{minutes:02d}:{seconds % _S_IN_MINUTE:02d}"
    fraction = f"{rest:03d}"[: kind.digits].rstrip("0")
    return f"{text}.{fraction}" if fraction else text
