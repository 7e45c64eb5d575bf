"""Merges files of position deletes, in an executor: readers open one instead of many, and no row is written anew."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lakeward_lake_iceberg.merge_task import DeletesResult
from lakeward_lake_iceberg.positions import DeletePlace, read_shared_positions, write_shared_positions
from lakeward_lake_iceberg.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.results import LakeFile
    from lakeward_lake_iceberg.merge_task import DeletesTask


def merge_deletes(task: DeletesTask, number: int, attempt: int, check: Callable[[], None]) -> DeletesResult:
    """Write each group as one file. `check` is called before each, and may raise; names as of `merge_files`.

    Raises:
        StorageError: the storage refused, or a file is gone.
    """
    writer, place = task.writer, DeletePlace(task.writer.spec_id, task.partition)
    storage = Storage(writer.location, writer.storage)
    start = f"{writer.prefix}merged-{number}-{attempt}-{secrets.token_hex(4)}"
    written: list[LakeFile | None] = []
    try:
        for place_of, group in enumerate(task.groups, start=1):
            check()
            rows = read_shared_positions(storage, group.files, frozenset(group.targets))
            path = f"{start}-{place_of:05d}-deletes.parquet"
            codec = writer.compression
            made = write_shared_positions(storage, path, rows, compression=codec, place=place) if rows else None
            written.append(made)
    except BaseException:
        for file in written:
            if file is not None:
                storage.delete(file.path)
        raise
    return DeletesResult(tuple(written))
