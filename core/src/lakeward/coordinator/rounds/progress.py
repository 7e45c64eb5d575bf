"""A round's progress: which splits are finished, with which files, and how far the others are.

A result that the coordinator has accepted stays accepted, whatever happens to its attempt (exactly-once.md). A new
attempt gets unfinished splits only, at the position in the newest checkpoint that contains them.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from lakeward.coordinator.commits.commit_account import SplitShare, shares_of
from lakeward.machines.checkpoints.gateway import Origins
from lakeward.machines.splits import Splits
from lakeward.model.backoff import NO_PAUSES
from lakeward.model.bad_rows import sum_of
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.splits import SnapshotSplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.machines.splits.enumeration import Enumeration
    from lakeward.model.backoff import RetryPauses
    from lakeward.model.bad_rows import BadRows
    from lakeward.model.checkpoints import BlockedEvent, Origin, SubtaskSnapshot
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.results import LakeFile, WriteResult
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket


class Writers:
    """The writers of one round. Used on the event loop only."""

    def __init__(self, restored: Iterable[ExchangeState] = ()) -> None:
        """Start with nothing written, or with what a checkpoint holds of all its subtasks."""
        self.restored = tuple(restored)
        """What the next launch, or the present one, was restored from."""
        self.finished: dict[int, ExchangeState] = {}
        """By subtask of the present launch: its state once all its files were closed."""

    @property
    def states(self) -> tuple[ExchangeState, ...]:
        """The states that hold every row of the round: those of the writers that finished, or the restored ones."""
        finished = self.finished.values()
        everyone = bool(finished) and all(len(finished) == state.subtasks for state in finished)
        return tuple(finished) if everyone else self.restored

    def files(self) -> list[LakeFile]:
        """Return the closed files of `states`."""
        return [file for state in self.states for file in state.files]

    def paths(self) -> frozenset[str]:
        """Return the paths of all files that a writer holds, finished or restored."""
        every = (*self.restored, *self.finished.values())
        return frozenset(file.path for state in every for file in state.files)


class RoundProgress:
    """What one round has read so far. Used on the event loop only."""

    def __init__(
        self,
        enumeration: Enumeration,
        restored: CheckpointContents | None = None,
        *,
        reconnect_within_s: float = inf,
        retries: RetryPauses = NO_PAUSES,
        exchange: bool = False,
    ) -> None:
        """Start with nothing read, or where a checkpoint of the same splits left off (None for a fresh round).

        `reconnect_within_s`, `retries`: see `Splits`. `exchange`: the rows of a split are written by other subtasks
        than the one that reads it.
        """
        self.enumeration = enumeration
        self.writers: Writers | None = None
        """What the writers hold; None where a subtask writes what it reads."""
        if exchange:
            self.writers = Writers(restored.exchange if restored is not None else ())
        self.results: dict[str, WriteResult] = {}
        self._progress: dict[str, SplitProgress] = {}
        self._blocked: dict[str, BlockedEvent] = {}
        self._origins = Origins()
        self._enumerated = enumeration.splits
        if restored is not None:
            self.results |= restored.finished
            self._progress |= restored.progress
            self._blocked |= restored.blocked
        origins = (one.origin.task_attempt for one in self._blocked.values())
        self.first_attempt = 1 + max(origins, default=0)
        """First attempt number of this round: higher than those of restored results, so that origins stay unique."""
        ends = {split_id: result.end_offset for split_id, result in self.results.items()}
        withheld = {split_id: one.result.end_offset for split_id, one in self._blocked.items()}
        begun = {split_id for split_id, one in self._progress.items() if exchange and one.is_half_snapshot}
        self.splits = Splits(enumeration, ends, withheld, begun=begun, reconnect_s=reconnect_within_s, retries=retries)

    def blocked(self) -> list[BlockedEvent]:
        """Return the restored results that must be sent again and that no attempt has been given yet."""
        return [self._blocked[split_id] for split_id in sorted(self.splits.withheld)]

    def finished(self) -> tuple[WriteResult, ...]:
        """Return the results for a checkpoint: accepted ones, and restored ones that no attempt was given yet."""
        return (*self.results.values(), *(one.result for one in self.blocked()))

    @property
    def has_rows(self) -> bool:
        """Whether anything was read, written or not."""
        return bool(self.results or self._progress or (self.writers is not None and self.writers.states))

    def first(self, origin: Origin) -> bool:
        """Return whether a result of this origin is received for the first time."""
        return self._origins.first(origin)

    def accept(self, result: WriteResult) -> None:
        """Record an accepted result."""
        self.results[result.split_id] = result
        self._progress.pop(result.split_id, None)

    def accept_restored(self, split_id: str) -> None:
        """Record a restored result whose attempt is gone that was to send it again."""
        self.accept(self._blocked[split_id].result)

    def take_over(self, part: SubtaskSnapshot) -> None:
        """Record a lost attempt's progress; a result that a closed gateway held back counts as progress to the end."""
        for one in part.progress:
            self._note(one)
        open_splits = {split.split_id: split for split in self.splits.unfinished}
        for blocked in part.blocked:
            result = blocked.result
            split = open_splits.get(result.split_id)
            if split is not None and not (isinstance(split, SnapshotSplit) and split.live):
                self._note(SplitProgress.done(split, result))

    def progress_of(self, split: Split) -> SplitProgress:
        """Return how far a split is, for the attempt that it is sent to."""
        return self._progress.get(split.split_id) or SplitProgress.beginning(split)

    def half_done(self) -> tuple[SplitProgress, ...]:
        """Return the splits in progress."""
        return tuple(self._progress.values())

    def offsets(self) -> Mapping[TableBucket, int]:
        """Return each bucket's offset after the round: its finished splits, then the progress of the next one.

        A split that an early finish left out may be in progress, and an earlier step may have committed that part.
        """
        return self.splits.offsets({split_id: one.position for split_id, one in self._progress.items()})

    def committable(self) -> list[LakeFile]:
        """Return the files that belong to `offsets()`."""
        if self.writers is not None:
            return [*self.writers.files(), *(file for share in self.shares() for file in share.files)]
        complete = self.splits.committable()
        files = [file for split_id, result in self.results.items() if split_id in complete for file in result.files]
        for split in self.splits.frontier():
            half = self._progress.get(split.split_id)
            files += half.files if half is not None and half.position > split.start else ()
        return files

    def bad_rows(self) -> BadRows:
        """Return how many rows of the splits that are finished or known to be in progress do not fit the lake table."""
        finished = (result.bad_rows for result in self.results.values())
        return sum_of((*finished, *(one.bad_rows for one in self._progress.values())))

    def shares(self) -> tuple[SplitShare, ...]:
        """Return which part of each split a commit of the round contains."""
        return shares_of(self.splits, self._enumerated, self.results, self._progress)

    @property
    def leaves_files_out(self) -> bool:
        """True if files belong to offsets after a split that was stopped early: no commit of this round adds them."""
        if self.writers is not None:
            return False
        named = {file.path for file in self.committable()}
        finished = (file.path for result in self.results.values() for file in result.files)
        half_done = (file.path for one in self._progress.values() for file in one.files)
        return not named.issuperset(finished) or not named.issuperset(half_done)

    def not_ours(self, files: Iterable[LakeFile]) -> list[LakeFile]:
        """Return the files that no result, accepted or still to be sent again, and no split in progress needs."""
        finishes = (*self.results.values(), *(one.result for one in self._blocked.values()))
        kept = {file.path for result in finishes for file in result.files}
        kept |= {file.path for one in self._progress.values() for file in one.files}
        kept |= self.writers.paths() if self.writers is not None else frozenset()
        return [file for file in files if file.path not in kept]

    def _note(self, progress: SplitProgress) -> None:
        split_id = progress.split.split_id
        known = self._progress.get(split_id)
        if split_id not in self.results and (known is None or known.position <= progress.position):
            self._progress[split_id] = progress
