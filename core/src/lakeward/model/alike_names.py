"""Finds names of a schema that differ in case alone: Lakeward tells them apart, but some engines do not."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


def alike_names(fields: Iterable[pa.Field], inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield each two of these fields of one row, at any depth, whose names differ in case alone.

    A field of a nested row has its path for a name, with Iceberg's words for what is in an array or a map:
    `address.Street`, `items.element.Id`, `prices.value.Id`. `inside` is the path of the row, with a dot at its end;
    empty for the columns of a table.
    """
    first: dict[str, str] = {}
    for field in fields:
        known = first.setdefault(field.name.casefold(), field.name)
        if known != field.name:
            yield inside + known, inside + field.name
        yield from _inside(field.type, f"{inside}{field.name}.")


def _inside(kind: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs in the rows that a type has in it."""
    if types.is_struct(kind):
        return alike_names(kind.fields, path)
    if types.is_map(kind):
        return chain(_inside(kind.key_type, f"{path}key."), _inside(kind.item_type, f"{path}value."))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _inside(kind.value_type, f"{path}element.")
    return iter(())
