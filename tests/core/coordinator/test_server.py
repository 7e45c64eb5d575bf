"""What a peer gets of the coordinator's port, and of a subtask, before it has proved the secret."""

from __future__ import annotations

import asyncio
import gc
import queue
import secrets
import socket
import struct
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from lakeward.clock import SystemClock
from lakeward.coordinator.service.server import SubtaskServer
from lakeward.coordinator.workers.subtask_address import SubtaskAddress
from lakeward.errors import ProtocolError
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.machines.transport.frames import LIMIT, NONCE, PROOF, encode, frame, length_of, proof
from lakeward.model.events import Cancel, Envelope, Heartbeat, Register
from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.sockets import SocketTransport
from lakeward.sockets.client import CONNECT_S
from lakeward.sockets.client import prove as prove_to_coordinator
from lakeward.subtask.link import Link
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lakeward.ports import Connection

SECRET = b"s" * 32


def address() -> SubtaskAddress:
    return SubtaskAddress("here", "127.0.0.1", secret=SECRET)


KEY = ChannelKey("svc/1-1-1", 1, 0, 1)
REGISTER = Channel(KEY, "up").send(Register(subtask=0, host="here", pid=1, attempt=None))
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Job:
    """Takes every subtask, and keeps what it says."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Envelope] = asyncio.Queue()

    def connect(self, register: Register, connection: Connection) -> tuple[ChannelKey, tuple[()]]:
        return KEY, ()

    def receive(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> tuple[()]:
        self.heard.put_nowait(envelope)
        return ()

    def disconnect(self, key: ChannelKey, connection: Connection) -> tuple[()]:
        return ()


@asynccontextmanager
async def listening(job: Job, **options: float) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    """Serve a job on a port of this machine; gives what connects to it."""
    transport = SocketTransport(SystemClock(), **options)  # type: ignore[arg-type] # numbers
    server = SubtaskServer(transport, address(), lambda *_: job, lambda *_: None)  # type: ignore[arg-type] # in a round's place
    port = await server.start()
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        streams = await asyncio.open_connection("127.0.0.1", port)
        writers.append(streams[1])
        return streams

    try:
        yield connect
    finally:
        await server.close()
        for writer in writers:
            writer.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(length_of(await reader.readexactly(4)))


async def prove(streams: Streams) -> None:
    """Do what a subtask does, up to its registration."""
    reader, writer = streams
    theirs, ours = await read_frame(reader), secrets.token_bytes(NONCE)
    writer.write(frame(ours + proof(SECRET, "client", theirs, ours)))
    assert await read_frame(reader) == proof(SECRET, "server", theirs, ours)
    writer.write(encode(REGISTER))


async def ended(streams: Streams) -> None:
    """Wait until the server has ended a connection; far less than it gives to a handshake."""
    async with asyncio.timeout(LIMIT_S):
        try:
            while await streams[0].read(1024):
                pass
        except ConnectionError:
            return


def run(test: Callable[[], object]) -> None:
    asyncio.run(test())  # type: ignore[arg-type] # a coroutine function


@pytest.mark.parametrize("length", [LIMIT, NONCE + PROOF + 1, NONCE + PROOF - 1, 0])
def test_a_frame_that_is_no_proof_ends_the_connection_before_its_bytes_are_waited_for(length: int) -> None:
    async def test() -> None:
        async with listening(Job()) as connect:
            streams = await connect()
            streams[1].write(struct.pack(">I", length))
            await ended(streams)

    run(test)


def test_after_the_proof_a_large_frame_is_taken() -> None:
    async def test() -> None:
        job = Job()
        async with listening(job) as connect:
            streams = await connect()
            await prove(streams)
            large = Channel(KEY, "up").send(Cancel(reason="r" * (1 << 20)))
            streams[1].write(encode(large))
            async with asyncio.timeout(LIMIT_S):
                assert await job.heard.get() == large

    run(test)


def test_a_peer_that_says_nothing_loses_its_connection_in_time() -> None:
    async def test() -> None:
        async with listening(Job(), handshake_s=0.1) as connect:
            await ended(await connect())

    run(test)


def test_strangers_that_hold_connections_keep_no_subtask_out() -> None:
    """The bound is reached four times over; who is in stays in, and who proves the secret comes in."""

    async def test() -> None:
        job = Job()
        async with listening(job, unproved=5) as connect:
            inside = await connect()
            await prove(inside)
            strangers = [await connect() for _ in range(20)]
            for stranger in strangers[:15]:
                await ended(stranger)
            late = await connect()
            await prove(late)
            for streams in (inside, late):
                streams[1].write(encode(Channel(KEY, "up").send(Heartbeat(acked=0))))
                async with asyncio.timeout(LIMIT_S):
                    assert isinstance((await job.heard.get()).event, Heartbeat)

    run(test)


def test_a_peer_that_stands_still_does_not_keep_the_server_from_closing() -> None:
    """A paused subtask takes no last words; more of them than the kernel buffers are on their way."""

    class Talker(Job):
        def connect(self, register: Register, connection: Connection) -> tuple[ChannelKey, tuple[()]]:
            connection.send(Channel(KEY, "down").send(Cancel(reason="r" * (32 << 20))))
            attended.set()
            return KEY, ()

    attended = asyncio.Event()

    async def test() -> None:
        async with asyncio.timeout(LIMIT_S), listening(Talker()) as connect:
            await prove(await connect())
            await attended.wait()

    run(test)


class Stranger:
    """Listens in the coordinator's place, and does with a connection what the test says."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._act = act
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            try:
                self._act(connection)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()
        self._thread.join(LIMIT_S)


