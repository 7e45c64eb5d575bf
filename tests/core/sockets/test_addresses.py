"""Where the driver listens, and where executors reach it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.clock import SystemClock
from lakeward.errors import ConfigError
from lakeward.model.settings import ServiceSettings
from lakeward.ports.transport import Address
from lakeward.sockets import SocketTransport
from lakeward.sockets.addresses import ALL_ADDRESSES, bind_address, check_addresses

if TYPE_CHECKING:
    from lakeward.model.events import Envelope
    from lakeward.ports import Connection


class Nobody:
    """Is told nothing, for nobody connects."""

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        raise AssertionError

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("host", "bind", "local", "expected"),
    [
        ("", "", True, "127.0.0.1"),
        ("localhost", "", True, "127.0.0.1"),
        ("10.1.2.3", "", True, ALL_ADDRESSES),
        ("driver.internal", "", True, ALL_ADDRESSES),
        ("", "", False, ALL_ADDRESSES),
        ("203.0.113.9", "", False, ALL_ADDRESSES),
        ("203.0.113.9", "10.0.0.5", False, "10.0.0.5"),
        ("", "10.0.0.5", True, "10.0.0.5"),
    ],
)
def test_the_advertised_host_is_not_what_is_listened_at(host: str, bind: str, local: bool, expected: str) -> None:
    assert bind_address(ServiceSettings(host=host, bind=bind), local=local) == expected


@pytest.mark.parametrize("key", ["host", "bind"])
@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 64])
def test_a_host_that_cannot_be_resolved_is_refused(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"service\.{key}: expected a host name .* found '{name}'"):
        check_addresses(msgspec.structs.replace(ServiceSettings(), **{key: name}))


def test_addresses_names_of_this_machine_and_nothing_at_all_are_fine() -> None:
    check_addresses(ServiceSettings())
    check_addresses(ServiceSettings(host="localhost", bind="127.0.0.1"))


@pytest.mark.parametrize("bind", ["203.0.113.9", "no-such-host.invalid"])
def test_an_address_of_another_machine_cannot_be_listened_at(bind: str) -> None:
    listening = SocketTransport(SystemClock()).listen(Address(bind, 0, b""), Nobody())
    with pytest.raises(ConfigError, match=rf"service\.bind: expected an address of this machine, found '{bind}'"):
        asyncio.run(listening)
