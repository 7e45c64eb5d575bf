"""Where a subtask listens for the rows of others, and what they reach it at: `spark.exchange_host`, on this machine."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import ConfigError, StorageError
from lakeward.sockets.flight.data_address import bind_host, own_address

if TYPE_CHECKING:
    from collections.abc import Iterator

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_KEY = "spark.exchange_host"
_ANY_PORT = 9
"""Nothing is sent there."""
_ROUTES_4, _ADDRESSES_6 = Path("/proc/net/fib_trie"), Path("/proc/net/if_inet6")
_OWN_4 = "/32 host LOCAL"
_LINK_LOCAL = "20"


class ListenAddress(NamedTuple):
    """What others reach this machine at, and the address to listen at."""

    host: str
    listen: str


def listen_address(host: str, coordinator: tuple[str, int]) -> ListenAddress:
    """Find out what `spark.exchange_host` means on this machine.

    It is a name, an address, a network (it has a `/`), or empty: the address of the route to the coordinator, the host
    and port of control.

    Raises:
        ConfigError: this machine has no address in the network.
        StorageError: the host is empty, and there is no route to the coordinator.
    """
    if "/" in host:
        found = str(address_in(ipaddress.ip_network(host), coordinator))
        return ListenAddress(found, found)  # not at all addresses: whoever names a network means that one
    try:
        found = host or own_address(*coordinator)
    except OSError as error:
        message = f"the address of this machine on its way to {coordinator[0]} cannot be found: {error}"
        raise StorageError(message) from error
    return ListenAddress(found, bind_host(found))


def address_in(network: IpNetwork, coordinator: tuple[str, int]) -> IpAddress:
    """Return this machine's address in a network.

    Where it has several, that of the route to the coordinator (host and port of control) comes first, then that of the
    route into the network: these lead somewhere, while a bridge of containers has an address that every machine may
    have as well. A loopback address is in a wide network too, yet nobody else reaches it: it counts only in a network
    of loopback addresses.

    Raises:
        ConfigError: there is none; names the addresses that this machine has.
    """
    for address in _candidates(network, coordinator):
        if address in network and (network.is_loopback or not address.is_loopback):
            return address
    expected = "a network in which every executor's machine has an address"
    has = ", ".join(map(str, own_addresses())) or "none that could be found"
    raise ConfigError(_KEY, expected, str(network), f"The addresses of {socket.gethostname()}: {has}.")


def own_addresses() -> list[IpAddress]:
    """Return the addresses of this machine; of IPv6, those that mean something on other machines.

    Linux lists them. Elsewhere, and where `/proc` is closed, they are those that the machine's own name stands for.
    """
    return list(dict.fromkeys((*_listed_4(), *_listed_6()))) or list(dict.fromkeys(_named()))


def _candidates(network: IpNetwork, coordinator: tuple[str, int]) -> Iterator[IpAddress]:
    for host, port in (coordinator, (str(next(iter(network.hosts()))), _ANY_PORT)):
        with suppress(OSError, UnicodeError, ValueError):  # no such name or no way there: the next one may lead on
            yield ipaddress.ip_address(own_address(host, port))
    yield from own_addresses()


def _listed_4() -> Iterator[IpAddress]:
    """Read the kernel's routes: a line with an address, below it a line that says whether it is our own."""
    last = ""
    for line in _lines(_ROUTES_4):
        if _OWN_4 in line and last:
            yield ipaddress.IPv4Address(last)
        elif "|-- " in line:
            last = line.partition("|-- ")[2].strip()


def _listed_6() -> Iterator[IpAddress]:
    for line in _lines(_ADDRESSES_6):
        address, _index, _prefix, scope, *_ = line.split()
        if scope != _LINK_LOCAL:
            yield ipaddress.IPv6Address(bytes.fromhex(address))


def _named() -> Iterator[IpAddress]:
    with suppress(OSError, UnicodeError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_DGRAM):
            with suppress(ValueError):  # a link-local one names its interface
                yield ipaddress.ip_address(address[0])


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
