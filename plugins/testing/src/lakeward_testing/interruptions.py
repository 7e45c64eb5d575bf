"""Writes a changelog with checkpoints and interruptions at random places, as a round would."""

# ruff: noqa: S101 - a step of a test asserts what it builds on; it is random and reproducible on purpose
from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.model.checkpoints import SplitProgress
from lakeward.model.splits import LogSplit
from lakeward.model.tables import Change
from lakeward_testing.expectations import mismatch
from lakeward_testing.lake_tables import COLUMNS, check_each_record_is_accounted_for, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.ports import LakeWriter, SourceBatch

    OpenWriter = Callable[[Split, SplitProgress | None], LakeWriter]

_KEYS = 12
_GONE = 0.3
_ROLLED = 0.5
_STOPPED = 0.25


@dataclass(slots=True)
class Changelog:
    """Rows of one bucket with their changes, and what the table then holds."""

    table: dict[int, str]
    rows: list[dict[str, object]] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)

    @classmethod
    def of_appends(cls, count: int) -> Changelog:
        """Return appends of distinct rows."""
        rows: list[dict[str, object]] = [{"id": number, "name": f"a{number}"} for number in range(count)]
        return cls({number: f"a{number}" for number in range(count)}, rows, [Change.APPEND] * count)

    @classmethod
    def of_inserts(cls, count: int) -> Changelog:
        """Return the rows of a KV snapshot."""
        log = cls.of_appends(count)
        log.changes = [Change.INSERT] * count
        return log

    @classmethod
    def of_changes(cls, source: random.Random, base: dict[int, str], count: int) -> Changelog:
        """Return a valid changelog of few keys, on top of what the table held before."""
        log = cls(dict(base))
        for number in range(count):
            log._change(source, source.randrange(_KEYS), f"c{number}")
        return log

    def batch(self, start: int, stop: int, *, snapshot: bool) -> SourceBatch:
        """Return some of the rows as a source gives them."""
        rows, changes = self.rows[start:stop], self.changes[start:stop]
        return source_batch(COLUMNS, rows, changes=changes, start=start, snapshot=snapshot)

    def _change(self, source: random.Random, key: int, name: str) -> None:
        if key not in self.table:
            self._add(key, name, Change.INSERT)
        elif source.random() < _GONE:
            self._add(key, self.table.pop(key), Change.DELETE)
            return
        else:
            self._add(key, self.table[key], Change.UPDATE_BEFORE)
            self._add(key, name, Change.UPDATE_AFTER)
        self.table[key] = name

    def _add(self, key: int, name: str, change: int) -> None:
        self.rows.append({"id": key, "name": name})
        self.changes.append(change)


@dataclass(slots=True)
class Interruptions:
    """Writes one split with checkpoints and interruptions.

    Batches are cut anew after each interruption, for a source may do so. `stops` counts the interruptions, `resumed`
    those after which the writer had not to start over.
    """

    source: random.Random
    open_writer: OpenWriter
    stops: int = 3
    resumed: int = 0

    def write(self, split: Split, log: Changelog) -> tuple[LakeFile, ...]:
        """Write the flushed changelog of a log split from offset 0, or of a snapshot split.

        Returned is what the last writer's `close` gave.
        """
        progress: SplitProgress | None = None
        while True:
            writer = self.open_writer(split, progress)
            done, recorded = self._go_on(split, log, writer, progress)
            if done:
                files = writer.close()
                before = () if progress is None else progress.files
                first = files[: len(before)]
                assert first == before, mismatch("close: first files, those of the checkpoint", before, first)
                paths = [file.path for file in files]
                assert len(set(paths)) == len(files), f"close: expected each file once, found {paths}"
                taken = len(log.rows) - (0 if progress is None else progress.position)
                check_each_record_is_accounted_for(taken, files[len(before) :], writer)
                return files
            if self.source.random() < _ROLLED:
                writer.abort()
            progress = recorded
            self.resumed += recorded is not None and recorded.position > 0

    def _go_on(
        self, split: Split, log: Changelog, writer: LakeWriter, recorded: SplitProgress | None
    ) -> tuple[bool, SplitProgress | None]:
        """Write until the end or an interruption; say which, and what the last checkpoint recorded."""
        at = flushed = 0 if recorded is None else recorded.position
        end = len(log.rows)
        while at < end:
            if self.stops and self.source.random() < _STOPPED:
                self.stops -= 1
                return False, recorded
            following = min(end, at + self.source.randrange(1, 9))
            writer.write(log.batch(at, following, snapshot=not isinstance(split, LogSplit)))
            at = following
            flushed = at if writer.all_rows_flushed else flushed
            if self.source.random() < _ROLLED:
                files = writer.roll()
                flushed = at if writer.all_rows_flushed else flushed
                recorded = SplitProgress(split, flushed, files, flushed, -1)
        return True, recorded
