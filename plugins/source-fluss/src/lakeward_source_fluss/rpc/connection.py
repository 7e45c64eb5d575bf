"""A connection that is ready for calls: TCP or TLS, then API_VERSIONS, then AUTHENTICATE."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, TypeVar

from lakeward_source_fluss.rpc.backoff import Attempts
from lakeward_source_fluss.rpc.channel import Channel
from lakeward_source_fluss.rpc.releases import Release, in_words, release_of
from lakeward_source_fluss.wire.apis import API_VERSION, ApiKey, Request, response_class
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import (
    AuthenticationError,
    ServerUnreachableError,
    TlsError,
    UnansweredReadError,
    unsupported,
)
from lakeward_source_fluss.wire.messages import ApiVersionsRequest, AuthenticateRequest
from lakeward_source_fluss.wire.protobuf import Message, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint, SaslPlain, Tls

_MECHANISM = "PLAIN"

R = TypeVar("R", bound=Message)


class Connection:
    """A connection to one server, ready for calls.

    Attributes:
        serial: unique in this process; a new connection has a greater one.
        endpoint: the server.
        apis: keys that the server offers in the version spoken here.
        versions: all keys that it offers, with the oldest and the newest version.
        server_type: 1 coordinator, 2 tablet server, None unknown (0.8).
    """

    def __init__(self, serial: int, endpoint: Endpoint, channel: Channel) -> None:
        """Take over a connected channel; `connect` is the way in."""
        self.serial = serial
        self.endpoint = endpoint
        self.apis: frozenset[int] = frozenset()
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.server_type: int | None = None
        self._channel = channel

    @property
    def release(self) -> Release:
        """The server's release, as far as it can be told."""
        return release_of(self.versions)

    @property
    def open(self) -> bool:
        """Whether calls can be sent."""
        return self._channel.open

    async def call(self, api: ApiKey, body: bytes, timeout_s: float) -> bytes:
        """Make a call; see `Channel.call`.

        Raises:
            UnsupportedApiError: the server does not offer it; nothing was sent, for it would never answer.
        """
        if api not in self.apis:
            raise unsupported(api, str(self.endpoint), self.versions.get(api))
        return await self._channel.call(api, body, timeout_s)

    async def close(self) -> None:
        """Close; whatever is in flight fails."""
        self._channel.end("closed by us")
        await self._channel.ended()

    async def shake_hands(self, options: ConnectOptions) -> None:
        """Ask what the server offers and say who we are.

        Raises:
            AuthenticationError: refused.
            ServerUnreachableError: no answer.
        """
        asked = ApiVersionsRequest(client_software_name="lakeward", client_software_version="0.1")
        offered = await self._ask(asked, options.connect_timeout_s)
        self.server_type = offered.server_type
        self.versions = {one.api_key: (one.min_version, one.max_version) for one in offered.api_versions}
        self.apis = frozenset(key for key, (oldest, newest) in self.versions.items() if oldest <= API_VERSION <= newest)
        self._channel.server = in_words([self.release])
        if options.sasl is not None:
            await self._authenticate(options.sasl, options)

    async def _authenticate(self, user: SaslPlain, options: ConnectOptions) -> None:
        token = f"\0{user.username}\0{user.password}".encode()
        attempts = Attempts(options, options.connect_timeout_s)
        while True:
            try:
                answer = await self._ask(AuthenticateRequest(protocol=_MECHANISM, token=token), attempts.left_s)
            except AuthenticationError as error:
                if error.server_code != ErrorCode.RETRIABLE_AUTHENTICATE:
                    raise
                await attempts.pause(error)
                continue
            if answer.challenge:
                what = f"AUTHENTICATE at {self.endpoint}"
                raise AuthenticationError(what, ErrorCode.AUTHENTICATE, "expected no further challenge, found one")
            return

    async def _ask(self, request: Request[R], timeout_s: float) -> R:
        answer = await self._channel.call(request.api, encode(request), timeout_s)
        return decode(response_class(type(request)), answer)


async def connect(serial: int, endpoint: Endpoint, options: ConnectOptions, lost: Callable[[], None]) -> Connection:
    """Open a connection that is ready for calls. `lost` is called once, in the event loop, when it is over.

    Raises:
        ServerUnreachableError: nobody listens or answers there, or not as a Fluss server does.
        TlsError: the two do not agree on TLS, or the certificate is not to be trusted.
        AuthenticationError: refused.
        ProtocolError: the first answers are malformed.
    """
    channel = Channel(endpoint, options, lost)
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            await _dial(channel, endpoint, options.tls)
            connection = Connection(serial, endpoint, channel)
            await connection.shake_hands(options)
    except TimeoutError as error:
        channel.end("no connection in time")
        message = f"Fluss server {endpoint}: no connection within {options.connect_timeout_s:g} s"
        raise ServerUnreachableError(message) from error
    except ssl.SSLError as error:
        channel.end("no TLS")
        message = f"{endpoint}: {error}"
        raise TlsError(message) from error
    except (OSError, UnicodeError, UnansweredReadError) as error:
        channel.end("no connection")
        message = f"Fluss server {endpoint}: {_reason(error)}"
        raise ServerUnreachableError(message) from error
    except BaseException:
        channel.end("no connection")
        raise
    return connection


async def _dial(channel: Channel, endpoint: Endpoint, tls: Tls | None) -> None:
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.create_connection(lambda: channel, endpoint.host, endpoint.port)
        return
    context = _context(tls)
    name = tls.server_name or endpoint.host
    await loop.create_connection(lambda: channel, endpoint.host, endpoint.port, ssl=context, server_hostname=name)


def _reason(error: Exception) -> str:
    """Return why there is no connection, in the words of whoever configured the address."""
    if isinstance(error, socket.gaierror):
        return f"the host name does not resolve ({error.strerror})"
    if isinstance(error, UnicodeError):  # a label that is empty or too long is never looked up
        return f"the host name does not resolve ({error})"
    return "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        message = f"expected usable PEM files in {tls}, found: {error}"
        raise TlsError(message) from error
    return context
