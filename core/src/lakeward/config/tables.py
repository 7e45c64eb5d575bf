"""Find the rules of a table: those of all matching `[tables."db.*"]`; the most specific pattern wins, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import ConfigError
from lakeward.model.settings import TableSettings

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TablePath

_WILDCARDS = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules of one table. `pattern` is the most specific one that matches, None where none does."""

    settings: TableSettings
    pattern: str | None


def table_section(pattern: str) -> str:
    """Return the name of a pattern's section as it stands in the file: `tables."db.*"`."""
    return f'tables."{pattern}"'


def check_pattern(where: str, pattern: str, body: object) -> None:
    """Check that a pattern is `database.table` and has keys.

    Raises:
        ConfigError: not of that form, or its body is no table of keys.
    """
    database, dot, table = pattern.partition(".")
    if not (database and dot and table) or "." in table:
        hint = 'The pattern stands in quotes: [tables."db.*"].'
        raise ConfigError(where, 'a section [tables."DATABASE.TABLE"], `*` stands for any name', pattern, hint)
    if not isinstance(body, Mapping):
        raise ConfigError(where, "a section", body)


def table_rules(loaded: Loaded, path: TablePath) -> TableRules:
    """Find the rules of one table.

    Args:
        loaded: the configuration.
        path: the table.

    Returns:
        Each key from the most specific pattern that gives it, defaults for the rest.
    """
    rules = loaded.settings.tables
    matching = sorted((pattern for pattern in rules if _matches(pattern, path)), key=_specificity)
    merged: dict[str, object] = {}
    for pattern in matching:
        merged.update(_given(rules[pattern], pattern, loaded.provenance))
    return TableRules(msgspec.structs.replace(TableSettings(), **merged), matching[-1] if matching else None)


def _matches(pattern: str, path: TablePath) -> bool:
    database, _, table = pattern.partition(".")
    return fnmatchcase(path.database, database) and fnmatchcase(path.table, table)


def _specificity(pattern: str) -> tuple[int, int]:
    """Order patterns, the least specific first: by literal characters, a full name above all; ties keep file order."""
    wild = sum(1 for character in pattern if character in _WILDCARDS)
    return (1 if wild == 0 else 0, len(pattern) - wild)


def _given(rule: TableSettings, pattern: str, provenance: Mapping[str, str]) -> dict[str, object]:
    """Return the keys that a pattern states; a key may be stated with its default value."""
    default = TableSettings()
    section = table_section(pattern)
    return {
        name: value
        for name, value in msgspec.structs.asdict(rule).items()
        if f"{section}.{name}" in provenance or value != getattr(default, name)
    }
