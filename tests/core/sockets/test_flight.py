"""The exchange over real sockets: order, credit, marks, who is refused, and peers that are gone or silent."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pytest

from lakeward.clock import SystemClock
from lakeward.errors import ProtocolError
from lakeward.model.exchange import Barrier, ChannelMark, EndOfChannel, Overtaken
from lakeward.ports import ExchangeKey
from lakeward.sockets.flight.data_address import DataAddress, make_certificate, own_address
from lakeward.sockets.flight.handshake import Hello, answer_to, check_answer
from lakeward.sockets.flight.transport import FlightExchange, FlightSubtaskExchange
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

SECRET = b"s" * 32
HOST = "127.0.0.1"
KEY = ExchangeKey("svc/1-1-1", 1, 0, SECRET)
HELD = 9
"""A producer of which a test takes one batch at a time, or none."""


class Inbox:
    """A `ChannelReceiver` that keeps what it is told."""

    def __init__(self) -> None:
        self.records: queue.Queue[tuple[int, int, pa.RecordBatch]] = queue.Queue()
        self.marks: queue.Queue[tuple[int, ChannelMark]] = queue.Queue()
        self.credit: queue.Queue[tuple[int, int]] = queue.Queue()
        self.connected: queue.Queue[int] = queue.Queue()
        self.lost: queue.Queue[tuple[int, str]] = queue.Queue()
        self.seen: queue.Queue[int | ChannelMark] = queue.Queue()
        """Sequences and marks as they came."""
        self.held = threading.Event()
        """While it is not set, a batch of `HELD` is not taken from its stream."""

    def on_records(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        self.records.put((producer, sequence, records))
        self.seen.put(sequence)
        if producer == HELD:
            self.held.wait(LIMIT_S)

    def on_mark(self, producer: int, mark: ChannelMark) -> None:
        self.marks.put((producer, mark))
        self.seen.put(mark)

    def on_credit(self, consumer: int, end: int) -> None:
        self.credit.put((consumer, end))

    def on_connected(self, producer: int) -> None:
        self.connected.put(producer)

    def on_lost(self, peer: int, reason: str) -> None:
        self.lost.put((peer, reason))


class Node:
    """A subtask of the exchange."""

    def __init__(self, key: ExchangeKey = KEY, silent_s: float = LIMIT_S) -> None:
        self.inbox = Inbox()
        self.exchange: FlightSubtaskExchange = FlightExchange(SystemClock(), silent_s=silent_s).open(
            key, HOST, self.inbox
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.inbox.held.set()
        self.exchange.close()


@contextmanager
def nodes(count: int, *, trusted: str = "", silent_s: float = LIMIT_S) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        keys = [KEY._replace(subtask=number, trusted=trusted) for number in range(count)]
        yield [stack.enter_context(Node(key, silent_s)) for key in keys]


def batch(number: int, rows: int = 3) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array([number] * rows, pa.int64())})


@pytest.mark.parametrize("trusted", ["", "a certificate of the driver"], ids=["plain", "tls"])
def test_batches_arrive_in_order_and_credit_comes_back(trusted: str) -> None:
    with nodes(2, trusted=trusted) as (one, two):
        channel = one.exchange.connect(1, two.exchange.address)
        assert two.inbox.connected.get(timeout=LIMIT_S) == 0
        two.exchange.give_credit(0, 1000)
        assert one.inbox.credit.get(timeout=LIMIT_S) == (1, 1000)
        for number in range(100):
            channel.send(number, batch(number))
        found = [two.inbox.records.get(timeout=LIMIT_S) for _ in range(100)]
        assert [(producer, sequence) for producer, sequence, _ in found] == [(0, number) for number in range(100)]
        assert all(records.equals(batch(sequence)) for _, sequence, records in found)


def test_the_channel_to_oneself_is_like_any_other() -> None:
    with nodes(1) as (one,):
        channel = one.exchange.connect(0, one.exchange.address)
        assert one.inbox.connected.get(timeout=LIMIT_S) == 0
        one.exchange.give_credit(0, 7)
        assert one.inbox.credit.get(timeout=LIMIT_S) == (0, 7)
        channel.send(0, batch(5))
        assert one.inbox.records.get(timeout=LIMIT_S)[:2] == (0, 0)


def test_a_mark_overtakes_batches_that_nobody_takes() -> None:
    """So many bytes are sent that they fill every buffer on the way."""
    with Node(KEY._replace(subtask=HELD)) as one, Node(KEY._replace(subtask=1)) as two:
        channel = one.exchange.connect(1, two.exchange.address)
        for number in range(64):
            channel.send(number, batch(number, 200_000))
        channel.mark(Barrier(1, 64, 0.5))
        channel.mark(Overtaken(1, 2))
        assert two.inbox.marks.get(timeout=LIMIT_S) == (HELD, Barrier(1, 64, 0.5))
        assert two.inbox.marks.get(timeout=LIMIT_S) == (HELD, Overtaken(1, 2))
        assert two.inbox.records.qsize() <= 1


def test_no_batch_comes_before_a_mark_that_was_sent_before_it() -> None:
    """The two have connections of their own, and a batch may be quicker."""
    with nodes(2) as (one, two):
        channel = one.exchange.connect(1, two.exchange.address)
        for number in range(200):
            channel.mark(Overtaken(number, 0))
            channel.send(number, batch(number))
        found = [two.inbox.seen.get(timeout=LIMIT_S) for _ in range(400)]
        assert all(found.index(Overtaken(number, 0)) < found.index(number) for number in range(200))


def test_a_consumer_that_takes_nothing_delays_no_other_channel() -> None:
    with Node(KEY._replace(subtask=HELD)) as one, nodes(2) as (other, stalled):
        full = one.exchange.connect(1, stalled.exchange.address)
        free = one.exchange.connect(0, other.exchange.address)
        for number in range(64):
            full.send(number, batch(number, 200_000))
        other.inbox.held.set()
        for number in range(20):
            free.send(number, batch(number))
        assert [other.inbox.records.get(timeout=LIMIT_S)[1] for _ in range(20)] == list(range(20))
        assert stalled.inbox.records.qsize() <= 1


def test_a_channel_that_has_ended_is_closed_without_a_loss() -> None:
    """All that was sent arrives, although its producer closes at once."""
    with nodes(2) as (one, two):
        channel = one.exchange.connect(1, two.exchange.address)
        assert two.inbox.connected.get(timeout=LIMIT_S) == 0
        for number in range(50):
            channel.send(number, batch(number, 10_000))
        channel.mark(EndOfChannel(50))
        one.exchange.close()
        assert [two.inbox.records.get(timeout=LIMIT_S)[1] for _ in range(50)] == list(range(50))
        assert two.inbox.marks.get(timeout=LIMIT_S) == (0, EndOfChannel(50))
        two.exchange.close()
        assert two.inbox.lost.empty()
        assert one.inbox.lost.empty()


@pytest.mark.parametrize("closes", ["producer", "consumer"])
def test_a_channel_that_is_closed_before_its_end_is_lost_to_the_other_side(closes: str) -> None:
    with nodes(2) as (one, two):
        one.exchange.connect(1, two.exchange.address)
        two.inbox.connected.get(timeout=LIMIT_S)
        first, second = (one, two) if closes == "producer" else (two, one)
        first.exchange.close()
        peer, reason = second.inbox.lost.get(timeout=LIMIT_S)
        assert peer == (0 if closes == "producer" else 1)
        assert reason.startswith("channel from subtask 0: " if closes == "producer" else "channel to subtask 1: ")
        assert first.inbox.lost.empty()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (KEY._replace(secret=b"x" * 32), "did not prove the secret"),
        (KEY._replace(job_attempt=2), "expected a channel to round svc/1-1-1, launch 1, subtask 1, found one to .*2"),
        (KEY._replace(round_name="svc/1-1-2"), "found one to round svc/1-1-2"),
    ],
    ids=["secret", "launch", "round"],
)
def test_a_producer_of_another_exchange_is_refused(wrong: ExchangeKey, reason: str) -> None:
    with Node(wrong) as one, Node(KEY._replace(subtask=1)) as two:
        one.exchange.connect(1, two.exchange.address)
        peer, found = one.inbox.lost.get(timeout=LIMIT_S)
        assert peer == 1
        assert re.search(reason, found)
        assert two.inbox.connected.empty()


def test_a_second_channel_of_the_same_producer_is_refused() -> None:
    """So a hello that somebody has recorded is of no use."""
    with nodes(2) as (one, two), Node() as double:
        one.exchange.connect(1, two.exchange.address)
        two.inbox.connected.get(timeout=LIMIT_S)
        double.exchange.connect(1, two.exchange.address)
        assert "is open already" in double.inbox.lost.get(timeout=LIMIT_S)[1]
        assert two.inbox.lost.empty()


def test_a_consumer_that_does_not_know_the_secret_gets_no_batch() -> None:
    """It may lie about the secret, yet it cannot prove it."""
    hello = Hello.of(KEY, 1, "data")
    with pytest.raises(ProtocolError, match="the consumer did not prove"):
        check_answer(answer_to(hello, b"x" * 32), hello, SECRET)


def test_with_tls_only_the_certificate_in_the_address_is_trusted() -> None:
    """Another subtask's certificate, made by the same program, is not enough."""
    with nodes(3, trusted="a certificate of the driver") as (one, two, three):
        right, other = (DataAddress.parse(node.exchange.address) for node in (two, three))
        one.exchange.connect(1, str(DataAddress(right.host, right.port, other.certificate)))
        assert one.inbox.lost.get(timeout=LIMIT_S)[0] == 1
        assert two.inbox.connected.empty()


