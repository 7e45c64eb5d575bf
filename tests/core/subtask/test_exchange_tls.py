"""Rows of a service with TLS cross the network encrypted: a whole round, a gang of real subtasks, over real sockets."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.flight as fl
import pytest
import trustme

from lakeward.model.events import Register
from lakeward.model.settings import ServiceSettings, TableSettings
from lakeward.ports import ExchangeKey
from lakeward.sockets import SocketTransport
from lakeward.sockets.certificates import load_tls
from lakeward.sockets.flight.data_address import DataAddress, bracketed
from lakeward.sockets.flight.handshake import Hello, headers_of
from lakeward.subtask.exchange import exchange_work
from lakeward.subtask.run import real_ports
from lakeward.subtask.subtask import Subtask
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World
from lakeward_testing.folder_lake import FolderLakePlugin
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.events import Envelope
    from lakeward.model.jobs import JobSpec, SubtaskPlace
    from lakeward.ports import Address, Connection, Receiver, Transport

ROWS, SLOTS = 120, 4
STRANGER = 9
"""The producer that a client says it is; the gang has no such subtask."""


@dataclass
class Registered:
    """What subtasks registered as their data addresses, and what a client without TLS was told there."""

    own_launch: bool
    """Whether the client opens a channel of this very launch; if not, the launch goes on where it is let in."""
    addresses: list[DataAddress] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, place: SubtaskPlace) -> str:
        """Run one real task; its lake is not installed."""
        parts = real_ports(place)
        watched = _Watched(parts.transport, self, place.job)
        return Subtask(place, replace(parts, lake=lambda _: cast("Any", FolderLakePlugin()), transport=watched)).run()

    def look(self, job: JobSpec, register: Register) -> None:
        """Try the data address of a subtask before anyone else does."""
        address = DataAddress.parse(register.data_address)
        launch = job.job_attempt + (0 if self.own_launch else 1)
        answer = in_clear(address, ExchangeKey(job.round_name, launch, STRANGER, job.secret), register.subtask)
        with self._lock:
            self.addresses.append(address)
            self.answers.append(answer)


class _Watched:
    """See `lakeward.ports.Transport`, of which a subtask only connects: shows what it registers."""

    def __init__(self, transport: Transport, registered: Registered, job: JobSpec) -> None:
        self._transport, self._registered, self._job = transport, registered, job
        self.listen = transport.listen

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Connection:
        assert isinstance(first.event, Register)
        self._registered.look(self._job, first.event)
        return self._transport.connect(address, first, receiver, after_s=after_s)


def in_clear(address: DataAddress, key: ExchangeKey, consumer: int) -> str:
    """Write a row to a subtask, and read from it, without TLS; return why that failed, empty if it did not.

    The client knows the secret, so that nothing but TLS can keep it out.
    """
    options = fl.FlightCallOptions(timeout=LIMIT_S, headers=headers_of(Hello.of(key, consumer, "data"), key.secret))
    row = pa.record_batch({"id": pa.array([1], pa.int64())})
    client = fl.FlightClient(f"grpc+tcp://{bracketed(address.host)}:{address.port}")
    try:
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command("data"), options)
        try:
            writer.begin(row.schema)
            writer.write_batch(row)
            reader.read_chunk()
        finally:
            with suppress(OSError, pa.ArrowException):
                writer.close()
    except (OSError, pa.ArrowException, StopIteration) as error:
        return f"{type(error).__name__}: {error}"
    else:
        return ""
    finally:
        client.close()


def tier(folder: Path, registered: Registered, exchange_host: str = "") -> ThreadJobs:
    """Run one round of a service with TLS, in which three subtasks exchange all rows; check that all arrive."""
    file = folder / "driver.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    tls = load_tls(ServiceSettings(tls_cert=str(file)), "127.0.0.1")
    assert tls is not None
    world = World.create(folder)
    world.rules = lambda _: TableSettings(mode="mirror", lake_partition=("bucket(3, id)",))
    log = world.table("log", buckets=3)
    for start in range(0, ROWS, 20):
        world.load(log, start, 20)
    jobs = ThreadJobs(registered.run, slots=SLOTS, attempts=1)
    transport = SocketTransport(world.clock, tls=tls)
    end = world.once(transport=transport, trusted=tls.trusted, jobs=jobs, exchange_host=exchange_host, mirrors=True)
    assert end.failed == ()
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(ROWS))
    assert {(job.exchange, job.trusted) for job in jobs.launched} == {(True, tls.trusted)}
    assert len(registered.addresses) == sum(job.subtasks for job in jobs.launched) > 1
    return jobs


@pytest.mark.parametrize("exchange_host", ["", "127.0.0.0/8"], ids=["route", "network"])
def test_a_gang_of_a_service_with_tls_exchanges_all_rows_where_a_client_without_tls_gets_nowhere(
    tmp_path: Path, exchange_host: str
) -> None:
    registered = Registered(own_launch=True)
    jobs = tier(tmp_path, registered, exchange_host)
    assert len(jobs.launched) == 1, "the client broke no channel"
    for address, answer in zip(registered.addresses, registered.answers, strict=True):
        assert address.location == f"grpc+tls://127.0.0.1:{address.port}"
        assert answer.startswith("FlightUnavailableError"), "not even the secret was asked for"
    certificates = {address.certificate for address in registered.addresses}
    assert len(certificates) == len(registered.addresses), "each subtask has one of its own"


def test_a_gang_that_loses_its_trust_on_the_way_is_seen_by_the_same_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows arrive, in the clear: nothing else would tell."""

    def without_trust(*parts: Any, **named: Any) -> ExchangeKey:  # noqa: ANN401 - passed on
        return ExchangeKey(*parts, **named)._replace(trusted="")

    monkeypatch.setattr(exchange_work, "ExchangeKey", without_trust)
    registered = Registered(own_launch=False)
    tier(tmp_path, registered)
    for address, answer in zip(registered.addresses, registered.answers, strict=True):
        assert address.location == f"grpc+tcp://127.0.0.1:{address.port}"
        assert "expected a channel to round" in answer, "the secret was asked for, and was right"
