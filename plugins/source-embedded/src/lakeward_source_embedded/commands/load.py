"""`lakeward embedded load`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakeward.cli.extend import Invocation, count, pass_invocation, seconds, with_common_options
from lakeward.clock import SystemClock
from lakeward.errors import RowError
from lakeward.model.tables import TablePath
from lakeward_source_embedded.commands.store_option import open_store, with_store_option

if TYPE_CHECKING:
    from collections.abc import Iterator

_STANDARD_INPUT = Path("-")


@click.command("load")
@click.argument("table", metavar="DB.TABLE")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--change-column", metavar="NAME", help="Column that says insert, update or delete (or +I, +U, -D).")
@click.option(
    "--skip-rows",
    metavar="COUNT",
    type=click.IntRange(min=0),
    default=0,
    help="Leave out so many rows of the first FILE: those that an earlier load stored before it failed.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet", "arrow"]),
    default="jsonl",
    show_default=True,
    help="Of the standard input.",
)
@with_store_option
@with_common_options
@pass_invocation
def load(
    invocation: Invocation,
    *,
    table: str,
    files: tuple[Path, ...],
    change_column: str | None,
    skip_rows: int,
    form: str,
    store: Path | None,
) -> None:
    """Load FILEs (.parquet, .csv, .jsonl, .arrow) into DB.TABLE, in the order given; `-` is the standard input.

    Of .jsonl (.ndjson, .json) each line is an object: times are texts as in ISO 8601, bytes are in base64. The standard
    input is loaded once it has ended.

    Without --change-column, rows are appended to a log table and upserted into a primary-key table. Up to a million
    rows are one step, which is stored whole or not at all. A load that fails says how many rows are stored.
    """
    path = TablePath.parse(table)
    clock = SystemClock()
    loaded: list[dict[str, object]] = []
    lines: list[str] = []
    with open_store(invocation, store) as opened:
        for file in files:
            before = clock.now()
            try:
                with _readable(file, form) as there:
                    records = opened.load_file(path, there, change_column, skip_rows=0 if loaded else skip_rows)
            except RowError as error:
                if not loaded:
                    raise
                message = f"{error}. Already stored: {', '.join(str(one['file']) for one in loaded)}"
                raise RowError(message) from error
            taken = clock.now() - before
            loaded.append({"file": str(file), "records": records, "seconds": taken})
            lines.append(f"{file}: {count(records, 'record')} in {seconds(taken)}")
    invocation.output.show({"table": str(path), "files": loaded}, *lines)


@contextmanager
def _readable(file: Path, form: str) -> Iterator[Path]:
    """Return a file that can be read again and again: of the standard input, a copy."""
    if file != _STANDARD_INPUT:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="lakeward-load-") as folder:
        copy = Path(folder) / f"standard-input.{form}"
        with copy.open("wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        yield copy
