"""Tables of results as text; on a terminal that is too narrow, a line for each column."""

from __future__ import annotations

import io
import sys
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNWRAPPED = 10_000
"""Columns of a table that is not for a terminal: nothing is ever wrapped or cut."""
_UNKNOWN = 160
"""Columns of a table with details that is not for a terminal."""
_INDENT = "  "

_GAP = 2
_LAST_LEAST = 24


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]], details: int | None = None) -> str:
    """Return a table as text: as wide as the terminal, and as wide as it needs to be for anything else.

    Columns whose name ends in `#` are figures, aligned to the right; a cell that is None is empty. So many of the last
    columns as `details` says stand below their row; None: all stand in it.
    """
    terminal = sys.stdout.isatty()
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    width = Console().width if terminal else _UNWRAPPED
    if details is not None:
        return _with_details(names, cells, details, width if terminal else _UNKNOWN)
    if terminal and not _fits(names, cells, width):
        return "\n\n".join(_record(names, row) for row in cells)
    return "\n".join(_lines(names, cells, width))


def _lines(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    buffer = io.StringIO()
    Console(file=buffer, width=width, force_terminal=sys.stdout.isatty(), highlight=False).print(_table(names, cells))
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


def _with_details(names: Sequence[str], cells: Sequence[Sequence[str]], details: int, width: int) -> str:
    """Write each row, and below it the columns that are details or have no room; nothing of them is cut."""
    widths = _widths(names, cells)
    kept = len(names) - details
    while kept > 1 and sum(widths[:kept]) + _GAP * (kept - 1) > width:
        kept -= 1
    head, *lines = _lines(names[:kept], [row[:kept] for row in cells], _UNWRAPPED)
    found = [head]
    for line, row in zip(lines, cells, strict=True):
        found.append(line)
        for name, cell in zip(names[kept:], row[kept:], strict=True):
            found += wrap(
                f"{name.rstrip('#')}: {cell}" if cell else "",
                width,
                initial_indent=_INDENT,
                subsequent_indent=_INDENT * 2,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(found)


def _widths(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(name.rstrip("#")), *(len(row[at]) for row in rows), 0) for at, name in enumerate(names)]


def _fits(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table has room for all columns but the last, and for `_LAST_LEAST` characters of the last."""
    widths = _widths(names, rows)
    last = widths[-1] if names[-1].endswith("#") else min(widths[-1], _LAST_LEAST)
    return sum(widths[:-1]) + last + _GAP * (len(widths) - 1) <= width


def _record(names: Sequence[str], row: Sequence[str]) -> str:
    """Write one row as a line for each column: a terminal too narrow for the table would cut its numbers."""
    width = max(len(name.rstrip("#")) for name in names)
    return "\n".join(f"{name.rstrip('#'):<{width}}  {cell}".rstrip() for name, cell in zip(names, row, strict=True))


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        right = name.endswith("#")
        table.add_column(name.rstrip("#"), justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
