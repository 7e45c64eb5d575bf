"""`lakeward plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakeward.cli.checkpoints.find import complete_checkpoints
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import all_configured, configured_table, open_records, opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.cli.serving import find_services
from lakeward.config.tables import excluded, table_rules
from lakeward.coordinator.rounds.mirroring import why_none
from lakeward.errors import UsageError
from lakeward.model.tables import TablePath
from lakeward.observe.condition import PAUSED, SUSPENDED
from lakeward.observe.control import read_control
from lakeward.observe.format import count, size
from lakeward.ports import SizedSource
from lakeward_ops.plan.next_round import NextRound, next_round

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Source


@click.command("plan")
@click.argument("table", metavar="[DB.TABLE]", required=False)
@with_common_options
@pass_invocation
def plan(invocation: Invocation, *, table: str | None) -> None:
    """Show what the next round of DB.TABLE, or of each table, would do. Nothing is changed.

    Splits, log records, snapshots that would be leased, whether rows are exchanged, and an estimate of the files; or
    why there is nothing to do. With DB.TABLE, each split is listed.
    """
    loaded = invocation.load()
    path = None if table is None else TablePath.parse(table)
    rounds, why_none_is = _plan(loaded, path)
    parts: list[str | Columns] = [_overview(rounds) if rounds else why_none_is]
    if path is not None:
        parts += _details(rounds[0])
    invocation.output.show({"rounds": rounds}, *parts)


def _plan(loaded: Loaded, path: TablePath | None) -> tuple[list[NextRound], str]:
    """Return the next rounds; and in words why there are none, if so."""
    records = {record.table_id: record for record in open_records(loaded).list()}
    held = _held(loaded)
    checkpoints = complete_checkpoints(loaded)
    gangs = not loaded.settings.spark.dynamic_allocation
    with opened_source(loaded) as source, opened_lake(loaded) as lake:
        sized = source if isinstance(source, SizedSource) else None
        found = []
        tables = all_configured(loaded, source) if path is None else [configured_table(loaded, source, path)]
        for spec in _tables(loaded, tables, path):
            rules = table_rules(loaded, spec.path).settings
            one = next_round(source, lake, spec, records.get(spec.table_id), rules, gangs=gangs, sized=sized)
            one = replace(one, checkpoint=checkpoints.get(spec.table_id, ""))
            if one.table in held:
                action, why = held[one.table]
                then = f"nothing until `lakeward tables resume {one.table}`; then: {one.reason}"
                one = replace(one, action=action, reason=f"{why}; {then}")
            found.append(one)
        return found, "" if found else _why_none(source, configured=bool(tables))


def _why_none(source: Source, *, configured: bool) -> str:
    """Say why no table has a round. `configured`: some are tiered or mirrored, but not included, or not by us."""
    reason = "" if configured else why_none(source)
    return f"{reason[:1].upper()}{reason[1:]}." if reason else "The source has no table to tier."


def _held(loaded: Loaded) -> dict[str, tuple[str, str]]:
    """Return the tables on which our service starts no round: how they are called, and why it does not."""
    seen = find_services(loaded).ours
    held = {}
    if seen.running and seen.report is not None:  # a start tries suspended tables again
        suspended = [table for table in seen.report.tables if table.status == SUSPENDED]
        held = {table.path: (SUSPENDED, _cause(table.message)) for table in suspended}
    paused = read_control(loaded.settings.checkpoint.address, seen.name).paused
    return held | dict.fromkeys(paused, (PAUSED, "a person paused it"))


def _cause(message: str) -> str:
    return message.rstrip(".") or "it cannot be tiered as it is"


def _tables(loaded: Loaded, tables: Sequence[TableSpec], path: TablePath | None) -> list[TableSpec]:
    included = [spec for spec in tables if table_rules(loaded, spec.path).settings.include]
    if path is not None and not included:
        raise excluded(path)
    bindings, name = find_services(loaded).bindings, loaded.settings.service.name
    ours = [spec for spec in included if bindings.serves(name, spec.path)]
    if path is not None and not ours:
        who = bindings.bound_to(path)
        why = f"it is bound to service {who!r}" if who else f"service {name!r} tiers only its own tables"
        message = f"{path}: service {name!r} never tiers this table: {why}"
        raise UsageError(message)
    return sorted(ours, key=lambda spec: spec.path)


def _overview(rounds: Sequence[NextRound]) -> Columns:
    numbers = ("snapshots#", "log splits#", "rows#", "bytes#", "leases#")
    names = ("table", "next round", *numbers, "exchange", "files", "why")
    return Columns(names, [_row(one) for one in rounds])


def _row(one: NextRound) -> tuple[object, ...]:
    why = f"[{one.code}] {one.reason}" if one.code else one.reason
    if not one.splits:
        return (one.table, one.action, "", "", "", "", "", "", "", why)
    snapshots = sum(split.kind == "snapshot" for split in one.splits)
    files = "not known before" if one.files is None else f"about {count(one.files)}"
    return (
        one.table,
        one.action,
        count(snapshots),
        count(len(one.splits) - snapshots),
        _at_least(one.rows, [split.rows for split in one.splits]),
        _at_least(one.size_bytes, [split.size_bytes for split in one.splits]),
        count(len(one.leases)),
        one.exchange,
        files,
        why,
    )


def _at_least(known: int | None, each: Sequence[int | None]) -> str:
    """Write a sum, and that it is more where the size of a split is unknown."""
    if known is None:
        return "?"
    return f"at least {count(known)}" if None in each else count(known)


def _details(one: NextRound) -> Iterator[str | Columns]:
    if not one.splits:
        return
    yield ""
    yield f"layout: {one.layout}"
    if one.creates:
        yield "lake table: it would be created"
    if one.checkpoint:
        yield f"checkpoint: the round may go on from {one.checkpoint} instead, and read what that has left"
    if one.size_bytes is None:
        yield "bytes: the source does not say"
    else:
        said = _at_least(one.size_bytes, [split.size_bytes for split in one.splits])
        yield f"bytes: {said} ({size(one.size_bytes)}) as the source keeps them"
    if one.files is not None:
        yield f"files: about {count(one.files)} (an estimate: one for each split, more if it is large or has deletes)"
    leased = {lease.bucket: lease.snapshot_id for lease in one.leases}
    yield ""
    yield Columns(
        ("split", "kind", "bucket", "partition", "from#", "to#", "rows#", "bytes#", "leased snapshot#"),
        [
            (
                split.split,
                split.kind,
                split.bucket,
                "/".join(split.partition),
                "" if split.start is None else count(split.start),
                count(split.stop),
                count(split.rows),
                count(split.size_bytes),
                leased.get(split.bucket, "") if split.kind == "snapshot" else "",
            )
            for split in one.splits
        ],
    )
