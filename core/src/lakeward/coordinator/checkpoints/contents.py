"""Merges the parts of a checkpoint: which splits are finished, which are in progress, what may be committed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.coordinator.commits.commit_account import SplitShare, shares_of
from lakeward.machines.splits import Splits
from lakeward.machines.splits.enumeration import Enumeration
from lakeward.model.checkpoints import BlockedEvent, RoundSnapshot, SplitProgress, SubtaskSnapshot
from lakeward.model.dead_letters import split_files
from lakeward.model.exchange import ExchangeState, complete
from lakeward.model.splits import SnapshotSplit, snapshots_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.results import LakeFile, WriteResult
    from lakeward.model.tables import TableBucket


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """The coordinator's part and the subtasks' parts of a checkpoint, merged.

    `finished` holds the results that the coordinator had accepted, `blocked` those that closed gateways held back,
    `progress` the splits in progress. All are keyed by split id; no id is in two of them.
    """

    round: RoundSnapshot
    finished: Mapping[str, WriteResult]
    blocked: Mapping[str, BlockedEvent]
    progress: Mapping[str, SplitProgress]
    exchange: tuple[ExchangeState, ...] = ()
    """With an exchange: the states of all subtasks. A split has dead letters at most then; `blocked` is empty."""

    @classmethod
    def of(cls, coordinator: RoundSnapshot, subtasks: Iterable[SubtaskSnapshot]) -> CheckpointContents:
        """Merge the parts. For a split in several of them an accepted result wins, then a blocked one, then progress.

        With an exchange a blocked result counts as accepted: it names no files, and the rows that it stands for are in
        the states of the same checkpoint.
        """
        parts = tuple(subtasks)
        finished = {result.split_id: result for result in coordinator.finished}
        blocked: dict[str, BlockedEvent] = {}
        for part in parts:
            for one in part.blocked:
                if one.result.split_id not in finished:
                    blocked.setdefault(one.result.split_id, one)
        exchange = tuple(part.exchange for part in parts if part.exchange is not None)
        if exchange:
            finished |= {split_id: one.result for split_id, one in blocked.items()}
            blocked = {}
        done = finished.keys() | blocked.keys()
        every = (*coordinator.progress, *(one for part in parts for one in part.progress))
        progress = {one.split.split_id: one for one in every if one.split.split_id not in done}
        return cls(coordinator, finished, blocked, progress, exchange)

    def results(self) -> Mapping[str, WriteResult]:
        """Return the results of all finished splits, whether the coordinator had accepted them or not."""
        return {**self.finished, **{split_id: one.result for split_id, one in self.blocked.items()}}

    def letters(self) -> frozenset[str]:
        """Return the paths of all files of dead letters that the checkpoint needs."""
        files = [result.files for result in self.results().values()]
        files += [one.files for one in self.progress.values()]
        return frozenset(file.path for some in files for file in split_files(some)[1])

    def paths(self) -> frozenset[str]:
        """Return the paths of all files that the checkpoint needs."""
        results = (file.path for result in self.results().values() for file in result.files)
        half = (file.path for one in self.progress.values() for file in one.files)
        exchanged = (file.path for state in self.exchange for file in state.files)
        return frozenset(results) | frozenset(half) | frozenset(exchanged)

    @property
    def committable(self) -> bool:
        """Whether a commit may be made of it: with an exchange, every row before the cut has to be in a closed file.

        A snapshot that is half read cannot be left out of such a commit, since files hold rows of many splits, and it
        cannot be in it, since only its end has an offset.
        """
        half = self.exchange and any(one.is_half_snapshot for one in self.progress.values())
        return complete(self.exchange) and not half

    def why_not_whole(self) -> str:
        """Return which states of an exchange are missing, in words; empty where none is."""
        found = sorted(state.subtask for state in self.exchange)
        expected = {state.subtasks for state in self.exchange}
        if len(expected) == 1 and found == list(range(*expected)):
            return ""
        return f"expected the states of all subtasks of the exchange, found those of {found or 'none'}"

    def enumeration(self) -> Enumeration:
        """Return the round's splits, and the snapshots that are still to be read."""
        done = self.results()
        snapshots = snapshots_of(split for split in self.round.splits if split.split_id not in done)
        return Enumeration(self.round.splits, dict(self.round.before), snapshots, self.round.behind)

    def offsets(self) -> Mapping[TableBucket, int]:
        """Return each bucket's offset in a commit of this checkpoint: after its finished splits and its log position.

        The result of a live snapshot counts only once the coordinator has received it. If its subtask is lost
        before that, the snapshot is read again, in another order and at a later time: its rows would be in the
        lake twice.
        """
        return self._splits().offsets(self._positions())

    def files(self) -> tuple[LakeFile, ...]:
        """Return the files that belong to `offsets()`; with an exchange only where it is `committable`."""
        if self.exchange:
            letters = (file for share in self.shares() for file in share.files)
            return (*(file for state in self.exchange for file in state.files), *letters)
        splits, results = self._splits(), self.results()
        complete = splits.committable()
        files = [file for split_id, result in results.items() if split_id in complete for file in result.files]
        for split in splits.frontier():
            half = self.progress.get(split.split_id)
            files += half.files if half is not None and half.position > split.start else ()
        return tuple(files)

    def shares(self) -> tuple[SplitShare, ...]:
        """Return which part of each split a commit of this checkpoint contains."""
        return shares_of(self._splits(), self.round.splits, self.results(), self.progress)

    def _splits(self) -> Splits:
        live = {split.split_id for split in self.round.splits if isinstance(split, SnapshotSplit) and split.live}
        unsure = live & self.blocked.keys()
        ends = {split_id: result.end_offset for split_id, result in self.results().items() if split_id not in unsure}
        return Splits(self.enumeration(), finished=ends)

    def _positions(self) -> Mapping[str, int]:
        return {split_id: one.position for split_id, one in self.progress.items()}


@dataclass(frozen=True, slots=True)
class RestoredRound:
    """A checkpoint that a round resumes from. `committed` are the paths of its files that are in the lake already."""

    ref: CheckpointRef
    state: CheckpointContents
    committed: frozenset[str]
    step: int
