"""`lakeward tables accept`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import configured_table, open_records, opened_lake, opened_source
from lakeward.clock import SystemClock
from lakeward.coordinator.rounds.context import tiered_offsets
from lakeward.errors import EXIT_FAILED
from lakeward.storage.commit_records import CommitRecord, lost_commits, stored_offsets
from lakeward.storage.late_commits import went_back

if TYPE_CHECKING:
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Source


@click.command("accept")
@click.argument("table", metavar="DB.TABLE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--offsets",
    type=click.Choice(["lake", "ours"]),
    default="lake",
    help="For `offsets-back`: continue from the lake's newest commit (default), or from our own newest one.",
)
@with_common_options
@pass_invocation
def accept(invocation: Invocation, *, table: str, yes: bool, offsets: str) -> int:
    """Accept what the lake has of DB.TABLE, and continue from there.

    Only for a table that `lakeward tables` shows as `lake-gone` or `offsets-back`. A running service continues at its
    next try. A pattern such as `db.*` means all tables that it matches; each is asked for.

    `lake-gone`: the lake no longer has our commits. The table is tiered anew, from the earliest records that the source
    still has.

    `offsets-back`: another tiering service committed late, and its offsets are behind ours. From the lake's offsets,
    rows that we had committed are tiered again; from ours, only the rows of that service are there twice.
    """
    loaded = invocation.load()
    records = open_records(loaded)
    with opened_source(loaded) as source, opened_lake(loaded) as lake:

        def do(path: TablePath) -> TableAnswer:
            spec = configured_table(loaded, source, path)
            record, head = records.read(spec.table_id), lake.head(spec.in_lake.path)
            found = _find(source, spec, record, head, ours=offsets == "ours")
            if found is None:
                return _done(path, accepted=False, message=f"{path}: there is nothing to accept.")
            if not (yes or click.confirm(f"{found.wrong}\n{found.question}", err=True)):
                return _done(path, accepted=False, message="Nothing was changed.", code=EXIT_FAILED)
            records.write(found.record)
            return _done(path, accepted=True, message=found.message)

        return do_for_each(invocation, table, chosen_tables(loaded, source, table), do)


def _done(path: TablePath, *, accepted: bool, message: str, code: int = 0) -> TableAnswer:
    return TableAnswer({"table": str(path), "accepted": accepted}, message, code)


@dataclass(frozen=True, slots=True)
class _Acceptable:
    """What is wrong with a table, and what is recorded where a person accepts it."""

    wrong: str
    question: str
    record: CommitRecord
    message: str


def _find(
    source: Source, spec: TableSpec, record: CommitRecord | None, head: LakeHead | None, *, ours: bool
) -> _Acceptable | None:
    now_ms = SystemClock().wall_ms()
    if lost := lost_commits(source, spec, record, head):
        at_source = source.lake_record(spec)
        disregarded = None if at_source is None else at_source.snapshot_id
        anew = CommitRecord(spec.path, spec.table_id, None, (), now_ms, disregarded)
        return _Acceptable(lost, f"Tier {spec.path} anew?", anew, f"{spec.path} is tiered anew by its next round.")
    if head is None or head.commit is None or head.own is None:
        return None
    tiered = tiered_offsets(source, spec, head)
    wrong = went_back(spec.path, record, head, tiered, source.buckets(spec))
    if not wrong:
        return None
    own = head.own.offsets or {}
    chosen = {bucket: max(tiered.get(bucket, 0), own.get(bucket, 0)) for bucket in {*tiered, *own}} if ours else tiered
    whose = "our own offsets" if ours else "the lake's offsets"
    stored = stored_offsets(chosen)
    accepted = CommitRecord(spec.path, spec.table_id, head.commit.snapshot_id, stored, now_ms, accepted=True)
    return _Acceptable(
        wrong, f"Continue from {whose}?", accepted, f"The next round of {spec.path} starts from {whose}."
    )
