"""The scalar types of protobuf that Fluss uses, and varints. Pure.

Source: the protobuf encoding (a negative number is a varint of ten bytes); fluss.md, "The protocol".
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

from lakeward.errors import ProtocolError, UsageError

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5

_MASK64: Final = (1 << 64) - 1
_LONGEST_VARINT: Final = 10


class Kind(Protocol):
    """How values of one scalar type are written and read."""

    @property
    def wire_type(self) -> int:
        """The wire type in the field's tag."""
        ...

    def write(self, value: Any, out: bytearray, where: str) -> None:  # noqa: ANN401  # it checks what it is given
        """Append a value, with its length where it has one. Raises UsageError for a wrong one."""
        ...

    def read(self, data: memoryview, position: int, end: int, where: str) -> tuple[Any, int]:
        """Return the value at `position` and where it ends. Bytes and text reach to `end`. Raises ProtocolError."""
        ...


def write_varint(value: int, out: bytearray) -> None:
    """Append an unsigned varint, 0 to 2**64 - 1."""
    while value > 0x7F:  # noqa: PLR2004  # seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint from a position on; return it, 0 to 2**64 - 1, and the position after it.

    It must have ended at `end`.

    Raises:
        ProtocolError: it is cut off or longer than ten bytes.
    """
    value = shift = 0
    for at in range(position, min(end, position + _LONGEST_VARINT)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  # the top bit says that another byte follows
            return value & _MASK64, at + 1
        shift += 7
    message = f"expected a varint of at most 10 bytes at {position}, found {end - position} bytes and no end"
    raise ProtocolError(message)


class IntKind:
    """Signed numbers of 32 or 64 bits."""

    __slots__ = ("_bits",)
    wire_type = VARINT

    def __init__(self, bits: int) -> None:
        """Set the width: 32 or 64 bits."""
        self._bits = bits

    def write(self, value: Any, out: bytearray, where: str) -> None:  # noqa: ANN401  # checked here
        """See `Kind`."""
        if not isinstance(value, int) or isinstance(value, bool) or not self._fits(value):
            message = f"{where}: expected an int of {self._bits} bits, found {value!r}"
            raise UsageError(message)
        write_varint(value & _MASK64, out)

    def read(self, data: memoryview, position: int, end: int, where: str) -> tuple[int, int]:
        """See `Kind`."""
        value, position = read_varint(data, position, end)
        if value >> 63:
            value -= 1 << 64
        elif self._bits == 32 and value >> 31 == 1:  # noqa: PLR2004  # a negative int32 that was not sign-extended
            value -= 1 << 32
        if not self._fits(value):
            message = f"{where}: expected an int of {self._bits} bits, found {value}"
            raise ProtocolError(message)
        return value, position

    def _fits(self, value: int) -> bool:
        return -(1 << self._bits - 1) <= value < 1 << self._bits - 1


class BoolKind:
    """True and false."""

    __slots__ = ()
    wire_type = VARINT

    def write(self, value: Any, out: bytearray, where: str) -> None:  # noqa: ANN401  # checked here
        """See `Kind`."""
        if type(value) is not bool:
            message = f"{where}: expected a bool, found {value!r}"
            raise UsageError(message)
        out.append(value)

    def read(self, data: memoryview, position: int, end: int, where: str) -> tuple[bool, int]:
        """See `Kind`."""
        value, position = read_varint(data, position, end)
        if value > 1:
            message = f"{where}: expected 0 or 1, found {value}"
            raise ProtocolError(message)
        return value == 1, position


class FloatKind:
    """Floating-point numbers of 32 bits."""

    __slots__ = ()
    wire_type = FIXED32

    def write(self, value: Any, out: bytearray, where: str) -> None:  # noqa: ANN401  # checked here
        """See `Kind`."""
        try:
            out += struct.pack("<f", value)
        except (struct.error, OverflowError) as error:
            message = f"{where}: expected a float of 32 bits, found {value!r}"
            raise UsageError(message) from error

    def read(self, data: memoryview, position: int, end: int, where: str) -> tuple[float, int]:
        """See `Kind`."""
        if end - position < 4:  # noqa: PLR2004  # 32 bits
            message = f"{where}: expected 4 bytes, found {end - position}"
            raise ProtocolError(message)
        value: float = struct.unpack_from("<f", data, position)[0]
        return value, position + 4


class BytesKind:
    """Byte strings; they are copied out of the body."""

    __slots__ = ()
    wire_type = LENGTH_DELIMITED

    def write(self, value: Any, out: bytearray, where: str) -> None:  # noqa: ANN401  # checked here
        """See `Kind`."""
        if not isinstance(value, bytes | bytearray | memoryview):
            message = f"{where}: expected bytes, found {type(value).__name__}"
            raise UsageError(message)
        write_varint(len(value), out)
        out += value

    def read(self, data: memoryview, position: int, end: int, where: str) -> tuple[bytes, int]:  # noqa: ARG002  # nothing can be wrong with bytes
        """See `Kind`."""
        return bytes(data[position:end]), end


class StringKind:
    """Text in UTF-8."""

    __slots__ = ()
    wire_type = LENGTH_DELIMITED

    def write(self, value: Any, out: bytearray, where: str) -> None:  # noqa: ANN401  # checked here
        """See `Kind`."""
        if not isinstance(value, str):
            message = f"{where}: expected text, found {value!r}"
            raise UsageError(message)
        try:
            text = value.encode("utf-8")
        except UnicodeEncodeError as error:
            message = f"{where}: expected text that UTF-8 can write, found {value!r}"
            raise UsageError(message) from error
        write_varint(len(text), out)
        out += text

    def read(self, data: memoryview, position: int, end: int, where: str) -> tuple[str, int]:
        """See `Kind`."""
        try:
            return str(data[position:end], "utf-8"), end
        except UnicodeDecodeError as error:
            message = f"{where}: expected text in UTF-8, found byte {error.start} to be none"
            raise ProtocolError(message) from error


INT32: Final = IntKind(32)
INT64: Final = IntKind(64)
BOOL: Final = BoolKind()
FLOAT: Final = FloatKind()
BYTES: Final = BytesKind()
STRING: Final = StringKind()
