"""Compile a kernel with numba. Nothing but a kernel imports numba: loading it takes 0.8 s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba import types as nb

if TYPE_CHECKING:
    from collections.abc import Callable

_Kernel = TypeVar("_Kernel", bound="Callable[..., int]")


def kernel(*arguments: str) -> Callable[[_Kernel], _Kernel]:
    """Compile a function that returns an int64, without bounds checks: the kernel does its own.

    `arguments` are the types: `bytes` (uint8) and `i64` may be read-only; `flags` (uint8), `codes` (int8), `i32`,
    `out64` (int64) have one dimension, `flags2`, `i32x2`, `i64x2` two; `int` is an int64. They are fixed, so that a
    read-only or a writable array never costs another compilation. Compiled code is kept beside the module, or in the
    user's cache directory, or in `NUMBA_CACHE_DIR`; where none can be written it is compiled anew in each process.
    """

    def compile_it(function: _Kernel) -> _Kernel:
        signature = nb.int64(*(_argument(name) for name in arguments))
        try:
            return _compile(signature, function, cache=True)
        except RuntimeError:  # no directory for its cache can be written
            return _compile(signature, function, cache=False)

    return compile_it


def _compile(signature: object, function: _Kernel, *, cache: bool) -> _Kernel:
    compiled: Any = numba.njit(signature, cache=cache, nogil=True, boundscheck=False)(function)
    return cast("_Kernel", compiled)


def _argument(name: str) -> object:
    if name == "int":
        return nb.int64
    element, dimensions = _ARRAYS[name]
    return nb.Array(getattr(nb, element), dimensions, "C", readonly=name in {"bytes", "i64"})


_ARRAYS = {
    "bytes": ("uint8", 1),
    "flags": ("uint8", 1),
    "codes": ("int8", 1),
    "i32": ("int32", 1),
    "i64": ("int64", 1),
    "flags2": ("uint8", 2),
    "i32x2": ("int32", 2),
    "i64x2": ("int64", 2),
    "out64": ("int64", 1),
}
