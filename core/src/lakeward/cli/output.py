"""Results on standard output: plain tables and lines, or one JSON document."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNWRAPPED = 10_000
"""Columns of a table that is not for a terminal: nothing is ever wrapped or cut."""

_GAP = 2
_LAST_LEAST = 24


@dataclass(frozen=True, slots=True)
class Columns:
    """A table in text form. Names that end in `#` are figures, aligned to the right."""

    names: Sequence[str]
    rows: Iterable[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Output:
    """Writes results; `form` is `text` or `json`."""

    form: str

    def show(self, document: object, *parts: str | Columns) -> None:
        """Write one result.

        Args:
            document: what JSON gets: dataclasses, dicts, lists, texts, numbers.
            parts: what text gets: lines and tables, in order.
        """
        if self.form == "json":
            click.echo(as_json(document))
            return
        for part in parts:
            click.echo(part if isinstance(part, str) else _plain_table(part))


def as_json(document: object) -> str:
    """Write a document as indented JSON; what JSON does not know becomes its text."""
    plain = msgspec.to_builtins(document, enc_hook=str, str_keys=True)
    return msgspec.json.format(msgspec.json.encode(plain, enc_hook=str), indent=2).decode()


def _plain_table(columns: Columns) -> str:
    buffer = io.StringIO()
    width = None if sys.stdout.isatty() else _UNWRAPPED
    console = Console(file=buffer, width=width, force_terminal=sys.stdout.isatty(), highlight=False)
    rows = [["" if cell is None else str(cell) for cell in row] for row in columns.rows]
    if sys.stdout.isatty() and not _fits(columns.names, rows, console.width):
        return "\n\n".join(_record(columns.names, row) for row in rows)
    console.print(_table(Columns(columns.names, rows)))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _fits(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table has room for all columns but the last, and for `_LAST_LEAST` characters of the last."""
    widths = [max(len(name.rstrip("#")), *(len(row[at]) for row in rows), 0) for at, name in enumerate(names)]
    last = widths[-1] if names[-1].endswith("#") else min(widths[-1], _LAST_LEAST)
    return sum(widths[:-1]) + last + _GAP * (len(widths) - 1) <= width


def _record(names: Sequence[str], row: Sequence[str]) -> str:
    """Write one row as a line for each column: a terminal too narrow for the table would cut its numbers."""
    width = max(len(name.rstrip("#")) for name in names)
    return "\n".join(f"{name.rstrip('#'):<{width}}  {cell}".rstrip() for name, cell in zip(names, row, strict=True))


def _table(columns: Columns) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns.names:
        right = name.endswith("#")
        table.add_column(name.rstrip("#"), justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in columns.rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return table
