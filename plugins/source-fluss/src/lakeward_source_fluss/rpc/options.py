"""How to reach a cluster: values, no IO. Secrets are left out of every text."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeward.errors import ConfigError
from lakeward_source_fluss.wire.frames import DEFAULT_LIMIT_BYTES

REQUEST_TIMEOUT_S = 30.0
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str, key: str = "source.bootstrap") -> Endpoint:
        """Read HOST:PORT; an IPv6 address stands in brackets. Errors name the configuration's key.

        Raises:
            ConfigError: it is no HOST:PORT.
        """
        host, _, port = text.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
            raise ConfigError(key, "HOST:PORT", text)
        return Endpoint(host, int(port))


@dataclass(frozen=True, slots=True)
class SaslPlain:
    """User and password; they travel in clear unless there is TLS."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypt, and check the server's certificate; always both.

    Attributes:
        ca_file: PEM file of the authorities to trust; None trusts the system's.
        cert_file: PEM file of our own certificate, where the server wants one.
        key_file: its key, unless it is in `cert_file`.
        server_name: the name that the certificate must have; None for the host's.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How to reach a cluster and how long to wait.

    Attributes:
        bootstrap: servers to ask first, coordinators or tablet servers; one that lives is enough.
        sasl: who we are; None on a listener without authentication.
        tls: None for plain TCP.
        request_timeout_s: seconds, > 0; a call takes no longer, waiting for a connection and retries included.
        connect_timeout_s: seconds, > 0, for TCP, TLS, API_VERSIONS and AUTHENTICATE together.
        silence_s: seconds, > 0; a connection on which a call timed out is given up if nothing came for so long.
        backoff_s: first pause between two attempts, doubled each time.
        backoff_limit_s: longest pause.
        limit_bytes: longest response accepted.
    """

    bootstrap: tuple[Endpoint, ...]
    sasl: SaslPlain | None = None
    tls: Tls | None = None
    request_timeout_s: float = REQUEST_TIMEOUT_S
    connect_timeout_s: float = 10.0
    silence_s: float = 10.0
    backoff_s: float = 0.1
    backoff_limit_s: float = 2.0
    limit_bytes: int = DEFAULT_LIMIT_BYTES