class Clock:
    """Seconds go by each time that somebody looks."""

    def __init__(self, step_s: float) -> None:
        self._now, self._step = 0.0, step_s

    def now(self) -> float:
        self._now += self._step
        return self._now

    def wall_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def answer_of(port: int) -> object:
    """Let a subtask register at a port; return what its link gives it first."""
    spec = JobSpec(
        round_name="svc/1-1-1",
        job_attempt=1,
        subtasks=1,
        host="127.0.0.1",
        port=port,
        secret=SECRET,
        fence_s=LIMIT_S,
        title="",
        tag="",
        pool="",
    )
    answers: queue.Queue[object] = queue.Queue()
    clock = SystemClock()
    link = Link(SubtaskPlace(spec, 0, 0), SocketTransport(clock), clock, answers.put)
    link.start()
    try:
        return answers.get(timeout=LIMIT_S)
    finally:
        link.close()


@pytest.mark.parametrize("steps", range(6))
def test_a_connection_that_comes_while_the_server_closes_is_closed_too(steps: int) -> None:
    """So many steps of the event loop lie between the connection and the end. What is left open warns."""
    peer = socket.socket()

    async def test() -> None:
        transport = SocketTransport(SystemClock())
        server = SubtaskServer(transport, address(), lambda *_: Job(), lambda *_: None)  # type: ignore[arg-type] # as above
        peer.connect(("127.0.0.1", await server.start()))
        for _ in range(steps):
            await asyncio.sleep(0)
        await server.close()

    with peer:
        run(test)
        gc.collect()


@pytest.mark.parametrize("length", [LIMIT, NONCE + 1, NONCE - 1])
def test_a_subtask_takes_no_challenge_of_another_size(length: int) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(struct.pack(">I", length))
        connection.recv(1)

    stranger = Stranger(act)
    answer = answer_of(stranger.port)
    assert isinstance(answer, ProtocolError)
    assert f"expected {NONCE} bytes before the secret is proved, found {length}" in str(answer)
    stranger.close()


def test_a_subtask_does_not_wait_for_a_proof_that_drips_in() -> None:
    """Each byte is in time for the socket; all of them together are not."""

    def act(connection: socket.socket) -> None:
        connection.sendall(struct.pack(">I", NONCE))
        for _ in range(NONCE):
            connection.sendall(b"x")
        connection.recv(1)

    stranger = Stranger(act)
    connection = socket.create_connection(("127.0.0.1", stranger.port))
    with connection, pytest.raises(TimeoutError, match="to prove the secret"):
        prove_to_coordinator(connection, SECRET, Clock(CONNECT_S / 4))
    stranger.close()


def test_a_subtask_registers_with_nobody_who_has_not_proved_the_secret() -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(frame(b"n" * NONCE))
        connection.recv(1 << 10)
        connection.sendall(frame(b"p" * PROOF))
        connection.recv(1)

    stranger = Stranger(act)
    answer = answer_of(stranger.port)
    assert isinstance(answer, ProtocolError)
    assert "did not prove the secret" in str(answer)
    stranger.close()
