"""What `spark.exchange_host` means on a machine: the address that others reach it at, and the one to listen at."""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

import pytest

from lakeward.clock import SystemClock
from lakeward.errors import ConfigError, StorageError
from lakeward.model.exchange import ChannelMark
from lakeward.model.settings import TableSettings
from lakeward.ports import ExchangeKey
from lakeward.sockets.flight import listen_address as module
from lakeward.sockets.flight.data_address import DataAddress
from lakeward.sockets.flight.listen_address import ListenAddress, address_in, listen_address, own_addresses
from lakeward.sockets.flight.transport import FlightExchange
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

HERE = ("127.0.0.1", 9)
NOWHERE = ("no-such-host.invalid", 9)
ELSEWHERE = "198.51.100.0/24"
"""A network that is kept for documentation."""
ROUTES = """\
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 198.51.100.0/24 2 0 2
        |-- 198.51.100.0
           /24 link UNICAST
        |-- 198.51.100.7
           /32 host LOCAL
        |-- 198.51.100.9
           /32 host LOCAL
        |-- 198.51.100.255
           /32 link BROADCAST
"""
ADDRESSES_6 = """\
20010db8000000000000000000000007 02 40 00 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 02 40 20 80     eth0
"""


class Nobody:
    """Nothing comes to it."""

    def on_records(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        raise AssertionError

    def on_mark(self, producer: int, mark: ChannelMark) -> None:
        raise AssertionError

    def on_credit(self, consumer: int, end: int) -> None:
        raise AssertionError

    def on_connected(self, producer: int) -> None:
        raise AssertionError

    def on_lost(self, peer: int, reason: str) -> None:
        raise AssertionError


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel list the addresses of another machine, which no route leads to from here."""
    for name, text in (("_ROUTES_4", ROUTES), ("_ADDRESSES_6", ADDRESSES_6)):
        file = tmp_path / name
        file.write_text(text, encoding="ascii")
        monkeypatch.setattr(module, name, file)


def test_a_subtask_listens_at_its_address_in_the_network_and_at_no_other() -> None:
    key = ExchangeKey("svc/1-1-1", 1, 0, b"s" * 32)
    exchange = FlightExchange(SystemClock()).open(key, "127.0.0.0/8", Nobody())
    try:
        address = DataAddress.parse(exchange.address)
        assert ip_address(address.host) in ip_network("127.0.0.0/8")
        with socket.create_connection((address.host, address.port), timeout=LIMIT_S):
            pass
        for other in own_addresses():
            if str(other) != address.host:
                with pytest.raises(OSError, match="refused"):
                    socket.create_connection((str(other), address.port), timeout=LIMIT_S)
    finally:
        exchange.close()


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (ELSEWHERE, "198.51.100.7"),
        ("198.51.100.9/32", "198.51.100.9"),
        ("2001:db8::/32", "2001:db8::7"),
        ("127.0.0.0/8", "127.0.0.1"),
        ("::1/128", "::1"),
    ],
)
def test_the_address_is_one_of_this_machine_in_the_network(listed: None, network: str, expected: str) -> None:
    assert listen_address(network, NOWHERE) == ListenAddress(expected, expected)


@pytest.mark.parametrize("coordinator", [HERE, NOWHERE], ids=["to the coordinator", "into the network"])
def test_an_address_that_a_route_leads_from_comes_before_others_that_the_kernel_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coordinator: tuple[str, int]
) -> None:
    routes = tmp_path / "routes"
    routes.write_text(f"|-- 127.0.0.53\n   /32 host LOCAL\n{ROUTES}", encoding="ascii")
    monkeypatch.setattr(module, "_ROUTES_4", routes)
    assert own_addresses()[:2] == [ip_address("127.0.0.53"), ip_address("127.0.0.1")]
    assert str(address_in(ip_network("127.0.0.0/8"), coordinator)) == "127.0.0.1"
    assert str(address_in(ip_network("127.0.0.32/27"), HERE)) == "127.0.0.53", "no route leads from there"


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0"])
def test_a_wide_network_has_no_loopback_address(listed: None, network: str) -> None:
    assert not address_in(ip_network(network), HERE).is_loopback


def test_no_address_in_the_network_is_an_error_that_names_the_key_the_network_and_the_addresses(
    listed: None,
) -> None:
    with pytest.raises(ConfigError) as raised:
        listen_address("203.0.113.0/24", HERE)
    assert str(raised.value) == (
        "spark.exchange_host: expected a network in which every executor's machine has an address, "
        f"found '203.0.113.0/24'. The addresses of {socket.gethostname()}: "
        "127.0.0.1, 198.51.100.7, 198.51.100.9, 2001:db8::7, ::1."
    )


def test_a_round_whose_executors_have_no_address_in_the_network_ends_with_that_error(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    world.rules = lambda _: TableSettings(mode="mirror", lake_partition=("bucket(3, id)",))
    log = world.table("log")
    world.load(log, 0, 10)
    jobs = ThreadJobs(run_subtask, slots=3, attempts=1)
    ((path, reason),) = world.once(jobs=jobs, exchange_host="203.0.113.0/24", mirrors=True).failed
    assert path == log
    assert "ConfigError: spark.exchange_host: expected a network in which every executor's machine has" in reason
    assert "127.0.0.1" in reason


def test_a_machine_whose_kernel_lists_no_addresses_has_those_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_ROUTES_4", "_ADDRESSES_6"):
        monkeypatch.setattr(module, name, tmp_path / "nowhere")
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert ip_address("127.0.0.1") in own_addresses()


@pytest.mark.parametrize(
    ("host", "listen"),
    [
        ("worker.internal", "0.0.0.0"),  # noqa: S104 - what is expected
        ("198.51.100.7", "0.0.0.0"),  # noqa: S104 - what is expected
        ("2001:db8::7", "::"),
        ("localhost", "127.0.0.1"),
        ("::1", "::1"),
    ],
)
def test_a_name_or_an_address_is_registered_as_it_is_and_listened_for_everywhere(host: str, listen: str) -> None:
    """It may be one that only the network in between knows to be this machine."""
    assert listen_address(host, NOWHERE) == ListenAddress(host, listen)


def test_without_a_host_it_is_the_address_that_leads_to_the_coordinator() -> None:
    assert listen_address("", HERE) == ListenAddress("127.0.0.1", "127.0.0.1")


def test_without_a_host_and_a_way_to_the_coordinator_there_is_none() -> None:
    with pytest.raises(StorageError, match=r"on its way to no-such-host\.invalid cannot be found"):
        listen_address("", NOWHERE)
