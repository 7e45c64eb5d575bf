"""Refuses a table whose lake table is that of an older one: its round would set that one aside."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError
from lakeward.model.lake_names import LakeNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TablePath
    from lakeward.ports import Source


class LakeTables:
    """The lake tables of all tables of a source, looked up again for a table that is not known. Thread-safe."""

    def __init__(self, source: Source, rules: Callable[[TablePath], TableSettings]) -> None:
        self._source = source
        self._rules = rules
        self._refused: dict[TablePath, ConfigError | None] = {}
        """By table: why it has no lake table of its own."""
        self._lock = threading.Lock()

    def check(self, path: TablePath) -> None:
        """Check that no older table has the lake table of this one. Blocking.

        Raises:
            ConfigError: one has; names both.
            SourceError: the tables cannot be listed.
        """
        with self._lock:
            if self._refused.get(path, path) is not None:  # not known, or refused: the other one may be gone by now
                self._refused = self._look()
            refused = self._refused.get(path)
        if refused is not None:
            raise refused

    def _look(self) -> dict[TablePath, ConfigError | None]:
        found: dict[TablePath, ConfigError | None] = {}
        names = LakeNames()
        for table in sorted(self._source.all_tables(), key=lambda table: table.table_id):
            rules = self._rules(table.path)
            if not rules.include:
                continue
            try:
                names.add(table.path, rules)
            except ConfigError as refused:
                found[table.path] = refused
            else:
                found[table.path] = None
        return found
