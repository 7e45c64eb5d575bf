"""`lakeward deadletters show`."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_lake
from lakeward.errors import UsageError
from lakeward.model.tables import TablePath
from lakeward.observe.format import count
from lakeward_ops.deadletters.letters import letters_in, letters_path

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS = ("partition_id", "bucket", "offset", "column_name", "code", "cause", "source_time", "round", "json")


@click.command("show")
@click.argument("table", metavar="DB.TABLE")
@click.option("--column", help="Those whose value of this column does not fit alone.")
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="So many at most.")
@with_common_options
@pass_invocation
def show(invocation: Invocation, *, table: str, column: str | None, most: int) -> None:
    """Show dead letters of DB.TABLE: where each was in the source, why it does not fit, and the row where JSON has it.

    By bucket and offset, the first ones first. Every program that reads the lake reads all of them, as the table
    DB.TABLE__dead_letters, or that beside the `lake_name` of the table.
    """
    loaded, path = invocation.load(), TablePath.parse(table)
    with opened_lake(loaded) as lake:
        batches = letters_in(loaded, lake, path, _COLUMNS)
        if batches is None:
            where = letters_path(loaded, path)
            message = f"{path}: the lake has no table {where}: no round of it was to keep dead letters yet"
            raise UsageError(message)
        total = 0

        def every() -> Iterator[dict[str, Any]]:
            nonlocal total
            for batch in batches:
                for letter in batch.to_pylist():
                    if column is None or letter["column_name"] == column:
                        total += 1
                        yield letter

        found = heapq.nsmallest(most, every(), key=_place)
    lines = [line for letter in found for line in _lines(letter)]
    if total > len(found):
        lines.append(f"The first {count(len(found))} of {count(total, 'dead letter')}; `--most` shows more.")
    document = {"table": str(path), "dead_letters": found, "total": total}
    invocation.output.show(document, *(lines or ["No dead letters."]))


def _place(letter: dict[str, Any]) -> tuple[int, int, int]:
    partition = letter["partition_id"]
    return (-1 if partition is None else partition), letter["bucket"], letter["offset"]


def _lines(letter: dict[str, Any]) -> Iterator[str]:
    partition, time = letter["partition_id"], letter["source_time"]
    where = f"bucket {letter['bucket']}" if partition is None else f"partition {partition}, bucket {letter['bucket']}"
    offset = "of a KV snapshot" if letter["offset"] < 0 else f"offset {letter['offset']}"
    yield f"{where}, {offset}: [{letter['code']}] {letter['cause']}"
    yield f"  round {letter['round']}" + ("" if time is None else f", written {time}")
    if letter["json"] is not None:
        yield f"  {letter['json']}"
