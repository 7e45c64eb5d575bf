from __future__ import annotations

import base64
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lakeward_source_fluss.wire.apis import API_VERSION, ApiKey, Request, response_class
from lakeward_source_fluss.wire.frames import FrameAssembler, ResponseKind, request_frame
from lakeward_source_fluss.wire.messages import ErrorResponse
from lakeward_source_fluss.wire.protobuf import Message, decode, encode
from lakeward_source_fluss_kit.messages import all_messages

# Frames recorded from real servers (0.9.1, and a build of the main branch), with what another protobuf library read.
FRAMES = [
    json.loads(line)
    for line in Path(__file__).with_name("data").joinpath("fluss-frames.jsonl").read_text(encoding="utf-8").splitlines()
]
REQUESTS = {
    found.api: found
    for found in all_messages()
    if issubclass(found, Request) and not found.__name__.startswith("Legacy")
}
SPELLED_OTHERWISE = {"startTimestamp": "start_timestamp", "snapshotId": "snapshot_id"}
UNREAD = {"filter_predicate"}


def named(frame: dict[str, Any]) -> str:
    return f"{frame['api']}: {frame['note']}"


def as_read(value: object, found: object) -> object:
    """Bring what the other library read (64-bit numbers as text, bytes as base64) to our values."""
    if isinstance(found, bytes):
        return base64.b64decode(str(value))
    if isinstance(found, int) and not isinstance(found, bool):
        return int(str(value))
    if isinstance(found, float):
        return float(str(value))
    return value


def agree(message: Message, read: dict[str, Any]) -> None:
    """Compare each field, and the presence of each field."""
    read = {SPELLED_OTHERWISE.get(name, name): value for name, value in read.items()}
    for field in fields(message):  # type: ignore[arg-type]  # every message is a dataclass
        found = getattr(message, field.name)
        if field.name in UNREAD:
            continue
        if found is None or found == ():
            assert field.name not in read, field.name
        elif isinstance(found, tuple):
            assert len(found) == len(read[field.name])
            for one, other in zip(found, read[field.name], strict=True):
                if isinstance(one, Message):
                    agree(one, other)
                else:
                    assert one == as_read(other, one)
        elif isinstance(found, Message):
            agree(found, read[field.name])
        else:
            assert found == as_read(read[field.name], found), field.name
    assert set(read) - UNREAD <= {field.name for field in fields(message)}  # type: ignore[arg-type]  # as above


def test_there_are_frames_of_every_kind() -> None:
    assert len(FRAMES) == 267
    assert {frame["response_type"] for frame in FRAMES} == {0, 1}
    assert {frame["key"] for frame in FRAMES} <= set(ApiKey)


@pytest.mark.parametrize("frame", FRAMES, ids=named)
def test_a_recorded_request_is_read_as_another_library_reads_it(frame: dict[str, Any]) -> None:
    request = decode(REQUESTS[frame["key"]], bytes.fromhex(frame["request_hex"])[12:])
    agree(request, frame["request"])


@pytest.mark.parametrize("frame", FRAMES, ids=named)
def test_a_recorded_request_is_written_byte_for_byte(frame: dict[str, Any]) -> None:
    recorded = bytes.fromhex(frame["request_hex"])
    request: Request[Any] = decode(REQUESTS[frame["key"]], recorded[12:])
    ours = request_frame(request.api, frame["version"], int.from_bytes(recorded[8:12], "big"), encode(request))
    assert ours == recorded
    assert frame["version"] == API_VERSION


@pytest.mark.parametrize("frame", FRAMES, ids=named)
def test_a_recorded_response_is_read_and_written_byte_for_byte(frame: dict[str, Any]) -> None:
    [response] = FrameAssembler().feed(bytes.fromhex(frame["response_hex"]))
    assert response.kind == frame["response_type"]
    assert response.request_id == int.from_bytes(bytes.fromhex(frame["request_hex"])[8:12], "big")
    answer = response_class(REQUESTS[frame["key"]]) if response.kind is ResponseKind.SUCCESS else ErrorResponse
    message = decode(answer, response.body)
    agree(message, frame["response"])
    assert encode(message) == response.body
