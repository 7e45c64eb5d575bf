"""Where a subtask is reached for data, and whom a producer trusts to be there.

Where control uses TLS, each exchange has a certificate of its own, made for it and valid for a few days. Its address
carries the certificate. The coordinator hands the addresses out over connections that are trusted already, so a
producer trusts exactly that certificate and no authority.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from lakeward.ports import Clock

NAME = "lakeward-exchange"
"""The name that every certificate is for: it is trusted for its bytes, not for its name."""
_DAYS = 30
"""Days that a certificate is valid: longer than any launch."""
_ALL_4, _ALL_6 = "0.0.0.0", "::"  # noqa: S104 - other executors are on other machines


@dataclass(frozen=True, slots=True)
class DataAddress:
    """`HOST:PORT`, with TLS `HOST:PORT#CERTIFICATE` (base64 of its DER form). `certificate` is PEM text, or empty."""

    host: str
    port: int
    certificate: str = ""

    @classmethod
    def parse(cls, text: str) -> DataAddress:
        """Read the text form.

        Raises:
            ProtocolError: not of that form.
        """
        where, _, der = text.partition("#")
        host, colon, port = where.rpartition(":")
        try:
            certificate = ssl.DER_cert_to_PEM_cert(base64.b64decode(der, validate=True)) if der else ""
            if not (host and colon):
                raise ValueError(where)  # noqa: TRY301 - one message for all that can be wrong
            return cls(host.strip("[]"), int(port), certificate)
        except (ValueError, binascii.Error) as error:
            message = f"exchange: expected an address HOST:PORT or HOST:PORT#CERTIFICATE, found {where!r}"
            raise ProtocolError(message) from error

    @property
    def location(self) -> str:
        """The URI for Flight."""
        return f"{'grpc+tls' if self.certificate else 'grpc+tcp'}://{bracketed(self.host)}:{self.port}"

    def __str__(self) -> str:
        """The form that `parse` reads."""
        where = f"{bracketed(self.host)}:{self.port}"
        if not self.certificate:
            return where
        return f"{where}#{base64.b64encode(ssl.PEM_cert_to_DER_cert(self.certificate)).decode()}"


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate that vouches for itself, and its private key, both PEM text."""

    certificate: str
    key: str


def make_certificate(clock: Clock) -> OwnCertificate:
    """Make a certificate for one exchange; the clock says since when it is valid. Its key never leaves this process.

    Raises:
        ConfigError: the package `cryptography` is not installed here.
    """
    try:
        # Only exchanges with TLS need it; importing it costs every other worker time and memory.
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        expected = "the Python package `cryptography` on every executor, because tables are exchanged over TLS"
        key_name = "service.tls_cert"
        raise ConfigError(key_name, expected, "an executor without it") from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of executors differ
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return OwnCertificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


def own_address(host: str, port: int) -> str:
    """Return the address of this machine on its way to another one, at any port: the local end of a connection to it.

    Nothing is sent: a datagram socket that connects only looks the route up.

    Raises:
        OSError: the name cannot be resolved, or there is no way to it.
    """
    family, _, _, _, peer = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])


def bind_host(host: str) -> str:
    """Return the address to listen at for a host: the loopback address where that is the host, else all addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "127.0.0.1" if host == "localhost" else _ALL_4
    if address.is_loopback:
        return host
    return _ALL_4 if address.version == 4 else _ALL_6  # noqa: PLR2004 - of the Internet protocol


def bracketed(host: str) -> str:
    """Return a host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
