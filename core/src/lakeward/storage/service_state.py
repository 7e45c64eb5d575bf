"""The service's own state file: `<root>/<service>/<incarnation>/service.state`.

Version 1 has no lease; version 2 adds the lease backend's name and bytes. Each start writes a file of its own, and the
file of the newest start counts. So an old process that was paused cannot destroy the newer start's state when it
continues: there is no moment between a check and a write in which it could be paused, and no lock that it could hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError, FencedError, UsageError
from lakeward.model.identity import Incarnation
from lakeward.model.tables import TablePath
from lakeward.storage.records import pack, unpack
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "service.state"
WITHOUT_LEASE = 1
WITH_LEASE = 2
VERSIONS = {WITHOUT_LEASE: 1, WITH_LEASE: 3}
"""The number of parts of each version that this release reads."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that the source had assigned to this service. `renewed_ms`: last successful renewal, ms since 1970."""

    path: TablePath
    table_id: int
    epoch: int
    coordinator_epoch: int
    freshness_s: float
    renewed_ms: int


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What a start leaves for the next one. `lease_state` are the lease backend's own bytes; None: it has none.

    `lease_ids` are the ids that this start must drop in the end: its own, and those of earlier starts, which it drops
    once it protects their snapshots itself. `invalidated`: by table id, why its checkpoints must not be resumed from.
    """

    incarnation: Incarnation
    tables: tuple[StoredTable, ...] = ()
    lease_backend: str | None = None
    lease_state: bytes | None = None
    lease_ids: tuple[str, ...] = ()
    invalidated: Mapping[int, str] = field(default_factory=dict)


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    incarnation: str
    tables: tuple[StoredTable, ...]
    lease_ids: tuple[str, ...] = ()
    invalidated: dict[int, str] = msgspec.field(default_factory=dict)


_BODIES = msgspec.msgpack.Decoder(_Body)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class ServiceStateStore:
    """Reads and writes state files. Blocking."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files

    @property
    def files(self) -> SmallFiles:
        """Where the state files are."""
        return self._files

    def load(self, service: str) -> ServiceState | None:
        """Read a service's state, None if there is none.

        Raises:
            CorruptFileError: the file is damaged or of an unknown version; names it.
        """
        for start in self._starts(service):
            data = self._files.read(_name(start))
            if data is not None:  # a later start may have deleted it since the listing
                return self._decode(data, start)
        return None

    def started_ms(self, service: str, wall_ms: int) -> int:
        """Return the start time of a new incarnation, in ms since 1970: now, or after the newest earlier start.

        If the clock was set back, the new start must still come after the earlier one.
        """
        newest = next(iter(self._starts(service)), None)
        return wall_ms if newest is None else max(wall_ms, newest.started_ms + 1)

    def check(self, incarnation: Incarnation) -> None:
        """Make sure that no later start than this one has taken over.

        Raises:
            FencedError: a later start of the same service has written its state.
        """
        _refuse_overtaken(self._starts(incarnation.service), incarnation)

    def save(self, state: ServiceState) -> None:
        """Write a service's state durably, then remove those of earlier starts: all that is needed of them is in it.

        Raises:
            FencedError: a later start of the same service has written its state; nothing was written.
            StorageError: the disk refused.
        """
        ours = state.incarnation
        starts = self._starts(ours.service)
        _refuse_overtaken(starts, ours)
        self._files.write(_name(ours), encode(state))
        for start in starts:
            if ours.succeeds(start):
                self._files.delete(_name(start))

    def _starts(self, service: str) -> list[Incarnation]:
        """Return every start that left a state, the newest first."""
        names = self._files.names(service, FILE)
        starts = [_start(name, self._files.path(name)) for name in names]
        return sorted(starts, key=lambda start: (start.started_ms, start.nonce), reverse=True)

    def _decode(self, data: bytes, start: Incarnation) -> ServiceState:
        file = self._files.path(_name(start))
        state = decode(data, file)
        if state.incarnation != start:
            raise CorruptFileError(file, f"the state of {start}", str(state.incarnation))
        return state


def _refuse_overtaken(starts: Iterable[Incarnation], ours: Incarnation) -> None:
    newest = next(iter(starts), None)
    if newest is not None and newest.succeeds(ours):
        message = f"the state of service {ours.service!r} belongs to a later start, {newest}"
        raise FencedError(message, str(newest))


def _name(start: Incarnation) -> str:
    return f"{start.service}/{start}/{FILE}"


def _start(name: str, file: str) -> Incarnation:
    try:
        return Incarnation.parse(name.split("/")[-2])
    except UsageError as error:
        raise CorruptFileError(file, "a folder named by an incarnation", name) from error


def encode(state: ServiceState) -> bytes:
    """Encode a state, in the oldest version that can hold it."""
    body = msgspec.msgpack.encode(_Body(str(state.incarnation), state.tables, state.lease_ids, dict(state.invalidated)))
    if state.lease_backend is None or state.lease_state is None:
        return pack(WITHOUT_LEASE, (body,))
    return pack(WITH_LEASE, (body, state.lease_backend.encode(), state.lease_state))


def decode(data: bytes, file: str) -> ServiceState:
    """Decode the bytes of a state; `file` names it in errors.

    Raises:
        CorruptFileError: damaged, or of an unknown version.
    """
    version, parts = unpack(data, file, VERSIONS)
    try:
        body = _BODIES.decode(parts[0])
        incarnation = Incarnation.parse(body.incarnation)
        backend, lease = (parts[1].decode(), parts[2]) if version == WITH_LEASE else (None, None)
    except (msgspec.MsgspecError, UsageError, UnicodeDecodeError) as error:
        raise CorruptFileError(file, "a service's state", str(error)) from error
    return ServiceState(incarnation, body.tables, backend, lease, body.lease_ids, body.invalidated)
