"""Murmur3 x86 32 with seed 0 over whole columns: the hash of Iceberg's bucket transform (spec, appendix B).

Whole numbers hash as 8 bytes, little-endian. Values of different lengths are hashed block by block, the longest first,
so that each step is over those rows that still have a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.uint32]

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_ADDED = np.uint32(0xE6546B64)
_FIVE = np.uint32(5)
_BLOCK = 4


def hash_longs(values: npt.NDArray[np.int64]) -> Words:
    """Return the hash of each whole number."""
    halves = np.ascontiguousarray(values, dtype="<i8").view("<u4").reshape(-1, 2).astype(np.uint32, copy=False)
    state = _block(np.uint32(0), halves[:, 0])
    state = _block(state, halves[:, 1])
    return _finish(state, np.uint32(8))


def hash_bytes(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """Return the hash of each value: so many bytes of `data` from its start on."""
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = starts[order], lengths[order]
    blocks = sizes // _BLOCK
    state = np.zeros(len(starts), dtype=np.uint32)
    # From the longest to the shortest: the rows with more than N blocks are the first ones.
    counts = np.searchsorted(-blocks, -np.arange(int(blocks[0]) if len(blocks) else 0), side="left")
    for number, count in enumerate(counts.tolist()):
        state[:count] = _block(state[:count], _read_block(data, starts[:count] + number * _BLOCK, _BLOCK))
    rest = sizes % _BLOCK
    for size in range(1, _BLOCK):
        rows = np.flatnonzero(rest == size)
        if len(rows):
            tail = _read_block(data, starts[rows] + blocks[rows] * _BLOCK, size)
            state[rows] ^= _scramble(tail)
    hashed = np.empty_like(state)
    hashed[order] = _finish(state, sizes.astype(np.uint32))
    return hashed


def _read_block(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], size: int) -> Words:
    block: Words = data[places].astype(np.uint32)
    for number in range(1, size):
        block |= data[places + number].astype(np.uint32) << np.uint32(8 * number)
    return block


# Each step changes an array of its own in place: a new array for each operation takes as long as the operation.


def _block(state: Words | np.uint32, block: Words) -> Words:
    mixed = _scramble(block)
    mixed ^= state
    mixed = _rotate(mixed, 13)
    mixed *= _FIVE
    mixed += _ADDED
    return mixed


def _scramble(block: Words) -> Words:
    scrambled = _rotate(block * _C1, 15)
    scrambled *= _C2
    return scrambled


def _rotate(block: Words, bits: int) -> Words:
    rotated: Words = block << np.uint32(bits)
    rotated |= block >> np.uint32(32 - bits)
    return rotated


def _finish(state: Words, sizes: Any) -> Words:  # noqa: ANN401 - one number or one a row
    state = state ^ sizes
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    return state
