"""Hides the secrets in what a service says of itself: libraries put addresses with passwords into their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.status import RoundReport, ServiceReport, TableReport


def masked_report(report: ServiceReport, mask: Callable[[str], str]) -> ServiceReport:
    """Return a report whose free texts contain no secret: `mask` hides those of a text."""
    tables = tuple(_masked_table(table, mask) for table in report.tables)
    away = report.lake_away and structs.replace(report.lake_away, reason=mask(report.lake_away.reason))
    return structs.replace(report, lease_message=mask(report.lease_message), lake_away=away, tables=tables)


def _masked_table(table: TableReport, mask: Callable[[str], str]) -> TableReport:
    """Return a table whose texts contain no secret: itself, as hundreds of others, where they contain none."""
    message, failure, condition, upkeep = mask(table.message), mask(table.failure), table.condition, table.upkeep
    if condition is not None and (found := mask(condition.message)) != condition.message:
        condition = structs.replace(condition, message=found)
    if upkeep is not None and (found := mask(upkeep.reason)) != upkeep.reason:
        upkeep = structs.replace(upkeep, reason=found)
    replay = table.replay
    if replay is not None and (found := mask(replay.reason)) != replay.reason:
        replay = structs.replace(replay, reason=found)
    last = table.round and masked_round(table.round, mask)
    same = condition is table.condition and upkeep is table.upkeep and replay is table.replay and last is table.round
    if same and (message, failure) == (table.message, table.failure):
        return table
    hidden = {"condition": condition, "upkeep": upkeep, "replay": replay, "round": last}
    return structs.replace(table, message=message, failure=failure, **hidden)


def masked_round(found: RoundReport, mask: Callable[[str], str]) -> RoundReport:
    """Return a round whose free texts contain no secret. Arguments as `masked_report`."""
    taken = found.checkpoint
    if taken is not None and taken.reason:
        found = structs.replace(found, checkpoint=structs.replace(taken, reason=mask(taken.reason)))
    reason = mask(found.reason)
    return structs.replace(found, reason=reason) if reason != found.reason else found
