"""`lakeward embedded insert`, `update` and `delete`: one row, in the words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from lakeward.cli.extend import Invocation, pass_invocation, with_common_options
from lakeward.errors import UsageError, short_repr
from lakeward.model.tables import TablePath
from lakeward_source_embedded.commands.store_option import open_store, with_store_option
from lakeward_source_embedded.json_rows import batch_of, from_text, parse_object
from lakeward_source_embedded.rows import as_deletes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model.tables import TableSpec

_ROW = click.argument("words", metavar="NAME=VALUE...", nargs=-1, required=True)


@click.command("insert")
@click.argument("table", metavar="DB.TABLE")
@_ROW
@with_store_option
@with_common_options
@pass_invocation
def insert(invocation: Invocation, *, table: str, words: tuple[str, ...], store: Path | None) -> None:
    """Insert a row into DB.TABLE, such as id=1 name=Ann; in a primary-key table it replaces the row of its key.

    NAME=NULL is a null. Values of arrays, maps and rows are JSON. The whole row may be a JSON object as well.
    """
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        opened.load(path, _row(opened.table(path), words, complete=True))
    _show(invocation, path, "inserted", 1)


@click.command("update")
@click.argument("table", metavar="DB.TABLE")
@_ROW
@with_store_option
@with_common_options
@pass_invocation
def update(invocation: Invocation, *, table: str, words: tuple[str, ...], store: Path | None) -> None:
    """Change the row of DB.TABLE that has the key of NAME=VALUE...; columns that are not named stay as they are.

    NAME=NULL is a null. Values of arrays, maps and rows are JSON. The whole row may be a JSON object as well.
    """
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        spec = opened.table(path)
        opened.update(path, _with_key(spec, _row(spec, words)))
    _show(invocation, path, "updated", 1)


@click.command("delete")
@click.argument("table", metavar="DB.TABLE")
@_ROW
@with_store_option
@with_common_options
@pass_invocation
def delete(invocation: Invocation, *, table: str, words: tuple[str, ...], store: Path | None) -> None:
    """Delete the row of DB.TABLE that has the key NAME=VALUE...; without such a row nothing changes."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        spec = opened.table(path)
        deleted = opened.load(path, *as_deletes(spec, _with_key(spec, _row(spec, words))))
    _show(invocation, path, "deleted", deleted)


def _row(spec: TableSpec, words: Sequence[str], *, complete: bool = False) -> pa.Table:
    return pa.Table.from_batches([batch_of(spec, [(1, _values(spec, words))], None, complete=complete)])


def _values(spec: TableSpec, words: Sequence[str]) -> Mapping[str, object]:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return parse_object(words[0])
        except ValueError as error:
            message = f"row: expected a JSON object, found {short_repr(words[0])} ({error})"
            raise UsageError(message) from error
    kinds = {field.name: field.type for field in spec.schema}
    found: dict[str, object] = {}
    for given in words:
        name, equals, text = given.partition("=")
        if not equals or name in found:
            expected = "NAME=VALUE, each name once, or a JSON object"
            message = f"row: expected {expected}, found {short_repr(given)}"
            raise UsageError(message)
        found[name] = None if text == "NULL" else from_text(kinds.get(name, pa.string()), text)
    return found


def _with_key(spec: TableSpec, row: pa.Table) -> pa.Table:
    if missing := [name for name in spec.primary_key if name not in row.column_names]:
        message = f"table {spec.path}: expected a value of each key column, found none of {missing[0]!r}"
        raise UsageError(message)
    return row


def _show(invocation: Invocation, path: TablePath, done: str, rows: int) -> None:
    said = f"{path}: 1 row {done}." if rows else f"{path}: there is no row of that key."
    invocation.output.show({"table": str(path), done: rows}, said)
