"""Leaves out of a table the columns that the configuration does not want in the lake (`columns`)."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import ConfigError
from lakeward.model.near_names import did_you_mean
from lakeward.model.patterns import has_wildcards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TableSpec

_NOT = "!"


def choose_columns(table: TableSpec, wanted: Sequence[str]) -> TableSpec:
    """Return a table with the wanted columns alone; keys stay, so that what is wrong with it can be said of a table.

    `wanted` holds names and patterns, those that are left out with `!` before them; empty: all.
    """
    if not wanted:
        return table
    keys = {*table.primary_key, *table.partition_keys}
    kept = [field for field in table.schema if field.name in keys or _is_wanted(field.name, wanted)]
    left_out = tuple(name for name in table.schema.names if name not in {field.name for field in kept})
    return replace(table, schema=pa.schema(kept, table.schema.metadata), left_out=left_out)


def check_columns_wanted(table: TableSpec, wanted: Sequence[str]) -> None:
    """Check that a table, as `choose_columns` gave it, can do without the others.

    Raises:
        ConfigError: there is no column of a name that is no pattern, a key is left out, or nothing remains.
    """
    key = f"{table.section}.columns"
    there = (*table.schema.names, *table.left_out)
    for one in wanted:
        name = one.removeprefix(_NOT)
        if not has_wildcards(name) and name not in there:
            hint = f"{did_you_mean(name, there)} Columns of {table.path}: {', '.join(there)}.".lstrip()
            raise ConfigError(key, "columns of the table, or patterns such as `card_*`", one, hint)
    for name in (*table.primary_key, *table.partition_keys):
        if wanted and not _is_wanted(name, wanted):
            hint = f"Column {name!r} is in the primary key or the partition key."
            raise ConfigError(key, "the columns of the keys among those that are wanted", list(wanted), hint)
    if wanted and not table.schema.names:
        raise ConfigError(key, "at least one column", list(wanted), f"Columns of {table.path}: {', '.join(there)}.")


def _is_wanted(name: str, wanted: Sequence[str]) -> bool:
    """Return whether a column is wanted: one that nothing leaves out, and that is named, if any is."""
    named = [one for one in wanted if not one.startswith(_NOT)]
    if any(fnmatchcase(name, one.removeprefix(_NOT)) for one in wanted if one.startswith(_NOT)):
        return False
    return not named or any(fnmatchcase(name, one) for one in named)
