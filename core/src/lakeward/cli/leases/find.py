"""Find the leases: ask the source, read the service's state file and its status file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.service_line import see_service
from lakeward.clock import SystemClock
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.leases import Failover, FailoverKind, Lease, RestoredLease
from lakeward.model.tables import KvSnapshot
from lakeward.observe.lease_status import LeaseKnowledge, LeaseListing
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.ports import Source

_LOOKS_MOST = 3


def load_backend(loaded: Loaded) -> LeaseBackend:
    """Load the configured lease backend and its wrappers.

    Raises:
        MissingPluginError, PluginError: as `LeaseBackend.load`.
    """
    lease = loaded.settings.lease
    return LeaseBackend.load(lease.backend, lease.wrappers, loaded.lease_options)


def find_leases(loaded: Loaded, source: Source, backend: LeaseBackend) -> LeaseKnowledge:
    """Collect what the open source, the state file and the status file say of leases.

    `backend` is the configured one; it alone can read what it persisted.

    Raises:
        CorruptFileError: the state file or the status file is damaged.
        SourceError: the source cannot answer.
    """
    known = _look(loaded, source, backend)
    for _ in range(_LOOKS_MOST):
        before, known = known, _look(loaded, source, backend)
        if _own_side(known) == _own_side(before):
            break  # else a running service changed its lease between the two reads: they cannot be compared
    return known


def _look(loaded: Loaded, source: Source, backend: LeaseBackend) -> LeaseKnowledge:
    server = source.leases
    listed = server.list_leases() if isinstance(server, LeaseListing) else None
    seen, restored = see_service(loaded), _restored(loaded, source, backend)
    held = {} if restored is None else restored.held
    return LeaseKnowledge(
        service=seen.name,
        listed=listed,
        restored=restored,
        report=seen.report if seen.running else None,
        gone=source.missing_snapshots([KvSnapshot(bucket, snapshot, 0) for bucket, snapshot in held.items()]),
        now_ms=SystemClock().wall_ms(),
    )


def _own_side(known: LeaseKnowledge) -> object:
    report = known.report
    return known.restored, None if report is None else (report.lease_id, report.leased, report.releasing)


def lease_of(loaded: Loaded, source: Source, backend: LeaseBackend, lease_id: str) -> Lease:
    """Return a lease for a backend's hooks; what it holds is not known."""
    last = lease_id.rpartition("-")[2]
    duration_s = loaded.settings.lease.duration_s or backend.default_duration_s
    return Lease(lease_id, int(last) if last.isdigit() else 0, duration_s, {}, source.leases)


def _restored(loaded: Loaded, source: Source, backend: LeaseBackend) -> RestoredLease | None:
    state = ServiceStateStore(SmallFiles(loaded.settings.checkpoint.address)).load(loaded.settings.service.name)
    if state is None or state.lease_state is None or state.lease_backend != backend.name:
        return None
    nothing = lease_of(loaded, source, backend, f"{state.incarnation}-0")
    return backend.on_failover(nothing, Failover(FailoverKind.COORDINATOR, 0, state=state.lease_state)).restored
