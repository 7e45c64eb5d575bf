"""Warns of columns, and fields of nested rows, whose names differ in case alone: some engines refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.model.alike_names import alike_names

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec

RENAME = "rename one of them in the source, or set spark.sql.caseSensitive=true where Spark reads the table"
_log = structlog.get_logger("lakeward.rounds")


def alike_message(one: str, other: str) -> str:
    """Say of two columns, or fields, why they are a warning."""
    return f"{one!r} and {other!r} differ in case alone: some engines refuse such a table"


class AlikeColumns:
    """Warns once of each two columns, or fields, of a table since the service started."""

    def __init__(self) -> None:
        self._known: set[tuple[int, str, str]] = set()

    def look(self, table: TableSpec) -> None:
        """Warn of the columns and fields of a table that were not warned of."""
        for one, other in alike_names(table.schema):
            if (table.table_id, one, other) not in self._known:
                self._known.add((table.table_id, one, other))
                _log.warning(alike_message(one, other), table=str(table.path), action=RENAME)
