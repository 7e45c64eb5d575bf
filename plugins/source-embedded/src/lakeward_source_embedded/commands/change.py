"""`lakeward embedded add-column`, `widen-column`, `rename-column`, `drop-column`, `set-property` and `drop`."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa

from lakeward.cli.extend import Invocation, pass_invocation, with_common_options
from lakeward.errors import UsageError
from lakeward.model.tables import TablePath
from lakeward_source_embedded.columns import parse_columns, type_text
from lakeward_source_embedded.commands.store_option import open_store, with_store_option


@click.command("add-column")
@click.argument("table", metavar="DB.TABLE")
@click.argument("column", metavar='"NAME TYPE"')
@with_store_option
@with_common_options
@pass_invocation
def add_column(invocation: Invocation, *, table: str, column: str, store: Path | None) -> None:
    """Add a nullable column to DB.TABLE; older rows have null there. It reaches the lake without a restart."""
    path, field = TablePath.parse(table), _one_column(column)
    with open_store(invocation, store) as opened:
        spec = opened.add_column(path, field)
    document = {"table": str(path), "column": field.name, "schema_id": spec.schema_id}
    invocation.output.show(document, f"{path} has the column {field.name} now.")


@click.command("widen-column")
@click.argument("table", metavar="DB.TABLE")
@click.argument("column", metavar='"NAME TYPE"')
@with_store_option
@with_common_options
@pass_invocation
def widen_column(invocation: Invocation, *, table: str, column: str, store: Path | None) -> None:
    """Give a column of DB.TABLE a type that holds more.

    From an integer to a larger one, from float to double, or to a decimal of more digits and the same scale. Rows that
    are there keep their values. It reaches an Iceberg table without a restart.
    """
    path, field = TablePath.parse(table), _one_column(column)
    with open_store(invocation, store) as opened:
        spec = opened.widen_column(path, field.name, field.type)
    document = {"table": str(path), "column": field.name, "schema_id": spec.schema_id}
    invocation.output.show(document, f"Column {field.name} of {path} is {type_text(field.type)} now.")


@click.command("rename-column")
@click.argument("table", metavar="DB.TABLE")
@click.argument("column", metavar="NAME")
@click.argument("new", metavar="NEW")
@with_store_option
@with_common_options
@pass_invocation
def rename_column(invocation: Invocation, *, table: str, column: str, new: str, store: Path | None) -> None:
    """Give a column of DB.TABLE, which is in no key, another name. It is renamed in the lake without a restart."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        spec = opened.rename_column(path, column, new)
    document = {"table": str(path), "column": new, "schema_id": spec.schema_id}
    invocation.output.show(document, f"Column {column} of {path} is called {new} now.")


@click.command("drop-column")
@click.argument("table", metavar="DB.TABLE")
@click.argument("column", metavar="NAME")
@with_store_option
@with_common_options
@pass_invocation
def drop_column(invocation: Invocation, *, table: str, column: str, store: Path | None) -> None:
    """Drop a column of DB.TABLE, which is in no key, with its values. In the lake it stays, and is null in new rows."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        spec = opened.drop_column(path, column)
    document = {"table": str(path), "column": column, "schema_id": spec.schema_id}
    invocation.output.show(document, f"{path} has no column {column} any more.")


def _one_column(text: str) -> pa.Field:
    fields = list(parse_columns(text))
    if len(fields) != 1:
        message = f"expected one column, found {len(fields)} in {text!r}"
        raise UsageError(message)
    return fields[0]


@click.command("set-property")
@click.argument("table", metavar="DB.TABLE")
@click.argument("key")
@click.argument("value")
@with_store_option
@with_common_options
@pass_invocation
def set_property(invocation: Invocation, *, table: str, key: str, value: str, store: Path | None) -> None:
    """Change a property of DB.TABLE, such as table.kv.snapshot.interval-s."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        opened.set_property(path, key, value)
    invocation.output.show({"table": str(path), "key": key, "value": value}, f"{path}: {key} = {value}")


@click.command("drop")
@click.argument("table", metavar="DB.TABLE")
@with_store_option
@with_common_options
@pass_invocation
def drop(invocation: Invocation, *, table: str, store: Path | None) -> None:
    """Drop DB.TABLE with all its rows and snapshots, leased or not; its lake table stays."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        opened.drop_table(path)
    invocation.output.show({"table": str(path), "dropped": True}, f"Dropped {path}.")
