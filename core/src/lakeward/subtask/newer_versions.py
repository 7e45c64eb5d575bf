"""Proves that keys have no newer version than a dead letter has, by the source's log up to where the lake has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.model.splits import LogSplit
from lakeward.model.tables import OFFSET_COLUMN
from lakeward.subtask.letter_rows import keys_of

if TYPE_CHECKING:
    from lakeward.model.replays import ReplayWork
    from lakeward.model.tables import TableBucket
    from lakeward.ports import SourceReader
    from lakeward.subtask.letter_rows import LetterRows

_GONE = "whether its key has a newer version is not known: "


@dataclass(slots=True)
class _Bucket:
    """What is known of one bucket; `start` is the first offset that is to be read."""

    start: int
    newest: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Of the keys that are asked for, the offset of the newest record that was found, -1 where none was."""


class NewerVersions:
    """The newest versions of keys. First the keys are added, then the log is read, then it answers."""

    def __init__(self, work: ReplayWork, reader: SourceReader) -> None:
        """Read nothing yet; the reader is one of the keys alone."""
        self._work = work
        self._reader = reader
        self._buckets: dict[TableBucket, _Bucket] = {}

    def add(self, rows: LetterRows) -> None:
        """Ask for the keys of rows, but for those of which the log cannot tell."""
        state = self._work.buckets.get(rows.bucket)
        for key, version in zip(rows.keys, rows.versions, strict=True):
            if state is None or version is None or version + 1 < state.start:
                continue
            known = self._buckets.setdefault(rows.bucket, _Bucket(version + 1))
            known.start = min(known.start, version + 1)
            known.newest[key] = -1

    def read(self) -> None:
        """Read the log of each bucket from its oldest letter up to where the lake has it.

        Raises:
            LakewardError: the source cannot be read.
        """
        for bucket, known in self._buckets.items():
            stop, state = self._work.tiered.get(bucket, 0), self._work.buckets[bucket]
            if known.start >= stop:
                continue
            split = LogSplit(f"replay-{str(bucket).replace('/', '-')}", bucket, state.partition, known.start, stop)
            for batch in self._reader.read_log(split):
                offsets = batch.records.column(OFFSET_COLUMN).to_pylist()
                for key, offset in zip(keys_of(batch.records, self._work.table.primary_key), offsets, strict=True):
                    if key in known.newest:
                        known.newest[key] = offset

    def why_not(self, rows: LetterRows, place: int) -> str:
        """Return why a row may not be put in; empty: its key has no newer version."""
        version, state = rows.versions[place], self._work.buckets[rows.bucket]
        if version is None:
            return f"{_GONE}the letter does not say of which log offset its KV snapshot is"
        if version + 1 < state.start:
            return f"{_GONE}the source has deleted its log below offset {state.start}"
        newest = self._buckets[rows.bucket].newest[rows.keys[place]]
        return f"its key has a newer version, at offset {newest}" if newest > version else ""
