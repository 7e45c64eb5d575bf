"""A checkpoint is deleted between two looks of whoever asks which rows are still referred to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import (
    FIRST,
    SECOND,
    THIRD,
    check_rows,
    reference,
    write_exchange,
    write_segment,
)
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.model.checkpoints import Checkpoint, CheckpointRef

OLD, ENDED = reference(5, FIRST), reference(1, SECOND)


class Overtaken(CheckpointFiles):
    """Another thread deletes a checkpoint just before it is read."""

    def load(self, ref: CheckpointRef) -> Checkpoint:
        """See `CheckpointStore`."""
        if ref == OLD:
            super().delete(ref, keep_segments=True)
        return super().load(ref)


@pytest.mark.parametrize(
    ("complete", "clean"),
    [
        (False, lambda store: store.delete_rows(ENDED)),
        (True, lambda store: store.delete(ENDED)),
        (False, lambda store: store.sweep(THIRD, ())),
    ],
    ids=["delete_rows", "delete", "sweep"],
)
def test_a_checkpoint_that_is_deleted_meanwhile_keeps_no_rows_of_others(
    tmp_path: Path, complete: bool, clean: Callable[[CheckpointFiles], object]
) -> None:
    """The round has ended, and what was committed with it makes the older checkpoint superfluous at the same time."""
    files = SmallFiles(str(tmp_path))
    store = Overtaken(files, FakeClock())
    write_exchange(store, OLD)
    left = write_segment(store, ENDED)
    if complete:
        write_exchange(store, ENDED, left)

    clean(store)

    check_rows("after the round", set(), files)
