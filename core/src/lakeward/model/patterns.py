"""Patterns of table names such as `db.*`: which tables they match, and which of several is the most specific."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath

_WILDCARDS = frozenset("*?[]")


def has_wildcards(text: str) -> bool:
    """Return whether a text is more than the name of one table."""
    return not _WILDCARDS.isdisjoint(text)


def is_pattern(text: str) -> bool:
    """Return whether a text has the form `DATABASE.TABLE`, each a name or a pattern."""
    database, dot, table = text.partition(".")
    return bool(database and dot and table) and "." not in table


def matches(pattern: str, path: TablePath) -> bool:
    """Return whether a pattern matches a table's name."""
    database, _, table = pattern.partition(".")
    return fnmatchcase(path.database, database) and fnmatchcase(path.table, table)


def specificity(pattern: str) -> tuple[int, int]:
    """Order patterns, the least specific first: by literal characters, a full name above all."""
    wild = sum(1 for character in pattern if character in _WILDCARDS)
    return (1 if wild == 0 else 0, len(pattern) - wild)
