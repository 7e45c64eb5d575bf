"""The port of a checkpoint store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lakeward.model.checkpoints import (
        Checkpoint,
        CheckpointInfo,
        CheckpointRef,
        LeaseCopy,
        PartFile,
        RoundSnapshot,
        SubtaskSnapshot,
    )
    from lakeward.model.exchange import Segment
    from lakeward.model.identity import Incarnation


class CheckpointStore(Protocol):
    """Where checkpoints lie. Thread-safe; subtasks on other machines write to the same place."""

    def write_part(self, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
        """Write one subtask's part durably, replacing an earlier try of the same attempt.

        Raises:
            StorageError: the store refused; it may be called again.
        """
        ...

    def write_segment(self, ref: CheckpointRef, name: str, batches: Iterable[pa.RecordBatch]) -> Segment:
        """Write rows durably beside a checkpoint, a batch at a time, with a checksum of each.

        The rows belong to checkpoint `ref` first; later ones of its epoch may refer to them too. `name` is
        `<checkpoint>-<subtask>-<attempt>-<n>.arrow`; each name is written once. Batches are of one schema, at least
        one.

        Raises:
            StorageError: the store refused.
        """
        ...

    def read_segment(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Read rows back, a batch at a time; no batch is given out whose bytes are not those that were written.

        Raises:
            CorruptFileError: the file is missing, cut off or damaged; names it.
            StorageError: the store refused.
        """
        ...

    def complete(
        self, ref: CheckpointRef, coordinator: RoundSnapshot, parts: Sequence[PartFile], lease: LeaseCopy | None
    ) -> int:
        """Write `_metadata`: once it is whole, the checkpoint has happened. Return its size in bytes, all files.

        After an error the caller either calls again, or gives the checkpoint up by `abandon`. Until one of the two has
        returned, it is not known whether the checkpoint has happened.

        Raises:
            StorageError: it did not complete, or it was abandoned.
            OutcomeUnknownError: the store failed, and could not be asked whether `_metadata` is there.
        """
        ...

    def abandon(self, ref: CheckpointRef) -> None:
        """Give a checkpoint up for good: also a `complete` that is under way must not make it count any more.

        Raises:
            StorageError: the store refused; call again before anything builds on it.
        """
        ...

    def load(self, ref: CheckpointRef) -> Checkpoint:
        """Read a completed checkpoint and check every byte.

        Raises:
            CorruptFileError: it never completed, or is damaged; names the file.
            StorageError: the store refused.
        """
        ...

    def check_segments(self, checkpoint: Checkpoint) -> None:
        """Look whether all files of rows that a checkpoint refers to are there with their sizes; none is read.

        Raises:
            CorruptFileError: one is not; names it.
            StorageError: the store refused.
        """
        ...

    def list(self, service: str) -> tuple[CheckpointInfo, ...]:
        """Return all checkpoints of a service, those of one table together, its newest last.

        Looks at `_metadata` and at names and sizes of parts: what a part holds is checked by `load` alone.
        """
        ...

    def newest(self, service: str, table_id: int) -> CheckpointInfo | None:
        """Return a table's newest checkpoint that completed (it may be damaged), None if there is none.

        A later start counts as newer, whatever the clocks said; within one epoch the higher number does.
        """
        ...

    def delete(self, ref: CheckpointRef, *, keep_segments: bool = False) -> None:
        """Delete a checkpoint, `_metadata` first; one that is not there is no error.

        With `keep_segments`, all files of rows stay: its round runs, and its next checkpoints may refer to them.
        `retain` and `sweep` delete what nothing refers to in the end.

        Raises:
            StorageError: the store refused; call again.
        """
        ...

    def delete_rows(self, ref: CheckpointRef) -> None:
        """Delete the segments of a round that is over, but those that a completed checkpoint of its epoch refers to.

        `ref` is the newest checkpoint of the round: none up to it is under way any more. Segments of later ones stay.
        Nothing is deleted while a checkpoint of the table is damaged.

        Raises:
            StorageError: the store refused; call again.
        """
        ...

    def sweep(self, incarnation: Incarnation, keep: Collection[CheckpointRef]) -> tuple[CheckpointRef, ...]:
        """Delete the files of checkpoints that never completed, a torn `_metadata` included; return the checkpoints.

        Spared are `keep` (checkpoints under way), later starts' checkpoints than ours, and the highest number of each
        epoch of this start: it may just have begun.
        """
        ...

    def retain(self, incarnation: Incarnation, table_id: int, count: int) -> tuple[CheckpointRef, ...]:
        """Delete a table's completed checkpoints but the newest `count` (>= 1) whole ones; damaged older ones go.

        Where a later start than ours has written anything, its state for one, nothing is deleted: it judges them all,
        and may be going on from one of them. Returned are those that were deleted.
        """
        ...
