"""Vectorised hashes over byte strings of different lengths: one step for the n-th word of all rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]

_C1, _C2, _STEP = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_GOLDEN, _MIX1, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Slices:
    """Byte strings: `data[starts[i] : starts[i] + lengths[i]]`; `data` has 8 spare bytes at its end."""

    data: Bytes
    starts: Ints
    lengths: Ints


def slices_of(values: pa.Array) -> Slices:
    """View a string, binary or fixed-size binary array as byte strings, copied once for the spare bytes.

    A null gives arbitrary bytes.
    """
    count = len(values)
    if pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        raw = _padded(values.buffers()[1], values.offset * width, (values.offset + count) * width)
        return Slices(raw, np.arange(count, dtype=np.int64) * width, np.full(count, width, dtype=np.int64))
    if count == 0:
        return Slices(np.zeros(8, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    _, bounds, data = values.buffers()
    offsets = np.frombuffer(bounds, dtype=np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    raw = _padded(data, int(offsets[0]), int(offsets[-1]))
    return Slices(raw, offsets[:-1] - offsets[0], np.diff(offsets))


def murmur3_32(rows: Slices) -> npt.NDArray[np.uint32]:
    """Hash each row by the standard murmur3 (x86, 32 bits, seed 0), as Iceberg's bucket function does."""
    state = np.zeros(len(rows.lengths), dtype=np.uint32)
    words = _words(rows.data, np.uint32)
    full = rows.lengths // 4
    for step in range(int(full.max(initial=0))):
        active = np.flatnonzero(full > step)
        mixed = state[active] ^ _scramble(words[rows.starts[active] + 4 * step])
        state[active] = _rotate(mixed, 13) * np.uint32(5) + _STEP
    tail = (rows.lengths % 4).astype(np.uint32)
    mask = (np.uint32(1) << (tail * np.uint32(8))) - np.uint32(1)
    # A row without a tail mixes in zero, which changes nothing.
    state ^= _scramble(words[rows.starts + 4 * full] & mask)
    state ^= rows.lengths.astype(np.uint32)
    return _finish(state)


def murmur3_32_of_int64(values: Ints) -> npt.NDArray[np.uint32]:
    """Hash 64-bit integers by their 8 little-endian bytes (Iceberg: int, long, date, time, timestamp)."""
    halves = np.ascontiguousarray(values, dtype="<i8").view("<u4").reshape(-1, 2)
    state = np.zeros(len(values), dtype=np.uint32)
    for column in (0, 1):
        state = _rotate(state ^ _scramble(halves[:, column]), 13) * np.uint32(5) + _STEP
    return _finish(state ^ np.uint32(8))


def hash64(rows: Slices) -> Words:
    """Hash each row to 64 bits."""
    state = mix64(rows.lengths.astype(np.uint64))
    words = _words(rows.data, np.uint64)
    for step in range(int(((rows.lengths + 7) // 8).max(initial=0))):
        active = np.flatnonzero(rows.lengths > 8 * step)
        lane = words[rows.starts[active] + 8 * step]
        left = np.minimum(rows.lengths[active] - 8 * step, 8).astype(np.uint64)
        lane &= np.uint64(0xFFFFFFFFFFFFFFFF) >> ((np.uint64(8) - left) * np.uint64(8))
        state[active] = mix64(state[active] * _GOLDEN ^ lane)
    return state


def mix64(values: Words) -> Words:
    """Scatter 64-bit values (one to one: distinct values stay distinct)."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX2
    return mixed ^ (mixed >> np.uint64(31))


def _scramble(lane: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _rotate(lane * _C1, 15) * _C2


def _rotate(value: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _finish(state: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _padded(buffer: pa.Buffer | None, start: int, stop: int) -> Bytes:
    padded = np.zeros(stop - start + 8, dtype=np.uint8)
    if buffer is not None:
        padded[: stop - start] = np.frombuffer(buffer, dtype=np.uint8)[start:stop]
    return padded


def _words(data: Bytes, kind: type[Any]) -> npt.NDArray[Any]:
    width = np.dtype(kind).itemsize
    return np.ndarray((len(data) - width + 1,), dtype=np.dtype(kind).newbyteorder("<"), buffer=data, strides=(1,))
