"""How a table's log and its rows are stored, by its properties. What is not known is refused early."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from lakeward.errors import NewerSourceError
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import LogFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TablePath, TableSpec

LOG_FORMAT = "table.log.format"
KV_FORMAT = "table.kv.format"
KV_FORMAT_VERSION = "table.kv.format-version"
CHANGELOG_IMAGE = "table.changelog.image"
LAKE_ENABLED = "table.datalake.enabled"
LAKE_FORMAT = "table.datalake.format"
HISTORICAL = "table.datalake.historical-partition.enabled"
_ROW_TTL = ("table.kv.ttl", "table.kv.row.ttl")
"""Names that the row TTL of 1.0 has in its sources."""
_KV_FORMAT_VERSIONS = ("1", "2")
"""2 has other keys than 1; keys are never decoded here. 3 has a timestamp before each row."""
_Format = TypeVar("_Format", bound=StrEnum)


class ChangelogImage(StrEnum):
    """What the log holds of an update: with WAL not the row from before it."""

    FULL = "FULL"
    WAL = "WAL"


class LakeFormat(StrEnum):
    """The lakes that servers have; it says how keys are spread over buckets."""

    NONE = ""
    ICEBERG = "ICEBERG"
    PAIMON = "PAIMON"
    LANCE = "LANCE"
    HUDI = "HUDI"


class _Switch(StrEnum):
    """A property that is on or off."""

    ON = "TRUE"
    OFF = "FALSE"


def log_format(table: TableSpec) -> LogFormat:
    """Return how a table's log is stored.

    Raises:
        NewerSourceError: in a way that is not known here.
    """
    return _choice(table.path, table.properties, LOG_FORMAT, LogFormat.ARROW)


def kv_encoding(table: TableSpec) -> Encoding:
    """Return how a table's rows are stored in snapshots. Raises as `log_format`."""
    return _choice(table.path, table.properties, KV_FORMAT, Encoding.COMPACTED)


def before_images(path: TablePath, properties: Mapping[str, str]) -> bool:
    """Return whether the log holds the row from before each update. Raises as `log_format`."""
    return _choice(path, properties, CHANGELOG_IMAGE, ChangelogImage.FULL) is ChangelogImage.FULL


def is_lake_enabled(path: TablePath, properties: Mapping[str, str]) -> bool:
    """Return whether the server wants a table to be tiered. Raises as `log_format`."""
    return _choice(path, properties, LAKE_ENABLED, _Switch.OFF) is _Switch.ON


def has_late_rows(path: TablePath, properties: Mapping[str, str]) -> bool:
    """Return whether the server keeps rows of expired partitions, in a partition of their own. Raises as `log_format`.

    Source: fluss.md, "Historical partitions".
    """
    return _choice(path, properties, HISTORICAL, _Switch.OFF) is _Switch.ON


def check_lake_format(table: TableSpec) -> None:
    """Check that it is known what the server's lake is, before a snapshot of a lake is registered with it.

    Raises:
        NewerSourceError: it is not; names the property.
    """
    _choice(table.path, table.properties, LAKE_FORMAT, LakeFormat.NONE)


def check_formats(path: TablePath, properties: Mapping[str, str], *, has_primary_key: bool) -> None:
    """Check that a table is stored, by its properties, in ways that are known here.

    Raises:
        NewerSourceError: it is not; names the property.
    """
    _choice(path, properties, LOG_FORMAT, LogFormat.ARROW)
    if has_late_rows(path, properties) and (lake := properties.get(LAKE_FORMAT, "")).upper() != LakeFormat.PAIMON:
        found = f"true, and {LAKE_FORMAT} {lake!r}"
        raise _refusal(path, f"{HISTORICAL} = true for {LAKE_FORMAT} 'paimon' alone", found, _OF_HISTORICAL)
    if not has_primary_key:
        return
    _choice(path, properties, KV_FORMAT, Encoding.COMPACTED)
    version = properties.get(KV_FORMAT_VERSION, _KV_FORMAT_VERSIONS[0])
    ttl = next((f"{key} = {properties[key]!r}" for key in _ROW_TTL if key in properties), "")
    if version not in _KV_FORMAT_VERSIONS:
        expected = f"{KV_FORMAT_VERSION} {' or '.join(_KV_FORMAT_VERSIONS)}"
        raise _refusal(path, expected, version, f"it has {ttl}: {_OF_TTL}" if ttl else "")
    if ttl:
        raise _refusal(path, f"no {' or '.join(_ROW_TTL)}", ttl, _OF_TTL)


_OF_TTL = "rows that expire leave no deletes in the log, so the lake would keep them; leave the table out"
_OF_HISTORICAL = "it is not known what rows of expired partitions would be in; leave the table out, or switch it off"


def _choice(path: TablePath, properties: Mapping[str, str], key: str, default: _Format) -> _Format:
    known = type(default)
    text = properties.get(key, default.value)
    try:
        return known(text.upper())
    except ValueError:
        raise _refusal(path, f"{key} as one of {', '.join(filter(None, known))}", text, "") from None


def _refusal(path: TablePath, expected: str, found: str, why: str) -> NewerSourceError:
    error = NewerSourceError.at(f"table {path}", expected, found)
    return NewerSourceError(f"{error}; {why}") if why else error
