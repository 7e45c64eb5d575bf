"""The message classes against `FlussApi.proto` of Fluss's main branch (commit 545c5539, August 2026).

The fields that count the buckets of a partition are those of the change that brings them to 1.0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakeward_source_fluss.wire import protobuf, scalars
from lakeward_source_fluss.wire.protobuf import Message
from lakeward_source_fluss_kit.messages import all_messages

PROTO = Path(__file__).with_name("data").joinpath("FlussApi.proto").read_text(encoding="utf-8")
KINDS = {
    scalars.BOOL: "bool",
    scalars.BYTES: "bytes",
    scalars.FLOAT: "float",
    scalars.INT32: "int32",
    scalars.INT64: "int64",
    scalars.STRING: "string",
}
PASSED_ON = {"filter_predicate": "bytes"}
"""Nested messages that are bytes to us: nobody here looks into them."""
CLASSES = [one for one in all_messages() if not one.__name__.startswith("Legacy")]


class Line(NamedTuple):
    """A field as the file declares it."""

    label: str
    kind: str
    name: str
    number: int
    packed: bool


def published() -> dict[str, dict[int, Line]]:
    """Return the fields of each message of the file by number."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", PROTO, flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"message (\w+)\s*\{([^{}]*)\}", text):
        fields = re.findall(r"(required|optional|repeated)\s+(\w+)\s+(\w+)\s*=\s*(\d+)\s*([^;]*);", body)
        lines = [Line(label, kind, field, int(number), "packed" in rest) for label, kind, field, number, rest in fields]
        found[name] = {line.number: line for line in lines}
    return found


PUBLISHED = published()


def test_the_file_is_read_whole() -> None:
    assert len(PUBLISHED) == len(re.findall(r"^message ", PROTO, re.MULTILINE))
    fields = re.findall(r"^\s+(?:required|optional|repeated) ", PROTO, re.MULTILINE)
    assert sum(map(len, PUBLISHED.values())) == len(fields)


def declared(message: type[Message]) -> dict[int, Line]:
    """Return the fields of one of our classes in the file's words."""
    hashable: Any = message  # mypy takes a class's own __hash__ for its instances'
    lines = {}
    for slot in protobuf._layout(hashable).slots:
        label = "repeated" if slot.repeated else "required" if slot.required else "optional"
        kind = slot.nested.__name__ if slot.nested else KINDS[slot.field.kind]
        lines[slot.field.number] = Line(label, kind, slot.name, slot.field.number, slot.field.packed)
    return lines


@pytest.mark.parametrize("message", CLASSES, ids=lambda one: one.__name__)
def test_a_message_has_the_fields_that_the_servers_declare(message: type[Message]) -> None:
    theirs = {
        number: line._replace(
            name=re.sub(r"(?<!^)(?=[A-Z])", "_", line.name).lower(), kind=PASSED_ON.get(line.name, line.kind)
        )
        for number, line in PUBLISHED[message.__name__].items()
    }

    assert declared(message).items() <= theirs.items()
