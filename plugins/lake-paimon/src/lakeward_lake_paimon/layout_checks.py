"""What a computed partition column has to hold, for `lakeward verify`: its description says of which column it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakeward.errors import UsageError
from lakeward.model.partitioning import PartitionField

if TYPE_CHECKING:
    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.snapshot_files import Json

UNKNOWN = object()
_FILLED = ", filled by Lakeward"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST = {"TINYINT": -(2**7), "SMALLINT": -(2**15), "INT": -(2**31), "BIGINT": -(2**63)}
_NS_IN_DAY, _NS_IN_HOUR = 86_400 * 10**9, 3600 * 10**9
_FORMS = {"month": "{0.year:04d}-{0.month:02d}", "hour": "{0.year:04d}-{0.month:02d}-{0.day:02d}-{0.hour:02d}"}


def computed_columns(schema: Json) -> dict[str, PartitionField]:
    """Return of which column each partition key is computed, for those that are.

    Which bucket a value is in is said by the writers alone, so nothing is returned of buckets.
    """
    found: dict[str, PartitionField] = {}
    for one in schema["fields"]:
        text = one.get("description") or ""
        if one["name"] in schema["partitionKeys"] and text.endswith(_FILLED):
            try:
                computed = PartitionField.parse(text.removesuffix(_FILLED))
            except UsageError:
                continue  # somebody else's words
            if computed.transform not in {"bucket", "identity"}:
                found[one["name"]] = computed
    return found


def computed(one: PartitionField, value: Any, kind: Kind) -> Any:  # noqa: ANN401 - values as of `stored_values`
    """Return what is computed of a value; `UNKNOWN` for times beyond the years of Python."""
    if value is None:
        return None
    if one.transform == "truncate":
        return _truncated(value, one.argument or 1, kind)
    at = value * _NS_IN_DAY if kind.root == "DATE" else value
    if one.transform == "day":
        return at // _NS_IN_DAY
    try:
        time = _EPOCH + timedelta(hours=at // _NS_IN_HOUR)
    except OverflowError:
        return UNKNOWN
    return time.year if one.transform == "year" else _FORMS[one.transform].format(time).encode()


def _truncated(value: Any, width: int, kind: Kind) -> Any:  # noqa: ANN401 - as above
    if kind.is_text:
        return value.decode()[:width].encode()
    if kind.is_bytes:
        return value[:width]
    if not isinstance(value, Decimal):
        return max(value - value % width, _LEAST[kind.root])
    number = int("".join(map(str, value.as_tuple().digits))) * (-1 if value < 0 else 1)
    least = max(number - number % width, 1 - 10**kind.digits)
    return Decimal((int(least < 0), tuple(map(int, str(abs(least)))), -kind.scale))
