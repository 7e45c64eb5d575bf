"""The service's own state file: `<root>/<service>/service.state`.

Version 1 has no lease (it reads as "no lease kept"); version 2 adds the lease backend's name and bytes. A start never
overwrites the state of a LATER start of the same service, so a zombie cannot destroy what its successor needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from lakeward.checkpoint.records import pack, unpack
from lakeward.checkpoint.store import SmallFiles
from lakeward.errors import CorruptFileError, FencedError
from lakeward.model.identity import Incarnation
from lakeward.model.tables import TablePath

FILE = "service.state"
WITHOUT_LEASE = 1
WITH_LEASE = 2
_VERSIONS = frozenset({WITHOUT_LEASE, WITH_LEASE})


@dataclass(frozen=True, slots=True)
class TableInHand:
    """One table that the source had handed to us. `renewed_ms`: last good renewal, ms since 1970."""

    path: TablePath
    table_id: int
    epoch: int
    coordinator_epoch: int
    freshness_s: float
    renewed_ms: int


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What a start leaves for the next one. `lease_state` is the lease backend's own; None: nothing kept."""

    incarnation: Incarnation
    tables: tuple[TableInHand, ...] = ()
    lease_backend: str | None = None
    lease_state: bytes | None = None


class _Body(msgspec.Struct, frozen=True):
    incarnation: str
    tables: tuple[TableInHand, ...]


class ServiceStateStore:
    """Reads and writes state files. Blocking."""

    def __init__(self, files: SmallFiles) -> None:
        """Keep the store."""
        self._files = files

    def load(self, service: str) -> ServiceState | None:
        """Read a service's state.

        Args:
            service: its name.

        Returns:
            The state, None if there is none.

        Raises:
            CorruptFileError: the file is damaged or of an unknown version; names it.
        """
        name = f"{service}/{FILE}"
        data = self._files.read(name)
        return None if data is None else decode(data, self._files.path(name))

    def check(self, incarnation: Incarnation) -> None:
        """Make sure that the file is not a later start's.

        Args:
            incarnation: ours.

        Raises:
            FencedError: a later start of the same service wrote it.
        """
        found = self.load(incarnation.service)
        if found is not None and found.incarnation.succeeds(incarnation):
            message = f"the state of service {incarnation.service!r} belongs to a later start, {found.incarnation}"
            raise FencedError(message, str(found.incarnation))

    def save(self, state: ServiceState) -> None:
        """Write a service's state durably.

        Args:
            state: the state.

        Raises:
            FencedError: a later start of the same service wrote the file.
            StorageError: the disk refused.
        """
        service = state.incarnation.service
        with self._files.lock(f"{service}/.{FILE}.lock"):
            self.check(state.incarnation)
            self._files.write(f"{service}/{FILE}", encode(state))


def encode(state: ServiceState) -> bytes:
    """Encode a state, in the oldest version that can hold it."""
    body = msgspec.msgpack.encode(_Body(str(state.incarnation), state.tables))
    if state.lease_backend is None or state.lease_state is None:
        return pack(WITHOUT_LEASE, (body,))
    return pack(WITH_LEASE, (body, state.lease_backend.encode(), state.lease_state))


def decode(data: bytes, file: str) -> ServiceState:
    """Decode a state.

    Args:
        data: the file's bytes.
        file: its name, for errors.

    Raises:
        CorruptFileError: damaged, or of an unknown version.
    """
    version, parts = unpack(data, file, _VERSIONS)
    expected = 1 if version == WITHOUT_LEASE else 3
    if len(parts) != expected:
        raise CorruptFileError(file, f"{expected} parts in version {version}", len(parts))
    try:
        body = msgspec.msgpack.decode(parts[0], type=_Body)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(file, "a service's state", str(error)) from error
    backend, lease = (parts[1].decode(), parts[2]) if version == WITH_LEASE else (None, None)
    return ServiceState(Incarnation.parse(body.incarnation), body.tables, backend, lease)
