"""Reads the dead letters of a table, as any program reads a lake table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.config.tables import lake_path
from lakeward.errors import LakeError
from lakeward.model.dead_letters import path_of
from lakeward.ports import ReadableLake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake


def letters_path(loaded: Loaded, path: TablePath) -> TablePath:
    """Return the name of the lake table with the dead letters of a table."""
    return path_of(lake_path(loaded, path))


def letters_in(loaded: Loaded, lake: Lake, path: TablePath, columns: Sequence[str]) -> Iterator[pa.RecordBatch] | None:
    """Yield some columns of all dead letters of a table, in any order; None where it has no table of them.

    Raises:
        LakeError: the lake cannot be read.
    """
    head = lake.head(letters_path(loaded, path))
    if head is None or head.snapshot_id is None:
        return None
    if not isinstance(lake, ReadableLake):
        message = f"lake {loaded.settings.lake.type!r}: dead letters cannot be shown: it offers no `read_rows`"
        raise LakeError(message)
    return (batch.select(list(columns)) for batch in lake.read_rows(head.path, head.snapshot_id))
