"""`lakeward leases drop`."""

from __future__ import annotations

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.leases.find import find_leases, lease_of, load_backend
from lakeward.cli.open_plugins import opened_source
from lakeward.errors import UsageError
from lakeward.observe.lease_status import OTHER, RUNNING, LeaseKnowledge, LeaseListing, lease_lines, owner_of
from lakeward.observe.presence import no_start_meanwhile


@click.command("drop")
@click.argument("lease_id", required=False)
@click.option("--all-of-service", is_flag=True, help="Drop every lease of this service, of earlier starts too.")
@click.option(
    "--force",
    is_flag=True,
    help="Drop the lease of a running service too: the snapshots that it reads may then be deleted.",
)
@with_common_options
@pass_invocation
def drop(invocation: Invocation, *, lease_id: str | None, all_of_service: bool, force: bool) -> None:
    """Drop LEASE_ID, or all leases of this service, through the configured lease backend.

    The source may delete the snapshots afterwards. The lease of a service that runs, or starts, is refused.
    """
    if (lease_id is None) == (not all_of_service):
        message = "expected one of LEASE_ID and --all-of-service"
        raise UsageError(message)
    loaded = invocation.load()
    backend = load_backend(loaded)
    backend.open()
    nobody_starts = no_start_meanwhile(loaded.settings.checkpoint.address, loaded.settings.service.name)
    with opened_source(loaded) as source, nobody_starts as alone:
        known = find_leases(loaded, source, backend)
        ids = _ids(known) if lease_id is None else [lease_id]
        _check(known, ids, starts=not alone and known.report is None, force=force)
        for each in ids:
            backend.drop(lease_of(loaded, source, backend, each))
        server = source.leases
        remaining = (
            {lease.lease_id for lease in server.list_leases()} if isinstance(server, LeaseListing) else set[str]()
        )
    results = [{"lease_id": each, "gone": each not in remaining} for each in ids]
    lines = [_message(each, backend.name, gone=each not in remaining) for each in ids]
    invocation.output.show({"backend": backend.name, "leases": results}, *(lines or ["This service has no lease."]))


def _ids(known: LeaseKnowledge) -> list[str]:
    return [line.lease_id for line in lease_lines(known) if line.owner != OTHER]


def _check(known: LeaseKnowledge, ids: list[str], *, starts: bool, force: bool) -> None:
    there = None if known.listed is None else {line.lease_id for line in lease_lines(known)}
    for lease_id in ids:
        if there is not None and lease_id not in there:
            message = f"lease {lease_id}: expected a lease that `lakeward leases list` shows, found none of this id"
            raise UsageError(message)
        if starts and owner_of(known, lease_id) != OTHER and not force:
            message = (
                f"lease {lease_id}: service {known.service} starts or hangs, and may take over what it holds. Stop "
                "the service first, or pass --force"
            )
            raise UsageError(message)
        if owner_of(known, lease_id) == RUNNING and not force:
            pid = None if known.report is None else known.report.pid
            message = (
                f"lease {lease_id}: the service runs (process {pid}) and reads under it. Stop the service first "
                "(`lakeward run --final` drops its lease at the end), or pass --force"
            )
            raise UsageError(message)


def _message(lease_id: str, backend: str, *, gone: bool) -> str:
    return f"Dropped {lease_id}." if gone else f"Backend {backend!r} left {lease_id} to expire by itself."
