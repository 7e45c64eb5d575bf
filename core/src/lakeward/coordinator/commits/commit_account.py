"""Checks a commit against its splits: each offset is in a file or explained, each file belongs to a split. Pure.

Each subtask has counted its own rows (`subtask.row_account`). Its result then passes the network, the coordinator's
state and checkpoints. If a file were lost there, nobody would notice: the commit's offsets would claim that its rows
are in the lake. So rows are counted again, right before the commit is sent.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import RowCountError
from lakeward.machines.splits.enumeration import by_bucket
from lakeward.model.bad_rows import NO_BAD_ROWS, check_most, sum_of
from lakeward.model.dead_letters import KIND
from lakeward.model.splits import LogSplit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakeward.machines.splits import Splits
    from lakeward.model.bad_rows import BadRows
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.results import LakeFile, WriteResult
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket, TablePath

_DATA = "data"


@dataclass(frozen=True, slots=True)
class SplitShare:
    """The part of one split that a commit contains, up to `end` (exclusive). Counts as in `WriteResult`."""

    split: Split
    end: int
    rows: int
    files: tuple[LakeFile, ...]
    left_out: int | None
    empty_offsets: int | None
    bad_rows: BadRows = NO_BAD_ROWS

    @classmethod
    def of_result(cls, split: Split, result: WriteResult) -> SplitShare:
        """Return the share of a split that is finished."""
        counts = result.left_out, result.empty_offsets, result.bad_rows
        return cls(split, result.end_offset, result.rows, result.files, *counts)

    @classmethod
    def of_progress(cls, one: SplitProgress) -> SplitShare:
        """Return the share of a log split in progress."""
        counts = one.left_out, one.empty_offsets, one.bad_rows
        return cls(one.split, one.position, one.rows, one.files, *counts)


def shares_of(
    splits: Splits,
    enumerated: Iterable[Split],
    results: Mapping[str, WriteResult],
    progress: Mapping[str, SplitProgress],
) -> tuple[SplitShare, ...]:
    """Return each bucket's finished splits, then the part of its next log split that is in files.

    `enumerated`: all splits of the round. `results`: the finished ones, `progress`: those in progress, by split id.
    """
    complete = splits.committable()
    shares = [
        SplitShare.of_result(split, results[split.split_id]) for split in enumerated if split.split_id in complete
    ]
    for split in splits.frontier():
        half = progress.get(split.split_id)
        if half is not None and half.position > split.start:
            shares.append(SplitShare.of_progress(half))
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class CommitAccount:
    """The expected rows, files and offsets of a commit."""

    path: TablePath
    enumerated: Sequence[Split]
    """All splits of the round."""
    before: Mapping[TableBucket, int]
    """The offsets that the round's splits start from."""
    landed: Mapping[TableBucket, int]
    """The offsets that are in the lake now."""
    in_lake: Collection[str]
    """Paths of the round's files that an earlier step has committed."""
    shares: Sequence[SplitShare]
    writers: Sequence[ExchangeState] | None = None
    """With an exchange: the states of all writers. Their files hold the rows of all splits together."""
    bad_rows_most: float = math.inf
    """So many rows may not fit the lake table, or below 1 this share of the records."""

    def check(self, offsets: Mapping[TableBucket, int], files: Collection[LakeFile]) -> None:
        """Compare the account with the commit about to be sent: all buckets' offsets, the files not yet in the lake.

        Raises:
            RowCountError: rows, files or offsets differ; names the bucket and both figures.
            RowError: too many rows do not fit the lake table.
        """
        rows = {file.path: file.rows for file in files}
        for share in self.shares:
            if self.writers is None:
                self._check_rows(share, rows)
            self._check_letters(share)
            self._check_span(share)
        if self.writers is not None:
            self._check_round(self.writers, rows)
        self._check_files([file.path for file in files])
        self._check_offsets(offsets)
        bad = sum_of(share.bad_rows for share in self.shares)
        check_most(self.path, bad, sum(share.rows for share in self.shares), self.bad_rows_most)

    def _check_rows(self, share: SplitShare, rows: Mapping[str, int]) -> None:
        """Check that a split's files hold its records."""
        where = self._where(share.split.bucket, share.split)
        there = [file for file in share.files if file.path in rows or file.path in self.in_lake]
        written = sum(rows.get(file.path, file.rows) for file in there if file.kind == _DATA)
        left_out, bad = share.left_out or 0, share.bad_rows.total
        counted = share.left_out is not None
        if len(there) < len(share.files) or not (
            written + left_out + bad == share.rows if counted else written + bad <= share.rows
        ):
            message = (
                f"{where}: {share.rows} records were read; {written} rows are in the {len(there)} files to be "
                f"committed, of {len(share.files)}, {left_out} records needed none and {bad} do not fit"
            )
            raise RowCountError(message)

    def _check_letters(self, share: SplitShare) -> None:
        """Check that a split's dead letters are in its files of them."""
        expected, found = share.bad_rows.dead_letters, sum(one.rows for one in share.files if one.kind == KIND)
        if expected != found:
            where = self._where(share.split.bucket, share.split)
            message = f"{where}: {expected} rows became dead letters; {found} are in the files to be committed"
            raise RowCountError(message)

    def _check_round(self, writers: Sequence[ExchangeState], rows: Mapping[str, int]) -> None:
        """Check that the files of all writers hold the records of all splits."""
        files = [file for state in writers for file in state.files]
        there = [file for file in files if file.path in rows or file.path in self.in_lake]
        written = sum(rows.get(file.path, file.rows) for file in there if file.kind == _DATA)
        read, bad = sum(share.rows for share in self.shares), sum(share.bad_rows.total for share in self.shares)
        taken, left_out = sum(state.rows for state in writers), sum(state.left_out for state in writers)
        if len(there) < len(files) or not written + left_out == taken == read - bad:
            message = (
                f"table {self.path}: {read} records were read, {taken} came through the exchange; {written} rows are "
                f"in the {len(there)} files to be committed, of {len(files)}, {left_out} records needed none and {bad} "
                "do not fit"
            )
            raise RowCountError(message)

    def _check_span(self, share: SplitShare) -> None:
        """Check that the records of a log split are its offsets."""
        if not isinstance(share.split, LogSplit):
            return
        where, empty = self._where(share.split.bucket, share.split), share.empty_offsets or 0
        span, found = share.end - share.split.start, share.rows + empty
        if not (found == span if share.empty_offsets is not None else found <= span):
            message = (
                f"{where}: {span} offsets from {share.split.start} to {share.end} are to be committed; "
                f"{share.rows} records were read and {empty} offsets hold none"
            )
            raise RowCountError(message)

    def _check_files(self, paths: Sequence[str]) -> None:
        """Check that each file belongs to a split, or to a writer of the exchange, and is committed once."""
        of_splits = [file.path for share in self.shares for file in share.files]
        of_splits += [file.path for state in self.writers or () for file in state.files]
        twice = sorted(path for path, times in Counter(paths).items() if times > 1 or path in self.in_lake)
        shared = sorted(path for path, times in Counter(of_splits).items() if times > 1)
        strange = sorted({*paths} - {*of_splits})
        for wrong, why in ((twice, "committed twice"), (shared, "two splits' at once"), (strange, "no split's")):
            if wrong:
                message = f"table {self.path}: {len(wrong)} of {len(paths)} files to commit are {why}, {wrong[0]} first"
                raise RowCountError(message)

    def _check_offsets(self, offsets: Mapping[TableBucket, int]) -> None:
        """Check that each bucket's offset is the end of its shares, or stays as it is in the lake.

        No offset may go back: rows that are in the lake already would be read and committed again.
        """
        ends = self._ends()
        ours = {*self.before, *(split.bucket for split in self.enumerated)}
        landed_here = {bucket: offset for bucket, offset in self.landed.items() if bucket in ours}
        for bucket in sorted({*offsets, *ends, *landed_here}, key=lambda bucket: bucket.sort_key()):
            end, offset, landed = ends.get(bucket), offsets.get(bucket), self.landed.get(bucket)
            stays = landed is not None and offset == landed and (end is None or landed > end)
            goes_back = bucket in landed_here and (offset is None or offset < landed_here[bucket])
            if goes_back or (offset != end and not stays):
                message = (
                    f"{self._where(bucket)}: offset {offset} is to be committed; "
                    f"the rows that were counted end at {end}, the lake stands at {landed}"
                )
                raise RowCountError(message)

    def _ends(self) -> Mapping[TableBucket, int]:
        """Return the end of each bucket's shares, after checking that they follow one another without a gap."""
        ends = dict(self.before)
        taken = {share.split.split_id: share for share in self.shares}
        for bucket, splits in by_bucket(self.enumerated).items():
            for share in (taken[split.split_id] for split in splits if split.split_id in taken):
                start = share.split.start if isinstance(share.split, LogSplit) else None
                reached = ends.get(bucket, start)
                if start is not None and start != reached:
                    where = self._where(bucket, share.split)
                    message = f"{where}: starts at offset {start}, the one before ends at {reached}"
                    raise RowCountError(message)
                if start is None or share.end > start:
                    ends[bucket] = share.end
        return ends

    def _where(self, bucket: TableBucket, split: Split | None = None) -> str:
        return f"table {self.path}, bucket {bucket}" + (f", split {split.split_id}" if split is not None else "")
