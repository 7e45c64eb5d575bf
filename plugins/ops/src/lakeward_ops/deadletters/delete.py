"""`lakeward deadletters delete`."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, cast

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_lake
from lakeward.clock import SystemClock
from lakeward.coordinator.commits.letter_rewriter import LetterChange, LetterRewriter
from lakeward.errors import EXIT_FAILED, UsageError
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP
from lakeward.model.dead_letters import LetterFilter, digests, read_back
from lakeward.model.identity import REPLAY, Incarnation, RoundId
from lakeward.model.tables import TablePath
from lakeward.observe.format import count
from lakeward_ops.deadletters.letters import letters_path

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.results import LakeHead


@click.command("delete")
@click.argument("table", metavar="DB.TABLE")
@click.option("--column", help="Those whose value of this column does not fit alone.")
@click.option("--code", help="Those of this error alone, such as LW-406.")
@click.option(
    "--before",
    metavar="TIME",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"]),
    help="Those that were written to the source before this time in UTC alone, such as 2026-11-28.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_common_options
@pass_invocation
def delete(
    invocation: Invocation, *, table: str, column: str | None, code: str | None, before: datetime | None, yes: bool
) -> int:
    """Delete dead letters of DB.TABLE: all, or those that all options mean.

    Their rows are in no lake table then. Those that a service adds meanwhile stay. A row of a KV snapshot has no time,
    and is before none. Older snapshots of the table DB.TABLE__dead_letters have the letters until they expire.
    """
    loaded, path = invocation.load(), TablePath.parse(table)
    wanted = LetterFilter(column, code, None if before is None else before.replace(tzinfo=UTC))
    with opened_lake(loaded) as lake:
        rewriter = LetterRewriter(lake, partial(_plugin, loaded))
        letters = letters_path(loaded, path)
        head = lake.head(letters)
        if head is None or head.snapshot_id is None or head.table_id is None:
            message = f"{path}: the lake has no table {letters}: no round of it was to keep dead letters yet"
            raise UsageError(message)
        chosen, total = frozenset[bytes](), 0
        for rows in rewriter.rewritable(letters).read_rows(letters, head.snapshot_id):
            total += rows.num_rows
            chosen |= frozenset(digests(wanted.of(read_back(rows))))
        if not chosen:
            invocation.output.show({"table": str(path), "deleted": 0}, "No dead letter is meant.")
            return 0
        question = f"{path}: delete {count(len(chosen))} of {count(total, 'dead letter')}?"
        if not (yes or click.confirm(question, err=True)):
            invocation.output.show({"table": str(path), "deleted": 0}, "Nothing was deleted.")
            return EXIT_FAILED
        deleted = rewriter.rewrite(letters, _own_id(loaded, head), LetterChange(chosen))
    invocation.output.show(
        {"table": str(path), "deleted": deleted}, f"{path}: deleted {count(deleted, 'dead letter')}."
    )
    return 0


def _plugin(loaded: Loaded) -> LakePlugin:
    return cast("LakePlugin", load(LAKE_GROUP, loaded.settings.lake.type))


def _own_id(loaded: Loaded, head: LakeHead) -> RoundId:
    """Return an id under whose prefix no service looks for files that it may delete."""
    who = Incarnation(loaded.settings.service.name, SystemClock().wall_ms(), secrets.token_hex(8))
    return RoundId(who, head.table_id or 0, REPLAY, 0)
