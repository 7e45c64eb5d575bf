"""What every lake must do about splits in progress: checkpoints close files, another writer continues.

Fixtures beside those of `LakeConformance`: `with_target`, a function from a target file size in bytes to an instance of
the lake's options on the same warehouse.
"""

# ruff: noqa: S101, S311, D102 - these are tests: they assert, a name states its fact, and chance is reproducible
from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.checkpoints import SplitProgress
from lakeward.model.tables import TablePath
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import mismatch
from lakeward_testing.interruptions import Changelog, Interruptions
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    check_landed,
    incarnation,
    key_table,
    log_split,
    log_table,
    snapshot_split,
)
from lakeward_testing.levels import Conformance, chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake, LakeWriter

    ReadTable = Callable[[TablePath], pa.Table]
    WithTarget = Callable[[int], Any]

SEEDS = 6
EACH, SOME, NONE = 1, 400, 1 << 24
"""Target sizes at which each checkpoint closes a file, some do, and none does (in bytes)."""


class LakeResumeConformance(Conformance):
    """The contract of `LakeWriter.roll`, `all_rows_flushed` and `LakePlugin.writer(..., progress)`, as tests."""

    __test__ = False

    @pytest.fixture
    def sized(self, plugin: LakePlugin, with_target: WithTarget) -> Iterator[Callable[[int], Lake]]:
        """Opens a lake with a target file size."""
        lakes: list[Lake] = []

        def open_sized(target_bytes: int) -> Lake:
            lakes.append(plugin.open(with_target(target_bytes), FakeClock()))
            return lakes[-1]

        yield open_sized
        for lake in lakes:
            lake.close()

    @pytest.mark.parametrize("target_bytes", [EACH, SOME, NONE])
    @pytest.mark.parametrize("kind", ["appends", "inserts", "changes"])
    @chaos
    def test_interruptions_anywhere_leave_the_table_as_it_is_without_them(
        self, plugin: LakePlugin, sized: Callable[[int], Lake], read_table: ReadTable, kind: str, target_bytes: int
    ) -> None:
        lake = sized(target_bytes)
        resumed = 0
        for seed in range(SEEDS):
            resumed += _Scenario(plugin, lake, kind, seed).check(read_table)
        assert resumed or target_bytes == NONE, (
            f"writer with files of {target_bytes} bytes: expected some writers to go on from a checkpoint, "
            "found that `roll` and `all_rows_flushed` let none of them"
        )

    @chaos
    def test_a_file_below_half_its_target_size_stays_open_at_a_checkpoint(
        self, plugin: LakePlugin, sized: Callable[[int], Lake]
    ) -> None:
        for table in (log_table(), key_table(path=TablePath("shop", "keyed"), table_id=8)):
            tiering = TieringRound(plugin, sized(NONE), table, incarnation())
            writer = plugin.writer(tiering.task, table, log_split(table), 1)
            moments = [writer.all_rows_flushed]
            writer.write(Changelog.of_inserts(10).batch(0, 10, snapshot=False))
            files = writer.roll()
            assert files == (), mismatch("roll with a file below half its target size: closed files", (), files)
            moments.append(writer.all_rows_flushed)
            said = mismatch("all_rows_flushed, before and after a write to an open file", [True, False], moments)
            assert moments == [True, False], said
            closed = writer.close()
            assert len(closed) == 1, f"close of a writer with an open file: expected one file, found {closed}"

    @chaos
    def test_a_checkpoint_closes_a_file_from_half_its_target_size_on(
        self, plugin: LakePlugin, sized: Callable[[int], Lake]
    ) -> None:
        for table in (log_table(), key_table(path=TablePath("shop", "keyed"), table_id=8)):
            tiering = TieringRound(plugin, sized(EACH), table, incarnation())
            writer = plugin.writer(tiering.task, table, log_split(table), 1)
            writer.write(Changelog.of_inserts(10).batch(0, 10, snapshot=False))
            files = writer.roll()
            where = "roll with a file of more than half its target size"
            flushed = writer.all_rows_flushed
            assert flushed, mismatch(f"{where}: all_rows_flushed afterwards", True, flushed)
            rows = [file.rows for file in files]
            assert rows == [10], mismatch(f"{where}: rows of the closed files", [10], rows)
            again = writer.roll()
            assert again == files, mismatch("roll, called again without a write: files", files, again)
            closed = writer.close()
            assert closed == files, mismatch("close after a roll that closed all files: files", files, closed)

    @chaos
    def test_an_aborted_writer_leaves_what_a_checkpoint_may_name(
        self, plugin: LakePlugin, sized: Callable[[int], Lake]
    ) -> None:
        lake = sized(EACH)
        for table in (log_table(), key_table(path=TablePath("shop", "keyed"), table_id=8)):
            tiering = TieringRound(plugin, lake, table, incarnation())
            split = log_split(table)
            log = Changelog.of_inserts(20)
            first = plugin.writer(tiering.task, table, split, 1)
            first.write(log.batch(0, 10, snapshot=False))
            files = first.roll()
            second = plugin.writer(tiering.task, table, split, 1, SplitProgress(split, 10, files, 10, -1))
            second.write(log.batch(10, 15, snapshot=False))
            files = second.roll()
            second.write(log.batch(15, 20, snapshot=False))
            closed = second.close()
            assert len(closed) == len(files) + 1, (
                f"close after {len(files)} files of checkpoints and a further write: "
                f"expected {len(files) + 1} files, found {closed}"
            )
            second.abort()
            left = set(lake.list_prefix(table.path, lake.file_prefix(table.path, tiering.round_id)))
            kept = {file.path for file in files}
            assert left == kept, mismatch("abort of a writer that gave files to checkpoints: files left", kept, left)

    @chaos
    def test_a_writer_that_takes_nothing_more_returns_what_was_there(
        self, plugin: LakePlugin, sized: Callable[[int], Lake]
    ) -> None:
        for table in (log_table(), key_table(path=TablePath("shop", "keyed"), table_id=8)):
            tiering = TieringRound(plugin, sized(EACH), table, incarnation())
            split = log_split(table)
            first = plugin.writer(tiering.task, table, split, 1)
            first.write(Changelog.of_inserts(10).batch(0, 10, snapshot=False))
            progress = SplitProgress(split, 10, first.roll(), 10, -1)
            second = plugin.writer(tiering.task, table, split, 2, progress)
            where = "of a writer that goes on from a checkpoint and takes nothing more"
            flushed = second.all_rows_flushed
            assert flushed, mismatch(f"all_rows_flushed {where}", True, flushed)
            for name, files in (("roll", second.roll()), ("close", second.close())):
                assert files == progress.files, mismatch(f"{name} {where}: files", progress.files, files)


