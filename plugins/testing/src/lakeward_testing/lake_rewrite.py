"""What a lake must do that offers to take rows out of append-only tables (`lakeward.ports.RewritableLake`).

Fixtures as of `LakeConformance`: `plugin`, `options` and `read_table`.
"""

# ruff: noqa: S101, D102 - these are tests: they assert, and a name states its fact
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest

from lakeward.errors import FencedError
from lakeward.model.results import CommitOutcome, RewriteRequest
from lakeward.model.tables import TablePath
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, mismatch
from lakeward_testing.lake_tables import (
    TieringRound,
    check_landed,
    head_of,
    incarnation,
    log_split,
    log_table,
    source_batch,
)
from lakeward_testing.levels import Conformance, chaos, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.identity import Incarnation
    from lakeward.ports import Lake, RewritableLake

    class RewrittenLake(Lake, RewritableLake, Protocol):
        """A lake that offers it."""

    ReadTable = Callable[[TablePath], pa.Table]

_TABLE = log_table(path=TablePath("shop", "appends_letters"))


class LakeRewriteConformance(Conformance):
    """The contract of `lakeward.ports.RewritableLake`, as tests."""

    __test__ = False

    @pytest.fixture
    def rewritable(self, plugin: LakePlugin, options: Any) -> Iterator[Any]:  # noqa: ANN401 - the plugin's own
        """The lake, with a table of four rows in two commits."""
        lake: Any = plugin.open(options, FakeClock())
        for number in (1, 2):
            check_landed(lake.commit(_written(plugin, lake, (2 * number, 2 * number + 1), number).request()))
        yield lake
        lake.close()

    def test_the_rows_of_a_rewrite_are_those_of_the_table_and_offsets_and_stamp_stay(
        self, plugin: LakePlugin, rewritable: RewrittenLake, read_table: ReadTable
    ) -> None:
        before = head_of(rewritable, _TABLE.path)
        check_landed(rewritable.rewrite(_request(rewritable, _written(plugin, rewritable, (3, 5), 3))))
        _check_ids(read_table, [3, 5])
        after = head_of(rewritable, _TABLE.path)
        for name in ("table_id", "stamp", "commit", "own"):
            expected, found = getattr(before, name), getattr(after, name)
            assert found == expected, mismatch(f"head after rewrite: {name}", expected, found)
        assert after.snapshot_id is not None, mismatch("head after rewrite: snapshot_id", "a snapshot", None)
        batches = rewritable.read_rows(_TABLE.path, after.snapshot_id)
        read = [number for batch in batches for number in batch.column("id").to_pylist()]
        assert sorted(read) == [3, 5], mismatch("read_rows after rewrite", [3, 5], read)

    def test_a_rewrite_without_files_leaves_no_row_and_later_rounds_add_theirs(
        self, plugin: LakePlugin, rewritable: RewrittenLake, read_table: ReadTable
    ) -> None:
        check_landed(rewritable.rewrite(_request(rewritable, None)))
        _check_ids(read_table, [])
        check_landed(rewritable.commit(_written(plugin, rewritable, (8, 9), 4).request()))
        _check_ids(read_table, [8, 9])

    @upsert
    def test_a_round_that_was_written_before_a_rewrite_is_committed_after_it(
        self, plugin: LakePlugin, rewritable: RewrittenLake, read_table: ReadTable
    ) -> None:
        later = _written(plugin, rewritable, (8, 9), 5)
        check_landed(rewritable.rewrite(_request(rewritable, _written(plugin, rewritable, (3,), 6))))
        check_landed(rewritable.commit(later.request()))
        _check_ids(read_table, [3, 8, 9])

    @chaos
    def test_a_rewrite_of_rows_that_are_not_the_heads_any_more_is_a_conflict(
        self, plugin: LakePlugin, rewritable: RewrittenLake, read_table: ReadTable
    ) -> None:
        late = _request(rewritable, _written(plugin, rewritable, (3,), 7))
        check_landed(rewritable.commit(_written(plugin, rewritable, (8, 9), 8).request()))
        outcome = rewritable.rewrite(late)
        assert outcome is CommitOutcome.CONFLICT, mismatch("rewrite", CommitOutcome.CONFLICT, outcome)
        _check_ids(read_table, [2, 3, 4, 5, 8, 9])

    @chaos
    def test_a_rewrite_of_a_start_that_was_overtaken_is_refused(
        self, plugin: LakePlugin, rewritable: RewrittenLake, read_table: ReadTable
    ) -> None:
        written = _written(plugin, rewritable, (3,), 9)
        rewritable.stamp(_TABLE.path, incarnation(2000))
        with expect_error(FencedError, "rewrite with the stamp of another start on the head"):
            rewritable.rewrite(_request(rewritable, written, incarnation()))
        _check_ids(read_table, [2, 3, 4, 5])


def _written(plugin: LakePlugin, lake: Lake, ids: Sequence[int], number: int) -> TieringRound:
    """Return a round whose rows are written."""
    tiering = TieringRound(plugin, lake, _TABLE, incarnation(), number)
    rows = [{"id": one, "name": f"n{one}"} for one in ids]
    tiering.write(log_split(_TABLE), [source_batch(_TABLE.schema, rows, start=100 * number)])
    return tiering


def _request(
    lake: RewrittenLake,
    written: TieringRound | None,
    who: Incarnation | None = None,
) -> RewriteRequest:
    """Return the request that leaves the rows of a round alone in the table, as its head is now."""
    path, head = _TABLE.path, head_of(lake, _TABLE.path).snapshot_id
    assert head is not None, "head of a table with rows: expected a snapshot id, found None"
    files = () if written is None else tuple(written.files)
    return RewriteRequest(path, _TABLE.table_id, lake.new_ids(path), head, files, who)


def _check_ids(read_table: ReadTable, expected: Sequence[int]) -> None:
    __tracebackhide__ = True
    found = sorted(read_table(_TABLE.path).column("id").to_pylist())
    assert found == list(expected), mismatch("ids of the table as a reader sees it", list(expected), found)
