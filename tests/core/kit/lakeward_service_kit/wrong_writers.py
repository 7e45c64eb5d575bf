"""Writers that are wrong in a way that the suite of lakes and that of partitioned lakes both find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_testing.folder_lake import FolderWriter

if TYPE_CHECKING:
    from lakeward.model.results import LakeFile


class ForgetfulWriter(FolderWriter):
    """Goes on from a checkpoint, and returns its own files alone."""

    def close(self) -> tuple[LakeFile, ...]:
        """See `SplitWriter`."""
        return super().close()[len(self._before) :]


class BoastfulWriter(FolderWriter):
    """Says that all rows are in files: a checkpoint would then name rows that are in none."""

    @property
    def all_rows_flushed(self) -> bool:
        """See `SplitWriter`."""
        return True
