"""`lakeward tables accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.checkpoint.commit_records import CommitRecord, lost_commits
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.opening import open_records, opened_lake, opened_source
from lakeward.clock import SystemClock
from lakeward.errors import EXIT_FAILED
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Source


@click.command("accept")
@click.argument("table", metavar="DB.TABLE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_common_options
@pass_invocation
def accept(invocation: Invocation, *, table: str, yes: bool) -> int:
    """Accept that the lake no longer has the commits of DB.TABLE: the next round tiers it anew.

    Only for a table that `lakeward tables` shows as `lake-gone`. It starts from the earliest records that the source
    still has. A running service takes it at its next try.
    """
    loaded = invocation.load()
    records = open_records(loaded)
    with opened_source(loaded) as source, opened_lake(loaded) as lake:
        spec = source.table(TablePath.parse(table))
        lost = lost_commits(source, spec, records.read(spec.table_id), lake.head(spec.path))
        record = _record(source, spec)
    if not lost:
        invocation.output.show({"table": table, "accepted": False}, f"{table}: there is nothing to accept.")
        return 0
    if not (yes or click.confirm(f"{lost}\nTier {table} anew?", err=True)):
        invocation.output.show({"table": table, "accepted": False}, "Nothing was changed.")
        return EXIT_FAILED
    records.write(record)
    invocation.output.show({"table": table, "accepted": True}, f"{table} is tiered anew by its next round.")
    return 0


def _record(source: Source, spec: TableSpec) -> CommitRecord:
    at_source = source.lake_record(spec)
    disregarded = None if at_source is None else at_source.snapshot_id
    return CommitRecord(spec.path, spec.table_id, None, {}, SystemClock().wall_ms(), disregarded)
