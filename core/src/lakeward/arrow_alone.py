"""Lets pyarrow do without pandas: it imports pandas with the first array that is made of Python or NumPy values.

A command and a new Python worker make one before they have read a row. To import pandas takes longer than to import all
that a worker needs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PANDAS = "pandas"


class _Missing:
    """An entry of `sys.meta_path` that says there is no pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name == _PANDAS:
            message = "pyarrow is to do without it"
            raise ModuleNotFoundError(message, name=name)
        return None


def use_arrow_alone() -> None:
    """Have pyarrow look for pandas now, once in this process, and find none.

    Whoever converts to or from pandas later gets it all the same: pyarrow looks again where it cannot do without
    (`pandas-shim.pxi`). Call it while this is the only thread that imports.
    """
    import pyarrow as pa  # noqa: PLC0415 - commands import this module, and their help must not wait for Arrow

    if _PANDAS in sys.modules:
        return
    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(missing)
