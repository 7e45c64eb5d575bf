"""`lakeward plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakeward.cli.checkpoints.find import complete_checkpoints
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.next_round import NextRound, next_round
from lakeward.cli.open_plugins import open_records, opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.cli.serving import find_services
from lakeward.config.tables import table_rules
from lakeward.errors import UsageError
from lakeward.model.tables import TablePath
from lakeward.observe.control import read_control
from lakeward.observe.format import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec


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
    rounds = _plan(loaded, path)
    parts: list[str | Columns] = [_overview(rounds) if rounds else "The source has no table to tier."]
    if path is not None:
        parts += _details(rounds[0])
    invocation.output.show({"rounds": rounds}, *parts)


def _plan(loaded: Loaded, path: TablePath | None) -> list[NextRound]:
    address, name = loaded.settings.checkpoint.address, loaded.settings.service.name
    records = {record.table_id: record for record in open_records(loaded).list()}
    paused = read_control(address, name).paused
    checkpoints = complete_checkpoints(loaded)
    gangs = not loaded.settings.spark.dynamic_allocation
    with opened_source(loaded) as source, opened_lake(loaded) as lake:
        found = []
        for spec in _tables(loaded, source.tables() if path is None else [source.table(path)], path):
            rules = table_rules(loaded, spec.path).settings
            one = next_round(source, lake, spec, records.get(spec.table_id), rules, gangs=gangs)
            one = replace(one, checkpoint=checkpoints.get(spec.table_id, ""))
            if one.table in paused:
                one = replace(one, reason=f"{one.reason}; no round starts while the table is paused")
            found.append(one)
        return found


def _tables(loaded: Loaded, tables: Sequence[TableSpec], path: TablePath | None) -> list[TableSpec]:
    included = [spec for spec in tables if table_rules(loaded, spec.path).settings.include]
    if path is not None and not included:
        message = f"{path}: the configuration excludes this table, so it is never tiered"
        raise UsageError(message)
    bindings, name = find_services(loaded).bindings, loaded.settings.service.name
    ours = [spec for spec in included if bindings.serves(name, spec.path)]
    if path is not None and not ours:
        who = bindings.bound_to(path)
        why = f"it is bound to service {who!r}" if who else f"service {name!r} tiers only its own tables"
        message = f"{path}: service {name!r} never tiers this table: {why}"
        raise UsageError(message)
    return sorted(ours, key=lambda spec: spec.path)


def _overview(rounds: Sequence[NextRound]) -> Columns:
    names = ("table", "next round", "snapshots#", "log splits#", "log records#", "leases#", "exchange", "files", "why")
    return Columns(names, [_row(one) for one in rounds])


def _row(one: NextRound) -> tuple[object, ...]:
    if one.action != "tier":
        why = f"[{one.code}] {one.reason}" if one.code else one.reason
        return (one.table, one.action, "", "", "", "", "", "", why)
    snapshots = sum(split.kind == "snapshot" for split in one.splits)
    files = "not known before" if one.files is None else f"about {count(one.files)}"
    return (
        one.table,
        one.action,
        count(snapshots),
        count(len(one.splits) - snapshots),
        "" if one.rows is None else count(one.rows),
        count(len(one.leases)),
        one.exchange,
        files,
        one.reason,
    )


def _details(one: NextRound) -> Iterator[str | Columns]:
    if one.action != "tier":
        return
    yield ""
    yield f"layout: {one.layout}"
    if one.creates:
        yield "lake table: it would be created"
    if one.checkpoint:
        yield f"checkpoint: the round may go on from {one.checkpoint} instead, and read what that has left"
    yield "bytes: the source does not say" if one.size_bytes is None else f"bytes: {count(one.size_bytes)}"
    if one.files is not None:
        yield f"files: about {count(one.files)} (an estimate: one for each split, more if it is large or has deletes)"
    leased = {lease.bucket: lease.snapshot_id for lease in one.leases}
    yield ""
    yield Columns(
        ("split", "kind", "bucket", "partition", "from#", "to#", "records#", "leased snapshot#"),
        [
            (
                split.split,
                split.kind,
                split.bucket,
                "/".join(split.partition),
                "" if split.start is None else count(split.start),
                count(split.stop),
                "?" if split.rows is None else count(split.rows),
                leased.get(split.bucket, "") if split.kind == "snapshot" else "",
            )
            for split in one.splits
        ],
    )
