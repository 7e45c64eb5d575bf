"""At most one connection to each server, opened when it is needed."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from lakeward_source_fluss.rpc.connection import Connection, connect
from lakeward_source_fluss.wire.errors import ClientClosedError

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint
    from lakeward_source_fluss.rpc.releases import Release


class Pool:
    """The connections of one client. Used in its event loop only, save for `serial`."""

    def __init__(self, options: ConnectOptions) -> None:
        """Set up; nothing is opened yet."""
        self._options = options
        self._connections: dict[Endpoint, Connection] = {}
        self._connecting: dict[Endpoint, asyncio.Lock] = {}
        self._serials = count(1)
        self._closed = False

    async def get(self, endpoint: Endpoint) -> Connection:
        """Return the connection to a server that was open a moment ago, a new one if there is none or it broke.

        Raises:
            ClientClosedError: the pool is closed.
            ServerUnreachableError: and the others of `connect`.
        """
        async with self._connecting.setdefault(endpoint, asyncio.Lock()):
            self._check_open()
            connection = self._connections.get(endpoint)
            if connection is None or not connection.open:
                serial = next(self._serials)
                connection = await connect(serial, endpoint, self._options, lambda: self._forget(endpoint, serial))
                if self._closed:
                    await connection.close()
                    self._check_open()
                self._connections[endpoint] = connection
            return connection

    def serial(self, endpoint: Endpoint | None) -> int:
        """Return the serial of the open connection to a server, 0 if there is none. For any thread."""
        connection = self._connections.get(endpoint) if endpoint is not None else None
        return connection.serial if connection is not None and connection.open else 0

    def releases(self) -> tuple[Release, ...]:
        """Return the releases of the servers that a connection is open to. For any thread."""
        return tuple(connection.release for connection in tuple(self._connections.values()))

    async def close(self) -> None:
        """Close all; whatever is in flight fails, and nothing is opened again."""
        self._closed = True
        for connection in tuple(self._connections.values()):
            await connection.close()

    def _check_open(self) -> None:
        if self._closed:
            message = "the client is closed"
            raise ClientClosedError(message)

    def _forget(self, endpoint: Endpoint, serial: int) -> None:
        connection = self._connections.get(endpoint)
        if connection is not None and connection.serial == serial:
            del self._connections[endpoint]
