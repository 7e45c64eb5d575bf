from __future__ import annotations

import pytest

from lakeward.errors import CorruptFileError
from lakeward.storage.records import pack, unpack

WHOLE = pack(2, (b"one", b""))
KNOWN = {1: 1, 2: 2}


def test_what_is_written_is_read_back() -> None:
    assert unpack(WHOLE, "/state/file", KNOWN) == (2, (b"one", b""))


def test_the_format_has_these_bytes() -> None:
    fields = ["4c4b5744", "0002", "0002", "00000003", "7a6c86f1", "6f6e65", "00000000", "00000000"]

    assert WHOLE.hex() == "".join(fields)


@pytest.mark.parametrize("end", range(len(WHOLE)))
def test_a_file_cut_anywhere_is_named(end: int) -> None:
    with pytest.raises(CorruptFileError, match="/state/file"):
        unpack(WHOLE[:end], "/state/file", KNOWN)


@pytest.mark.parametrize("position", [n for n in range(len(WHOLE)) if n not in (4, 5)])
def test_a_flipped_bit_anywhere_is_named(position: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[position] ^= 0x10

    with pytest.raises(CorruptFileError, match="/state/file"):
        unpack(bytes(damaged), "/state/file", KNOWN)


def test_trailing_bytes_are_named() -> None:
    with pytest.raises(CorruptFileError, match="/state/file"):
        unpack(WHOLE + b"\x00", "/state/file", KNOWN)


def test_a_version_of_the_future_is_named() -> None:
    with pytest.raises(CorruptFileError, match=r"among \[1, 2\], found 3"):
        unpack(pack(3, (b"one",)), "/state/file", KNOWN)


def test_another_number_of_parts_is_named() -> None:
    with pytest.raises(CorruptFileError, match="/state/file: expected 2 parts in version 2, found 3"):
        unpack(pack(2, (b"one", b"", b"")), "/state/file", KNOWN)


def test_another_kind_of_file_is_named() -> None:
    with pytest.raises(CorruptFileError, match="magic"):
        unpack(b"PAR1" + WHOLE[4:], "/state/file", KNOWN)
