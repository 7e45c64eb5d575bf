"""The driver's certificate, and whom executors trust to be the driver.

An executor needs no file for that: what it trusts goes with the job, as the secret does. The secret is proved after
the handshake, inside TLS, so a client needs no certificate of its own.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError

if TYPE_CHECKING:
    from lakeward.model.settings import ServiceSettings

_CERT = "service.tls_cert"
_FLIGHTS = 4
"""Turns of both sides in which any TLS handshake is over."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What the driver needs for TLS. `trusted` is what executors trust, as PEM text."""

    context: ssl.SSLContext
    trusted: str


def load_tls(service: ServiceSettings, host: str) -> ServerTls | None:
    """Load the driver's certificate and try it out: an executor that would refuse it is found before a job is.

    `host` is what executors connect to; empty where that is not known yet: the certificate's names are not compared.
    Returned is None where TLS is not configured.

    Raises:
        ConfigError: a file cannot be used, the certificate has expired or is for another host, or nothing in
            `service.tls_ca` vouches for it.
    """
    if not service.tls_cert:
        for key, value in (("service.tls_key", service.tls_key), ("service.tls_ca", service.tls_ca)):
            if value:
                raise ConfigError(_CERT, f"a certificate (PEM file), because {key} is set", None)
        return None
    server = _server_context(service)
    key = "service.tls_ca" if service.tls_ca else _CERT
    trusted = _certificates(_read(key, service.tls_ca or service.tls_cert))
    client = client_context(trusted, key)
    client.check_hostname = bool(host)
    _try_out(server, client, service, host)
    return ServerTls(server, trusted)


def client_context(trusted: str, key: str) -> ssl.SSLContext:
    """Return the context of an executor that trusts these certificates, PEM text: authorities, or the driver's own.

    `key` is where they come from, for the error.

    Raises:
        ConfigError: there is no certificate in the text.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # the driver's own certificate may be trusted
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(key, "a file with certificates in PEM format", "one without any", _words(error)) from error
    return context


def _server_context(service: ServiceSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _read(_CERT, service.tls_cert)
    if service.tls_key:
        _read("service.tls_key", service.tls_key)
    try:
        # Without a password of ours, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(service.tls_cert, service.tls_key or None, password="")
    except (ssl.SSLError, ValueError) as error:
        key, file = ("service.tls_key", service.tls_key) if service.tls_key else (_CERT, service.tls_cert)
        expected = "PEM files of a certificate and of its private key, which has no password"
        raise ConfigError(key, expected, file, _words(error)) from error
    return context


def _read(key: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(key, "a readable PEM file", file, _words(error)) from error


def _certificates(text: str) -> str:
    """Return the certificates of a PEM text alone: a private key in the same file must not go to executors."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return "".join(begin + part.split(end)[0] + end + "\n" for part in text.split(begin)[1:] if end in part)


def _try_out(server: ssl.SSLContext, client: ssl.SSLContext, service: ServiceSettings, host: str) -> None:
    """Shake hands with ourselves, in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(up, down, server_side=True)
    theirs = client.wrap_bio(down, up, server_hostname=host or None)
    try:
        for _ in range(_FLIGHTS):
            for side in (theirs, ours):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        trusting = f"service.tls_ca ({service.tls_ca})" if service.tls_ca else "itself"
        expected = f"a certificate that is valid now, for {host or 'any host'}, and vouched for by {trusting}"
        raise ConfigError(_CERT, expected, service.tls_cert, f"{error.verify_message}.") from error


def _words(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
