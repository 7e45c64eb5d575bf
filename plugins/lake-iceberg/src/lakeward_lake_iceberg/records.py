"""The values of a partition between workers, which keep what Iceberg stores, and pyiceberg's records."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from lakeward_lake_iceberg.transforms import decimal_bytes, unscaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.types import StructType

    from lakeward_lake_iceberg.detail import Value


def partition_record(values: Sequence[Value], kind: StructType) -> Record:
    """Return a partition, a value for each field, as pyiceberg writes it."""
    pairs = zip(values, kind.fields, strict=True)
    return Record(*(_own(value, field.field_type) for value, field in pairs))


def stored_value(value: Any) -> Value:  # noqa: ANN401 - whatever pyiceberg read
    """Return a value of a record of pyiceberg's as workers keep it."""
    if isinstance(value, Decimal):
        return decimal_bytes(unscaled(value))
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    if isinstance(value, date):
        return date_to_days(value)
    if isinstance(value, time):
        return time_to_micros(value)
    return value


def _own(value: Value, kind: object) -> Any:  # noqa: ANN401 - depends on `kind`
    if isinstance(kind, DecimalType) and isinstance(value, bytes):
        number = int.from_bytes(value, "big", signed=True)
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -kind.scale))
    return value
