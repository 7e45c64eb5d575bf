"""No two tables go to one lake table: `lake_name` and `lake_namespace` could give two of them the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError
from lakeward.model.dead_letters import path_of
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward.model.settings import TableSettings


@dataclass(frozen=True, slots=True)
class _Use:
    """A lake table, and whose it is. `key` is the key that names it; empty: it has the name of the source's table."""

    lake_table: TablePath
    table: TablePath
    letters: bool
    key: str

    @property
    def what(self) -> str:
        return f"{'the dead letters of ' if self.letters else ''}{self.table}"


class LakeNames:
    """The lake tables of some tables, and of their dead letters.

    Names that differ in case alone count as one where the configuration gives one of them, as many catalogs do not tell
    them apart. Names that are all the source's own are left to the lake.
    """

    def __init__(self) -> None:
        self._uses: dict[TablePath, list[_Use]] = {}

    def add(self, path: TablePath, rules: TableSettings) -> None:
        """Add the lake tables of a table.

        Raises:
            ConfigError: another one has one of them; names both, and nothing was added.
        """
        lake_path = rules.lake_path(path)
        name = "lake_name" if rules.lake_name else "lake_namespace"
        key = "" if lake_path == path else f'tables."{path}".{name}'
        uses = [_Use(lake_path, path, False, key)]
        if rules.on_bad_row == "dead_letter":
            uses.append(_Use(path_of(lake_path), path, True, key))
        for one in uses:
            for other in self._uses.get(_folded(one.lake_table), ()):
                if other.table != path and (one.key or other.key):
                    raise _clash(one, other)
        for one in uses:
            self._uses.setdefault(_folded(one.lake_table), []).append(one)


def _folded(path: TablePath) -> TablePath:
    return TablePath(path.database.casefold(), path.table.casefold())


def _clash(one: _Use, other: _Use) -> ConfigError:
    same = one.lake_table == other.lake_table
    alike = "" if same else f" Many catalogs do not tell it from {other.lake_table}."
    expected = f"a lake table of its own for {one.what}"
    hint = f"It would be that of {other.what}, too.{alike}"
    return ConfigError(one.key or other.key, expected, str(one.lake_table), hint)
