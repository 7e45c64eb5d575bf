"""Where the driver listens, and where executors reach it."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError

if TYPE_CHECKING:
    from lakeward.model.settings import ServiceSettings

LOOPBACK = "127.0.0.1"
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - executors are on other machines


def bind_address(service: ServiceSettings, *, local: bool) -> str:
    """Return the address to listen at: `service.bind`.

    Where that is empty: the loopback address if subtasks use it, else all addresses. If `local`, the master is
    `local[...]`, so that every subtask is on this machine.
    """
    if service.bind:
        return service.bind
    return LOOPBACK if local and (not service.host or is_loopback(service.host)) else ALL_ADDRESSES


def check_addresses(service: ServiceSettings) -> None:
    """Check that `service.host` and `service.bind` can be resolved; an empty one can.

    Raises:
        ConfigError: the name server of this machine does not know the name.
    """
    for key, host in (("service.host", service.host), ("service.bind", service.bind)):
        if host:
            _resolve(key, host)


def _resolve(key: str, host: str) -> None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(key, "a host name or address that this machine can resolve", host, f"{reason}.") from error


def is_loopback(host: str) -> bool:
    """Return whether a host, without a port or brackets, is this machine as only this machine sees it."""
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
