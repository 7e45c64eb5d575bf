"""A small proto2 codec over frozen dataclasses: each field's number and type stand once, in its annotation.

Rules:
* A field without a default is required; one that may be None is optional; a tuple is repeated. Presence counts: 0
  and None are different values.
* Fields are written in the order of their numbers. Unknown fields are skipped, of a field given twice the last counts.
* What goes out is checked first: a server gives no answer at all to a body that lacks a required field.
* What comes in is hostile: lengths are checked against what is there before anything is allocated, the number of
  repeated elements of one body is limited, and any fault is a `ProtocolError`.

Source: the protobuf encoding; fluss.md, "The protocol".
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from lakeward.errors import ProtocolError, UsageError
from lakeward_source_fluss.wire.scalars import (
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    Kind,
    read_varint,
    write_varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ELEMENTS = 1_000_000
"""Repeated elements accepted in one body; a listing of a big cluster has some ten thousands."""


class Message:
    """The root of all messages; subclasses are frozen, slotted, keyword-only dataclasses."""

    __slots__ = ()


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Field:
    """Number and type of a field on the wire.

    Attributes:
        number: field number, > 0.
        kind: how a value is written; None for a nested message.
        packed: whether repeated numbers are written as one blob (both forms are read).
    """

    number: int
    kind: Kind | None = None
    packed: bool = False


@dataclass(frozen=True, slots=True)
class _Slot:
    """A field of one message class, resolved."""

    name: str
    field: Field
    repeated: bool
    required: bool
    nested: type[Message] | None

    @property
    def wire_type(self) -> int:
        return self.field.kind.wire_type if self.field.kind else LENGTH_DELIMITED


@dataclass(frozen=True, slots=True)
class _Layout:
    """All fields of one message class."""

    slots: tuple[_Slot, ...]
    by_number: dict[int, _Slot]


def encode(message: Message) -> bytes:
    """Write a message; its body may be empty.

    Raises:
        UsageError: a value is missing, of the wrong type or out of range.
    """
    out = bytearray()
    _write(message, out)
    return bytes(out)


def decode(message_class: type[M], body: bytes | bytearray | memoryview) -> M:
    """Read exactly one message of this class.

    Raises:
        ProtocolError: the body is truncated or malformed, or lacks a required field.
    """
    return _Reader(memoryview(body)).message(message_class, 0, len(body))


@cache
def _layout(message_class: type[Message]) -> _Layout:
    hints = get_type_hints(message_class, include_extras=True)
    slots = tuple(
        sorted(
            (
                _slot(declared.name, hints[declared.name], required=declared.default is MISSING)
                for declared in fields(message_class)  # type: ignore[arg-type]  # every subclass is a dataclass
            ),
            key=lambda slot: slot.field.number,
        )
    )
    return _Layout(slots, {slot.field.number: slot for slot in slots})


def _slot(name: str, hint: object, *, required: bool) -> _Slot:
    if get_origin(hint) is not Annotated:
        message = f"{name}: expected Annotated[type, Field(number, kind)], found {hint!r}"
        raise UsageError(message)
    value, field = get_args(hint)[:2]
    repeated = get_origin(value) is tuple
    if repeated:
        value = get_args(value)[0]
    elif get_origin(value) is UnionType:
        value = next(arm for arm in get_args(value) if arm is not NoneType)
    nested = value if isinstance(value, type) and issubclass(value, Message) else None
    return _Slot(name, field, repeated, required, nested)


def _write(message: Message, out: bytearray) -> None:
    message_class: Any = type(message)  # mypy takes a class's own __hash__ for its instances'
    for slot in _layout(message_class).slots:
        value = getattr(message, slot.name)
        if value is None and not slot.required:
            continue
        where = f"{type(message).__name__}.{slot.name}"
        if not slot.repeated:
            _write_one(slot, value, out, where)
        elif slot.field.packed and slot.field.kind:
            _write_packed(slot.field.number, slot.field.kind, value, out, where)
        else:
            for element in value:
                _write_one(slot, element, out, where)


def _write_one(slot: _Slot, value: object, out: bytearray, where: str) -> None:
    write_varint(slot.field.number << 3 | slot.wire_type, out)
    if slot.field.kind:
        slot.field.kind.write(value, out, where)
        return
    if slot.nested is None or type(value) is not slot.nested:
        message = f"{where}: expected a {slot.nested and slot.nested.__name__}, found {value!r}"
        raise UsageError(message)
    inner = encode(value)
    write_varint(len(inner), out)
    out += inner


def _write_packed(number: int, kind: Kind, values: tuple[object, ...], out: bytearray, where: str) -> None:
    if not values:
        return
    inner = bytearray()
    for value in values:
        kind.write(value, inner, where)
    write_varint(number << 3 | LENGTH_DELIMITED, out)
    write_varint(len(inner), out)
    out += inner


class _Reader:
    """Reads one body; counts its repeated elements."""

    __slots__ = ("_data", "_elements")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._elements = 0

    def message(self, message_class: type[M], position: int, end: int) -> M:
        hashable: Any = message_class  # mypy takes a class's own __hash__ for its instances'
        layout = _layout(hashable)
        single: dict[str, Any] = {}
        repeated: dict[str, list[Any]] = {}
        while position < end:
            tag, position = read_varint(self._data, position, end)
            number, wire_type = tag >> 3, tag & 7
            slot = layout.by_number.get(number)
            if slot is None:
                position = self._skip(number, wire_type, position, end)
            elif slot.repeated:
                values = repeated.setdefault(slot.name, [])
                position = self._read_repeated(slot, wire_type, position, end, values)
            else:
                single[slot.name], position = self._read(slot, wire_type, position, end)
        single.update((name, tuple(values)) for name, values in repeated.items())
        for slot in layout.slots:
            if slot.required and slot.name not in single:
                message = f"{message_class.__name__}: expected the required field {slot.name}, found none"
                raise ProtocolError(message)
        return message_class(**single)

    def _read(self, slot: _Slot, wire_type: int, position: int, end: int) -> tuple[Any, int]:
        if wire_type != slot.wire_type:
            message = f"{slot.name}: expected wire type {slot.wire_type}, found {wire_type}"
            raise ProtocolError(message)
        if wire_type == LENGTH_DELIMITED:
            start, stop = self._extent(slot.name, position, end)
            if slot.nested:
                return self.message(slot.nested, start, stop), stop
            position, end = start, stop
        kind = slot.field.kind
        if kind is None:
            message = f"{slot.name}: declared neither as a message nor with a kind"
            raise UsageError(message)
        return kind.read(self._data, position, end, slot.name)

    def _read_repeated(self, slot: _Slot, wire_type: int, position: int, end: int, values: list[Any]) -> int:
        for value, after in self._elements_of(slot, wire_type, position, end):
            self._elements += 1
            if self._elements > MAX_ELEMENTS:
                message = f"{slot.name}: expected at most {MAX_ELEMENTS} repeated elements, found more"
                raise ProtocolError(message)
            if after is not None:
                position = after
            values.append(value)
        if wire_type == LENGTH_DELIMITED and slot.wire_type != LENGTH_DELIMITED:
            return self._extent(slot.name, position, end)[1]
        return position

    def _elements_of(self, slot: _Slot, wire_type: int, position: int, end: int) -> Iterator[tuple[Any, int | None]]:
        kind = slot.field.kind
        if kind is None or wire_type == slot.wire_type:
            yield self._read(slot, wire_type, position, end)
            return
        if wire_type != LENGTH_DELIMITED:
            message = f"{slot.name}: expected wire type {slot.wire_type} or packed, found {wire_type}"
            raise ProtocolError(message)
        start, stop = self._extent(slot.name, position, end)
        while start < stop:
            value, start = kind.read(self._data, start, stop, slot.name)
            yield value, None

    def _extent(self, name: str, position: int, end: int) -> tuple[int, int]:
        length, position = read_varint(self._data, position, end)
        if length > end - position:
            message = f"{name}: expected {length} bytes, found {end - position}"
            raise ProtocolError(message)
        return position, position + length

    def _skip(self, number: int, wire_type: int, position: int, end: int) -> int:
        if number == 0:
            message = "expected a field number, found 0"
            raise ProtocolError(message)
        if wire_type == VARINT:
            return read_varint(self._data, position, end)[1]
        if wire_type == LENGTH_DELIMITED:
            return self._extent(f"field {number}", position, end)[1]
        width = {FIXED32: 4, FIXED64: 8}.get(wire_type)
        if width is None:
            message = f"field {number}: expected a known wire type, found {wire_type}"
            raise ProtocolError(message)
        if width > end - position:
            message = f"field {number}: expected {width} bytes, found {end - position}"
            raise ProtocolError(message)
        return position + width
