from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import ProtocolError
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.frames import FrameAssembler, ResponseFrame, ResponseKind, request_frame

SUCCESS = bytes.fromhex("00000007 00 00000003 0a00")
FAILURE = bytes.fromhex("00000003 02 0801")


def test_a_request_has_the_documented_bytes() -> None:
    body = bytes.fromhex("0a05666c7573731205302e312e30")
    frame = request_frame(ApiKey.API_VERSIONS, 0, 0, body)
    assert frame.hex() == "0000001603e80000000000000a05666c7573731205302e312e30"


def test_a_response_in_single_bytes_is_one_response() -> None:
    frames = FrameAssembler()
    found = [response for at in range(len(SUCCESS)) for response in frames.feed(SUCCESS[at : at + 1])]
    assert found == [ResponseFrame(ResponseKind.SUCCESS, 3, b"\x0a\x00")]
    assert frames.pending_bytes == 0


def test_several_responses_in_one_piece_come_in_order() -> None:
    found = FrameAssembler().feed(SUCCESS + FAILURE + SUCCESS[:5])
    assert [response.kind for response in found] == [ResponseKind.SUCCESS, ResponseKind.SERVER_FAILURE]


def test_a_failure_of_the_server_has_no_request_id() -> None:
    assert FrameAssembler().feed(FAILURE) == [ResponseFrame(ResponseKind.SERVER_FAILURE, None, b"\x08\x01")]


@pytest.mark.parametrize("head", ["00000000", "ffffffff", "7fffffff", "80000000", "0000000503", "0000000400000000"])
def test_a_stream_that_is_none_is_an_error_for_good(head: str) -> None:
    frames = FrameAssembler(limit_bytes=1 << 20)
    with pytest.raises(ProtocolError, match="response frame"):
        frames.feed(bytes.fromhex(head) + b"\x00" * 8)
    with pytest.raises(ProtocolError, match="response frame"):
        frames.feed(SUCCESS)


def test_responses_before_a_fault_are_still_given_out() -> None:
    frames = FrameAssembler()
    assert len(frames.feed(SUCCESS + b"\xff" * 8)) == 1
    assert frames.fault is not None


def test_an_announced_length_allocates_nothing() -> None:
    frames = FrameAssembler()
    tracemalloc.start()
    assert frames.feed(bytes.fromhex("0fffffff00")) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 16


@settings(deadline=None)
@given(pieces=st.lists(st.binary(max_size=40), max_size=8))
def test_any_stream_gives_responses_or_a_protocol_error(pieces: list[bytes]) -> None:
    frames = FrameAssembler(limit_bytes=1000)
    given_out = 0
    try:
        for piece in pieces:
            given_out += sum(len(response.body) for response in frames.feed(piece))
    except ProtocolError:
        assert frames.fault is not None
    assert given_out <= sum(map(len, pieces))


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 3 * len(SUCCESS)), max_size=6))
def test_how_a_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    stream = SUCCESS * 3
    edges = [0, *sorted(cuts), len(stream)]
    frames = FrameAssembler()
    found = [one for start, end in pairwise(edges) for one in frames.feed(stream[start:end])]
    assert found == FrameAssembler().feed(stream)
