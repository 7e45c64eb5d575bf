"""How a value is stored, as the kernels of `rowkernels` and `arraykernels` know it."""

from __future__ import annotations

FIXED_1, FIXED_2, FIXED_4, FIXED_8 = 1, 2, 4, 8
"""Little-endian signed integers; the code is the width."""
VARINT_32, VARINT_64 = 10, 11
"""Varints; the kernel tells those of 32 bits (even codes) from those of 64 (odd)."""
PREFIXED = 12
"""Bytes after a varint with their number."""
VARINT_STAMP = 13
"""Milliseconds and nanoseconds, both varints."""
LISTED = 14
"""Bytes whose number is in the row's length area."""
PADDED = 15
"""A fixed number of bytes."""
FIXED_STAMP = 16
"""Milliseconds in 8 bytes, nanoseconds in 4."""

SLOT_VALUE = 0
"""A slot of an array holds the value itself."""
SLOT_TEXT = 1
"""A slot holds up to 7 bytes, or offset and length."""
SLOT_REFERENCE = 2
"""A slot holds offset and length."""
SLOT_STAMP = 3
"""A slot holds the offset of the milliseconds, and the nanoseconds."""

MAX_NANOS = 999_999
"""Nanoseconds of a millisecond."""
