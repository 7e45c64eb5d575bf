"""What a split is written to where its rows are exchanged: the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.batches import SourceBatch
    from lakeward.model.results import LakeFile
    from lakeward.subtask.exchange.outputs import Outputs


class SplitOutput:
    """See `lakeward.ports.LakeWriter`: a split's rows go into the channels, and it has no files.

    Every record counts as left out of the split's own files: which file it is in is another subtask's to say. At any
    moment all of its rows are in the channels, so a checkpoint may be taken at any position.
    """

    all_rows_flushed = True

    def __init__(self, outputs: Outputs, bucket: int) -> None:
        self._outputs = outputs
        self._bucket = bucket
        self.left_out = 0
        self.timings_s: dict[str, float] = {}

    def write(self, batch: SourceBatch) -> None:
        """See Protocol."""
        self._outputs.put(batch.records, self._bucket)
        self.left_out += batch.records.num_rows

    def roll(self) -> tuple[LakeFile, ...]:
        """See Protocol."""
        return ()

    def close(self) -> tuple[LakeFile, ...]:
        """See Protocol."""
        return ()

    def abort(self) -> None:
        """See Protocol."""
