"""How a table's log and its KV snapshots are stored, by its properties."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from lakeward.errors import SourceError
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import LogFormat

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec

LOG_FORMAT = "table.log.format"
KV_FORMAT = "table.kv.format"
_Format = TypeVar("_Format", bound=StrEnum)


def log_format(table: TableSpec) -> LogFormat:
    """Return how a table's log is stored.

    Raises:
        SourceError: in a way that is not known here.
    """
    return _format(table, LOG_FORMAT, LogFormat.ARROW)


def kv_encoding(table: TableSpec) -> Encoding:
    """Return how a table's rows are stored in snapshots. Raises as `log_format`."""
    return _format(table, KV_FORMAT, Encoding.COMPACTED)


def _format(table: TableSpec, key: str, default: _Format) -> _Format:
    known = type(default)
    text = table.properties.get(key, default.value)
    try:
        return known(text.upper())
    except ValueError:
        message = f"table {table.path}: {key}: expected one of {', '.join(known)}, found {text!r}"
        raise SourceError(message) from None
