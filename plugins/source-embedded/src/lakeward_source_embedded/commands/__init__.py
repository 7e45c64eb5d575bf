"""`lakeward embedded`: the built-in store."""

from __future__ import annotations

from lakeward.cli.extend import Lazy, command_group

_ROOM = "lakeward_source_embedded.commands"

COMMANDS = {
    "create": Lazy(f"{_ROOM}.create", "create", "Create a table, and the store if there is none."),
    "load": Lazy(f"{_ROOM}.load", "load", "Load Parquet, CSV, JSON or Arrow files, or standard input, into a table."),
    "insert": Lazy(f"{_ROOM}.one_row", "insert", "Insert one row, or replace that of its key."),
    "update": Lazy(f"{_ROOM}.one_row", "update", "Change columns of one row of a primary-key table."),
    "delete": Lazy(f"{_ROOM}.one_row", "delete", "Delete one row of a primary-key table."),
    "list": Lazy(f"{_ROOM}.list", "list_tables", "Show the tables of the store."),
    "describe": Lazy(f"{_ROOM}.describe", "describe", "Show the columns, keys, buckets and properties of a table."),
    "add-column": Lazy(f"{_ROOM}.change", "add_column", "Add a nullable column to a table."),
    "widen-column": Lazy(f"{_ROOM}.change", "widen_column", "Give a column a type that holds more."),
    "rename-column": Lazy(f"{_ROOM}.change", "rename_column", "Give a column another name."),
    "drop-column": Lazy(f"{_ROOM}.change", "drop_column", "Drop a column with its values."),
    "set-property": Lazy(f"{_ROOM}.change", "set_property", "Change a property of a table."),
    "drop": Lazy(f"{_ROOM}.change", "drop", "Drop a table with all its rows and snapshots."),
    "snapshot": Lazy(f"{_ROOM}.upkeep", "snapshot", "Take KV snapshots of a primary-key table now."),
    "maintain": Lazy(f"{_ROOM}.upkeep", "maintain", "Do all upkeep: due snapshots, clean-up, expired leases."),
    "set-option": Lazy(f"{_ROOM}.upkeep", "set_option", "Change a setting of the whole store."),
}

_OF_COLUMNS = (
    "Columns are added (`add-column`), widened (`widen-column`), renamed (`rename-column`) and dropped "
    "(`drop-column`). For other changes, create a new table and load it."
)
_HINTS = dict.fromkeys(("alter-column", "change-column", "rename", "alter"), _OF_COLUMNS)

embedded = command_group("embedded", "Make, fill and look after a built-in store.", COMMANDS, hints=_HINTS)
