"""A lake on a disk that is full for one table: its writers fail as Python says it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward_testing.folder_lake import FolderLakePlugin, FolderWriter

if TYPE_CHECKING:
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch

FULL = "full"
_BELOW_THE_LAKE = 3
"""A round's folder is in its service's, that in its table's, and that in the lake's: further up is another's."""
"""Name of the file in a lake table's folder that makes its disk full."""


class FullDiskLakePlugin(FolderLakePlugin):
    """See `lakeward.hooks.plugins.LakePlugin`."""

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> FolderWriter:
        """See Protocol."""
        return _Writer(super().writer(task, table, split, attempt, progress))


class _Writer(FolderWriter):
    def __init__(self, writer: FolderWriter) -> None:
        vars(self).update(vars(writer))

    def write(self, batch: SourceBatch) -> None:
        """See Protocol."""
        lake = self._folder.parents[:_BELOW_THE_LAKE]
        if any(Path(folder, FULL).exists() for folder in lake):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        super().write(batch)
