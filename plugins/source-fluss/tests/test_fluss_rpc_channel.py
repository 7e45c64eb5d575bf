from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import LakewardError, OutcomeUnknownError, ProtocolError, SourceError
from lakeward_source_fluss.rpc.backoff import Attempts
from lakeward_source_fluss.rpc.channel import Channel
from lakeward_source_fluss.rpc.cluster import _in_time
from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.errors import ServerUnreachableError

ENDPOINT = Endpoint("h", 1)
OPTIONS = ConnectOptions((ENDPOINT,), limit_bytes=1 << 16)
APIS = (ApiKey.LIST_DATABASES, ApiKey.DROP_KV_SNAPSHOT_LEASE)


class Wire(asyncio.Transport):
    """A transport that keeps what is written, and breaks when it is told to."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.sent = b""
        self._channel = channel

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._channel.connection_lost, None)


async def answered(pieces: list[bytes]) -> list[bytes | BaseException]:
    """Make a call that changes nothing and one that does, and feed pieces of a stream, then the end."""
    channel = Channel(ENDPOINT, OPTIONS, lambda: None)
    wire = Wire(channel)
    channel.connection_made(wire)
    calls = [asyncio.create_task(channel.call(api, b"", 60)) for api in APIS]
    await asyncio.sleep(0)
    for piece in pieces:
        channel.data_received(piece)
    if channel.open:
        channel.connection_lost(None)
    assert len(wire.sent) == 2 * 12
    return await asyncio.gather(*calls, return_exceptions=True)


frames = st.builds(
    lambda kind, request_id, body: struct.pack(">ibi", 5 + len(body), kind, request_id) + body,
    st.integers(0, 3),
    st.integers(-1, 2),
    st.binary(max_size=12),
)


@settings(deadline=None)
@given(pieces=st.lists(st.one_of(frames, st.binary(max_size=20)), max_size=6))
def test_whatever_arrives_a_call_ends_with_bytes_or_an_error_of_ours(pieces: list[bytes]) -> None:
    read, change = asyncio.run(answered(pieces))
    assert isinstance(read, bytes | SourceError | ProtocolError)
    assert isinstance(change, bytes | SourceError | ProtocolError | OutcomeUnknownError)


def test_an_end_in_the_middle_of_an_answer_is_told_apart_for_reads_and_changes() -> None:
    read, change = asyncio.run(answered([bytes.fromhex("0000000900")]))
    assert isinstance(read, SourceError)
    assert isinstance(change, OutcomeUnknownError)


def test_an_answer_before_garbage_still_counts() -> None:
    read, change = asyncio.run(answered([bytes.fromhex("000000050000000000") + b"\xff" * 8]))
    assert read == b""
    assert isinstance(change, OutcomeUnknownError)
    assert "response frame" in str(change)


def test_a_malformed_error_body_is_an_error_of_ours() -> None:
    read, _ = asyncio.run(answered([bytes.fromhex("000000060100000000ff")]))
    assert isinstance(read, LakewardError)


def test_a_call_without_time_left_is_not_sent() -> None:
    async def call() -> bytes:
        channel = Channel(ENDPOINT, OPTIONS, lambda: None)
        wire = Wire(channel)
        channel.connection_made(wire)
        with pytest.raises(ServerUnreachableError, match="no time left"):
            await channel.call(ApiKey.DROP_KV_SNAPSHOT_LEASE, b"", 0)
        return wire.sent

    assert asyncio.run(call()) == b""


def test_nothing_is_sent_on_a_connection_that_was_given_up() -> None:
    async def call() -> bytes:
        channel = Channel(ENDPOINT, OPTIONS, lambda: None)
        wire = Wire(channel)
        channel.connection_made(wire)
        channel.end("over")
        with pytest.raises(ServerUnreachableError, match="over"):
            await channel.call(ApiKey.DROP_KV_SNAPSHOT_LEASE, b"", 1)
        return wire.sent

    assert asyncio.run(call()) == b""


def test_where_the_time_runs_out_the_last_refusal_is_told() -> None:
    async def late() -> None:
        attempts = Attempts(OPTIONS, 0.0)
        attempts.last = ServerUnreachableError("the reason")
        await _in_time(asyncio.Event().wait(), attempts)

    with pytest.raises(ServerUnreachableError, match="the reason"):
        asyncio.run(late())
