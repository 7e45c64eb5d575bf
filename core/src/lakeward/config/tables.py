"""Find the rules of a table: those of all matching `[tables."db.*"]`; the most specific pattern wins, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import ConfigError, UsageError
from lakeward.model.dead_letters import owner_of, path_of
from lakeward.model.partitioning import PartitionField
from lakeward.model.patterns import is_pattern, matches, specificity
from lakeward.model.settings import TableSettings

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.model.settings import Settings, TableMode
    from lakeward.model.tables import TablePath


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules of one table. `pattern` is the most specific one that matches, None where none does."""

    settings: TableSettings
    pattern: str | None


def excluded(path: TablePath) -> UsageError:
    """Return the error of a command that is asked for a table which is never tiered."""
    return UsageError(f"{path}: the configuration excludes this table, so it is never tiered")


def table_section(pattern: str) -> str:
    """Return the name of a pattern's section as it stands in the file: `tables."db.*"`."""
    return f'tables."{pattern}"'


def check_pattern(where: str, pattern: str, body: object) -> None:
    """Check that a pattern is `database.table` and has keys.

    Raises:
        ConfigError: not of that form, or its body is no table of keys.
    """
    if not is_pattern(pattern):
        hint = 'The pattern stands in quotes: [tables."db.*"].'
        raise ConfigError(where, 'a section [tables."DATABASE.TABLE"], `*` stands for any name', pattern, hint)
    if not isinstance(body, Mapping):
        raise ConfigError(where, "a section", body)


def check_partition(where: str, rules: TableSettings) -> None:
    """Check each field of a `lake_partition`; whether it fits the table is known once the table is (`resolve_layout`).

    `where` is the section's place, for errors.

    Raises:
        ConfigError: a field has another form.
    """
    for text in rules.lake_partition:
        try:
            PartitionField.parse(text)
        except UsageError as error:
            expected = "columns and transforms such as `day(ts)` or `bucket(16, id)`"
            key = f"{where}.lake_partition"
            raise ConfigError(key, expected, text, f"In {text!r}: {error}.") from error


def modes_of(settings: Settings) -> frozenset[TableMode]:
    """Return every mode that some table may have: a `lake_partition` means `mirror`."""
    rules = settings.tables.values()
    return frozenset({rule.mode for rule in rules} | {"mirror" for rule in rules if rule.lake_partition})


def table_rules(loaded: Loaded, path: TablePath) -> TableRules:
    """Find the rules of one table: each key from the most specific pattern that gives it, defaults for the rest.

    The mode of a table with a `lake_partition` is `mirror` unless a pattern states another one.
    """
    rules = loaded.settings.tables
    # Patterns that are equally specific keep the order of the file.
    matching = sorted((pattern for pattern in rules if matches(pattern, path)), key=specificity)
    merged: dict[str, object] = {}
    for pattern in matching:
        merged.update(_given(rules[pattern], pattern, loaded.provenance))
    if merged.get("lake_partition"):
        merged.setdefault("mode", "mirror")
    return TableRules(msgspec.structs.replace(TableSettings(), **merged), matching[-1] if matching else None)


def lake_path(loaded: Loaded, path: TablePath) -> TablePath:
    """Return the name that a table, or the one of its dead letters, has in the lake."""
    owner = owner_of(path)
    if owner is None or str(path) in loaded.settings.tables:
        return table_rules(loaded, path).settings.lake_path(path)
    return path_of(table_rules(loaded, owner).settings.lake_path(owner))


def _given(rule: TableSettings, pattern: str, provenance: Mapping[str, str]) -> dict[str, object]:
    """Return the keys that a pattern states; a key may be stated with its default value."""
    default = TableSettings()
    section = table_section(pattern)
    return {
        name: value
        for name, value in msgspec.structs.asdict(rule).items()
        if f"{section}.{name}" in provenance or value != getattr(default, name)
    }