def test_with_tls_an_address_without_a_certificate_is_refused() -> None:
    with Node(KEY._replace(trusted="a certificate of the driver")) as one, Node(KEY._replace(subtask=1)) as two:
        one.exchange.connect(1, two.exchange.address)
        assert "expected a certificate" in one.inbox.lost.get(timeout=LIMIT_S)[1]


def test_an_address_is_read_back_as_it_was_written() -> None:
    certificate = make_certificate(SystemClock()).certificate
    for address in (DataAddress("h", 1), DataAddress("::1", 2), DataAddress("10.0.0.1", 3, certificate)):
        assert DataAddress.parse(str(address)) == address
    assert str(DataAddress("::1", 2)) == "[::1]:2"


@pytest.mark.parametrize("text", ["", "host", "host:x", ":1", "host:1#?"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="expected an address HOST:PORT"):
        DataAddress.parse(text)


def test_the_own_address_is_the_one_that_leads_to_the_coordinator() -> None:
    assert own_address("127.0.0.1", 9) == "127.0.0.1"


PEER = """
import sys
import threading
from lakeward.clock import SystemClock
from lakeward.ports import ExchangeKey
from lakeward.sockets.flight.handshake import Hello, answer_to, check_answer
from lakeward.sockets.flight.transport import FlightExchange

class Nobody:
    connected = threading.Event()

    def on_connected(self, producer):
        self.connected.set()

    def __getattr__(self, name):
        return lambda *_: None

key = ExchangeKey("svc/1-1-1", 1, 1, b"s" * 32)
exchange = FlightExchange(SystemClock()).open(key, "127.0.0.1", Nobody())
print(exchange.address, flush=True)
address = sys.stdin.readline().strip()
exchange.connect(1, exchange.address) if address == "itself" else exchange.connect(0, address)
if Nobody.connected.wait():
    print("connected", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_peer_that_dies_or_is_silent_is_reported_once_for_each_channel(blow: signal.Signals) -> None:
    """One channel leads to it, one comes from it."""
    with Node(silent_s=2.0) as one, other_process(one.exchange.address) as (peer, address):
        one.exchange.connect(1, address)
        assert one.inbox.connected.get(timeout=LIMIT_S) == 1
        one.exchange.give_credit(1, 1)
        os.kill(peer.pid, blow)
        lost = sorted(one.inbox.lost.get(timeout=LIMIT_S) for _ in range(2))
        assert [peer for peer, _ in lost] == [1, 1]
        assert [reason.partition(":")[0] for _, reason in lost] == ["channel from subtask 1", "channel to subtask 1"]
        if blow is signal.SIGSTOP:
            assert "nothing received for " in lost[0][1]
    assert one.inbox.lost.empty()


def test_a_consumer_that_is_stopped_with_batches_on_their_way_is_reported_and_holds_up_no_other_channel() -> None:
    """The thread that sends to it waits for the network; whoever looks who is silent does not."""
    with Node(silent_s=6.0) as one, other_process(one.exchange.address) as (peer, address):
        own, channel = one.exchange.connect(0, one.exchange.address), one.exchange.connect(1, address)
        assert {one.inbox.connected.get(timeout=LIMIT_S) for _ in range(2)} == {0, 1}
        os.kill(peer.pid, signal.SIGSTOP)
        for number in range(64):
            channel.send(number, batch(number, 200_000))
        channel.mark(Barrier(1, 64, 0.5))
        own.send(0, batch(7))
        assert one.inbox.records.get(timeout=LIMIT_S)[:2] == (0, 0)
        lost = sorted(one.inbox.lost.get(timeout=LIMIT_S) for _ in range(2))
        assert [reason.partition(":")[0] for _, reason in lost] == ["channel from subtask 1", "channel to subtask 1"]
        assert all("nothing received for " in reason for _, reason in lost)
        own.send(1, batch(8))
        assert one.inbox.records.get(timeout=LIMIT_S)[:2] == (0, 1), "its own channel goes on"


@contextmanager
def other_process(address: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        try:
            theirs = peer.stdout.readline().strip()
            peer.stdin.write(f"{address}\n")
            peer.stdin.flush()
            yield peer, theirs
        finally:
            peer.kill()


def test_a_consumer_that_is_not_there_is_reported() -> None:
    with nodes(1) as (one,):
        one.exchange.connect(1, f"{HOST}:1")
        assert one.inbox.lost.get(timeout=LIMIT_S)[0] == 1


def test_closing_leaves_no_thread_and_no_port() -> None:
    """And may be repeated: a worker process of Spark is used again."""
    before = set(threading.enumerate())
    for _ in range(3):
        with nodes(2) as (one, two):
            address = DataAddress.parse(two.exchange.address)
            one.exchange.connect(1, two.exchange.address)
            two.inbox.connected.get(timeout=LIMIT_S)
        two.exchange.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, address.port), timeout=LIMIT_S)
    # Subtasks that other tests of the process left behind may connect anew to their coordinator.
    assert {thread for thread in threading.enumerate() if thread.name != "connection"} - before == set()


@pytest.mark.parametrize("peer", ["itself", "another"])
def test_a_process_that_ends_with_an_open_exchange_ends(peer: str) -> None:
    """Flight waits for open streams while the interpreter exits, so they have to be closed before."""
    with Node() as one, other_process(one.exchange.address if peer == "another" else "itself") as (process, address):
        if peer == "another":
            one.exchange.connect(1, address)
            assert one.inbox.connected.get(timeout=LIMIT_S) == 1
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "connected"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0
