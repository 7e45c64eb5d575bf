"""Writes rows of dead letters that fit their table by now to files of it; says of all others why they stay.

In the driver, in memory that does not grow with the rows: letters are read twice of a keyed table, whose keys are held,
and once of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakeward.errors import NotReplayedError, RowCountError
from lakeward.model.batches import SourceBatch
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.dead_letters import Reason, digests
from lakeward.model.replays import Replayed, keys_alone
from lakeward.model.splits import LogSplit
from lakeward.model.tables import OFFSET_COLUMN, TableBucket
from lakeward.subtask.letter_rows import LetterRows, judged, rows_by_bucket
from lakeward.subtask.newer_versions import NewerVersions
from lakeward.subtask.row_account import DATA
from lakeward.subtask.row_errors import naming_rows
from lakeward.subtask.writers import split_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakeward.hooks.plugins import CheckingLakePlugin, LakePlugin, SourcePlugin
    from lakeward.model.replays import ReplayWork
    from lakeward.model.results import LakeFile
    from lakeward.ports import Clock, LakeWriter

    Letters = Callable[[], Iterable[pa.RecordBatch]]


class RowReplay:
    """Replays letters of any table; several may be under way at once."""

    def __init__(self, source: Callable[[str], SourcePlugin], lake: Callable[[str], LakePlugin], clock: Clock) -> None:
        """Keep what loads plugins by their names."""
        self._source = source
        self._lake = lake
        self._clock = clock

    def __call__(self, work: ReplayWork, letters: Letters) -> Replayed:
        """Write what fits. `letters` yields the same letters each time that it is called.

        Raises:
            LakewardError: the source cannot be read, or the lake cannot be written; no file is left.
        """
        one = _Replay(work, self._lake(work.deploy.lake), self._clock)
        if work.table.has_primary_key:
            keys = keys_alone(work.table)
            reader = self._source(work.deploy.source).reader(work.deploy.source_task, keys)
            try:
                one.look_for_newer(letters(), NewerVersions(work, reader))
            finally:
                reader.close()
        try:
            return one.write(letters())
        except BaseException:
            one.abort()
            raise


class _Replay:
    """The replay of one table."""

    def __init__(self, work: ReplayWork, lake: LakePlugin, clock: Clock) -> None:
        self._work = work
        self._table = work.table.as_written
        self._lake = lake
        self._clock = clock
        self._newer: NewerVersions | None = None
        self._found = Replayed()
        self._seen: set[object] = set()
        """Rows that are written: of a keyed table by their keys, of others by their places."""
        self._writers: list[LakeWriter] = []
        self._open: _OpenWriter | None = None

    def look_for_newer(self, letters: Iterable[pa.RecordBatch], newer: NewerVersions) -> None:
        """Find out which keys of letters have a newer version in the source's log."""
        for rows in self._judged(letters):
            newer.add(rows)
        newer.read()
        self._newer = newer

    def write(self, letters: Iterable[pa.RecordBatch]) -> Replayed:
        """Write what fits, and is the newest version of its key."""
        for rows in self._judged(letters):
            self._stay(rows)
            chosen = [place for place in range(rows.records.num_rows) if self._is_due(rows, place)]
            if chosen:
                self._write(rows, rows.records.take(pa.array(chosen)))
        self._close()
        return self._found

    def abort(self) -> None:
        """Delete all files."""
        for writer in self._writers:
            writer.abort()

    def _judged(self, letters: Iterable[pa.RecordBatch]) -> Iterator[LetterRows]:
        """Yield the rows of letters that fit, those of one bucket together, and why the others do not."""
        table, deploy = self._table, self._work.deploy
        for batch in letters:
            for bucket, found in rows_by_bucket(batch, digests(batch), self._work.table):
                # The service has checked that the lake has this (`check_bad_rows`).
                lake = cast("CheckingLakePlugin", self._lake)
                yield judged(found, table, bucket, lake.row_check(deploy.lake_task, table, self._split(bucket)))

    def _stay(self, rows: LetterRows) -> None:
        for name, error in rows.misfits.items():
            self._found.stay[name] = Reason(str(error), error.code, error.column or None)

    def _is_due(self, rows: LetterRows, place: int) -> bool:
        """Return whether a row is to be written; if not, note what becomes of its letter."""
        name, offset, bucket = rows.names[place], rows.offsets[place], rows.bucket
        why = self._why_not(rows, place)
        if why:
            error = NotReplayedError(f"table {self._work.table.path}, bucket {bucket}, {_where(offset)}: {why}")
            self._found.stay[name] = Reason(str(error), error.code)
            return False
        self._found.applied.append(name)
        # A letter that is there twice is of a record that was read twice: it is put in once.
        identity = (bucket, rows.keys[place] if rows.keys else offset if offset >= 0 else name)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        return True

    def _why_not(self, rows: LetterRows, place: int) -> str:
        offset, tiered = rows.offsets[place], self._work.tiered.get(rows.bucket, 0)
        if rows.bucket not in self._work.buckets:
            return "the source does not have this bucket any more"
        if offset >= tiered:
            return f"the lake has the records below offset {tiered} alone: a round will read this one again"
        return "" if self._newer is None else self._newer.why_not(rows, place)

    def _write(self, rows: LetterRows, records: pa.RecordBatch) -> None:
        records = records.sort_by(OFFSET_COLUMN)
        current = self._open
        if current is None or current.split.bucket != rows.bucket:
            self._close()
            split = self._split(rows.bucket, len(self._writers))
            progress = SplitProgress.beginning(split)
            writer = split_writer(self._lake, self._work.deploy, self._table, progress, self._clock)
            self._writers.append(writer)
            current = self._open = _OpenWriter(split, writer)
        with naming_rows(self._table, current.split, records):
            current.writer.write(SourceBatch(records, next_offset=self._work.tiered.get(rows.bucket, 0)))
        current.rows += records.num_rows

    def _close(self) -> None:
        if self._open is not None:
            with naming_rows(self._table, self._open.split):
                self._found.files += self._open.close()
        self._open = None

    def _split(self, bucket: TableBucket, number: int = 0) -> LogSplit:
        state = self._work.buckets.get(bucket)
        name = f"replay-{str(bucket).replace('/', '-')}-{number}"
        return LogSplit(name, bucket, () if state is None else state.partition, 0, 0)


class _OpenWriter:
    """The writer of one bucket."""

    def __init__(self, split: LogSplit, writer: LakeWriter) -> None:
        self.split = split
        self.writer = writer
        self.rows = 0

    def close(self) -> tuple[LakeFile, ...]:
        """Return its files.

        Raises:
            RowCountError: their rows are not those that were written.
        """
        files = self.writer.close()
        rows = sum(file.rows for file in files if file.kind == DATA)
        if rows + self.writer.left_out != self.rows:
            message = (
                f"bucket {self.split.bucket}: {self.rows} rows of dead letters were written, {rows} are in files and "
                f"{self.writer.left_out} needed none"
            )
            raise RowCountError(message)
        return files


def _where(offset: int) -> str:
    return "a row of a KV snapshot" if offset < 0 else f"offset {offset}"
