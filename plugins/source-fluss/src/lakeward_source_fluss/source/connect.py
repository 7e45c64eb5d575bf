"""From the configuration to an open client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigError
from lakeward.model.near_names import did_you_mean
from lakeward_source_fluss.formats.storage import S3_OPTIONS, S3_SCHEMES
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint, SaslPlain, Tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_source_fluss.source.options import FlussOptions


def connect(options: FlussOptions) -> FlussClient:
    """Open a client, as the section `[source]` says.

    Raises:
        ConfigError: an option does not fit.
        SourceError: no server can be reached, or none accepts who we are.
    """
    return FlussClient.connect(connect_options(options))


def connect_options(options: FlussOptions) -> ConnectOptions:
    """Return how to reach the cluster.

    Raises:
        ConfigError: names the key.
    """
    if options.password and not options.username:
        raise ConfigError(key="source.username", expected="a name, as there is a password", found="")
    if not options.call_timeout_s > 0:
        raise ConfigError(key="source.call_timeout_s", expected="seconds, > 0", found=options.call_timeout_s)
    if not options.fetch_bytes > 0:
        raise ConfigError(key="source.fetch_bytes", expected="bytes, > 0", found=options.fetch_bytes)
    check_storage(options.storage)
    return ConnectOptions(
        bootstrap=tuple(Endpoint.parse(text) for text in options.bootstrap.split(",")),
        sasl=SaslPlain(options.username, options.password) if options.username else None,
        tls=Tls(ca_file=options.tls_ca or None) if options.tls else None,
        request_timeout_s=options.call_timeout_s,
    )


def check_storage(storage: Mapping[str, str]) -> None:
    """Check the options of the server's remote data directory: they are used at the first file that is read there.

    Raises:
        ConfigError: names the key, never a secret.
    """
    for name in storage:
        if name not in S3_OPTIONS:
            key, expected = f"source.storage.{name}", f"one of {', '.join(S3_OPTIONS)}"
            raise ConfigError(key, expected, name, did_you_mean(name, S3_OPTIONS))
    scheme = storage.get("scheme", S3_SCHEMES[0])
    if scheme not in S3_SCHEMES:
        key, expected = "source.storage.scheme", f"one of {', '.join(S3_SCHEMES)}"
        raise ConfigError(key, expected, scheme, did_you_mean(scheme, S3_SCHEMES))
