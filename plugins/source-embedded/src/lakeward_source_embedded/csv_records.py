"""A CSV file in pieces that end where a record ends, whatever line breaks its quoted fields have.

Arrow cuts a file into blocks where a line ends, within a quoted field as well, and rows come of that which nobody
wrote; where it looks for quotes, it may still lose a line break at the border of two blocks. So it gets whole records
only, each piece as one block.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import RowError, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 1 << 20
"""Of a piece, about; one with a longer record is larger."""
_GROWTH = 8
_MARK = b"\xef\xbb\xbf"
"""What some programs write in front of UTF-8."""
# A quote counts where a field begins; what follows its closing quote belongs to the field.
_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+|)'
_RECORD = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+(?:\r\n|\n|\r(?!\Z))")


class Records(NamedTuple):
    """Whole records, and the line of the file on which the first of them begins, from 1."""

    data: bytes
    line: int

    def first(self) -> tuple[bytes, Records]:
        """Return the first record, and the others."""
        end = _end_of(self.data, 0) or len(self.data)
        head = self.data[:end]
        return head, Records(self.data[end:], self.line + _lines(head))

    def line_of(self, number: int) -> int:
        """Return the line on which a record begins; records are numbered from 1, empty lines are none."""
        at = begin = 0
        while number and at < len(self.data):
            begin, at = at, _end_of(self.data, at) or len(self.data)
            number -= bool(self.data[begin:at].strip(b"\r\n"))
        return self.line + _lines(self.data[:begin])


def read_records(path: Path, what: str) -> Iterator[Records]:
    """Read a file piece by piece; the last record needs no line break. Errors say `what` it is.

    Raises:
        OSError: it cannot be read.
        RowError: a quote is not closed.
    """
    rest, line, size = b"", 1, PIECE_BYTES
    with path.open("rb") as file:
        while piece := file.read(size):
            rest = (rest + piece).removeprefix(_MARK) if line == 1 else rest + piece
            end = _last_end(rest)
            size = PIECE_BYTES if end else size * _GROWTH
            if end:
                data, rest = rest[:end], rest[end:]
                yield Records(data, line)
                line += _lines(data)
    if rest and _end_of(rest + b"\n", 0) <= len(rest):
        text = rest.decode("utf-8", "replace")
        message = f"{what}, row {line}: expected a closing quote, found the end of the file: {short_repr(text)}"
        raise RowError(message)
    if rest:
        yield Records(rest, line)


def _last_end(data: bytes) -> int:
    """Return where the last whole record ends, 0 where none does."""
    if b'"' not in data:
        # A \r at the very end may be the first half of \r\n.
        return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, len(data) - 1) + 1
    end = 0
    while further := _end_of(data, end):
        end = further
    return end


def _end_of(data: bytes, begin: int) -> int:
    found = _RECORD.match(data, begin)
    return 0 if found is None else found.end()


def _lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