class _Scenario:
    """One table, one interrupted split, its commit by a later round, and what is then left."""

    def __init__(self, plugin: LakePlugin, lake: Lake, kind: str, seed: int) -> None:
        self._plugin = plugin
        self._lake = lake
        self._source = random.Random(seed)
        self._table = self._spec(kind, seed)
        self._starts = 0
        self._rounds = [self._begin()]
        self._base: dict[int, str] = {}
        if kind == "changes":
            self._commit_base()
        self._log = {
            "appends": lambda: Changelog.of_appends(60),
            "inserts": lambda: Changelog.of_inserts(60),
            "changes": lambda: Changelog.of_changes(self._source, self._base, 60),
        }[kind]()
        self._split = snapshot_split(self._table) if kind == "inserts" else log_split(self._table)

    def check(self, read_table: ReadTable) -> int:
        """Write, commit, delete what nobody names, compare; return how often a writer did not start over."""
        interruptions = Interruptions(self._source, self._writer)
        files = interruptions.write(self._split, self._log)
        last = self._rounds[-1]
        last.files += files
        check_landed(self._lake.commit(last.request()), "commit of a split that was interrupted")
        self._sweep()
        rows = read_table(self._table.path)
        found = zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True)
        held, expected = sorted(found), sorted(self._log.table.items())
        where = "commit of a split whose writers were interrupted and went on: rows of the table as a reader sees it"
        assert held == expected, mismatch(where, expected, held)
        return interruptions.resumed

    @staticmethod
    def _spec(kind: str, seed: int) -> TableSpec:
        path = TablePath(PATH.database, f"{kind}{seed}")
        return (log_table if kind == "appends" else key_table)(path=path, table_id=100 + seed)

    def _commit_base(self) -> None:
        base = Changelog.of_changes(self._source, {}, 30)
        tiering = self._rounds[-1]
        tiering.write(log_split(self._table), [base.batch(0, len(base.rows), snapshot=False)])
        check_landed(self._lake.commit(tiering.request()))
        self._base = base.table
        self._rounds.append(self._begin())

    def _begin(self) -> TieringRound:
        self._starts += 1
        return TieringRound(self._plugin, self._lake, self._table, incarnation(1000 + self._starts), self._starts)

    def _writer(self, split: Split, progress: SplitProgress | None) -> LakeWriter:
        """Go on in the same round, or in the first of a later start of the service."""
        if progress is not None and self._source.random() < 0.5:  # noqa: PLR2004 - one of two
            self._rounds.append(self._begin())
        return self._plugin.writer(self._rounds[-1].task, self._table, split, self._starts, progress)

    def _sweep(self) -> None:
        path = self._table.path
        for tiering in self._rounds:
            listed = self._lake.list_prefix(path, self._lake.file_prefix(path, tiering.round_id))
            self._lake.delete(frozenset(listed) - self._lake.referenced(path, listed))
