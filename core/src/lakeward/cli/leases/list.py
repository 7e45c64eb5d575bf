"""`lakeward leases list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.leases.find import find_leases, load_backend
from lakeward.cli.open_plugins import opened_source
from lakeward.cli.output import Columns
from lakeward.clock import SystemClock
from lakeward.observe.format import count, seconds
from lakeward.observe.lease_status import EXPIRED, MISSING, OWNERS, STATUSES, LeaseLine, lease_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("list")
@click.option("--buckets", is_flag=True, help="Show each leased snapshot too.")
@with_common_options
@pass_invocation
def list_leases(invocation: Invocation, *, buckets: bool) -> None:
    """Show each lease: its owner, its snapshots, when it expires, and which releases are not confirmed.

    This service's record is compared with the source; differences are marked with `!`. A source that cannot list its
    leases (Fluss) is asked whether the snapshots of this service's lease can still be read.
    """
    loaded = invocation.load()
    backend = load_backend(loaded)
    with opened_source(loaded) as source:
        known = find_leases(loaded, source, backend)
    lines = lease_lines(known)
    report = known.report
    document = {
        "backend": backend.name,
        "listed_by_source": known.listed is not None,
        "leases": lines,
        "service": None if report is None else {"lease_id": report.lease_id, "message": report.lease_message},
    }
    parts: list[str | Columns] = [f"lease backend {backend.name}"]
    if known.listed is None:
        parts.append("The source cannot list its leases: these are the leases that this service has on record.")
    if report is not None and report.lease_message:
        parts.append(report.lease_message)
    parts.append(_leases(lines, SystemClock().wall_ms()) if lines else "No lease is held.")
    parts += [f"! {line.lease_id}: {STATUSES[line.status]}" for line in lines if line.status in {EXPIRED, MISSING}]
    parts += [f"! {line.lease_id}: {difference}" for line in lines for difference in line.differences]
    if buckets and lines:
        parts += ["", _buckets(lines)]
    invocation.output.show(document, *parts)


def _leases(lines: Sequence[LeaseLine], now_ms: int) -> Columns:
    rows = [
        (
            line.lease_id,
            "" if line.generation is None else line.generation,
            count(line.held),
            line.status,
            _expiry(line.expires_ms, now_ms),
            "" if line.releasing is None else count(line.releasing),
            OWNERS[line.owner],
        )
        for line in lines
    ]
    return Columns(("lease", "generation#", "snapshots#", "at the source", "expires", "to be released#", "owner"), rows)


def _expiry(expires_ms: int | None, now_ms: int) -> str:
    if expires_ms is None:
        return "?"
    remaining_s = (expires_ms - now_ms) / 1000
    return f"in {seconds(remaining_s)}" if remaining_s > 0 else f"expired {seconds(-remaining_s)} ago"


def _buckets(lines: Sequence[LeaseLine]) -> Columns:
    rows = [(line.lease_id, bucket, snapshot) for line in lines for bucket, snapshot in line.buckets.items()]
    return Columns(("lease", "bucket", "snapshot#"), rows)
