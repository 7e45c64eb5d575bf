"""What every lake must do. A plugin's tests subclass `LakeConformance` and give the fixtures.

Fixtures: `plugin` (a `LakePlugin`), `options` (an instance of its options, on a fresh warehouse; it must pickle),
`read_table` (a function from `TablePath` to a `pa.Table` of the table's live rows, by an independent reader),
`roll_back` (a function of a path and a snapshot id that makes main stand there again, as a person would), and
`with_target` (a function from a target file size in bytes to options on the same warehouse).
"""

# ruff: noqa: S101, D102, PLR2004 - these are tests: they assert, and a name states its fact
from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import FencedError, LakewardError, RolledBackError, RowError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import BUCKET_COLUMN, Change, TablePath
from lakeward.testing.clock import FakeClock
from lakeward.testing.lake_fencing import RACERS, LakeFencingConformance, rows_of
from lakeward.testing.lake_resume import LakeResumeConformance
from lakeward.testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    incarnation,
    key_table,
    log_split,
    log_table,
    snapshot_split,
    source_batch,
)
from lakeward.testing.levels import chaos, upsert

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.ports import Lake

    ReadTable = Callable[[TablePath], pa.Table]
    RollBack = Callable[[TablePath, int], None]


class LakeConformance(LakeFencingConformance, LakeResumeConformance):
    """The contract of `lakeward.ports.Lake` and `LakeWriter`, as tests."""

    __test__ = False

    @chaos
    def test_a_table_that_was_rolled_back_says_so(
        self, lake: Lake, begin: Callable[..., TieringRound], roll_back: RollBack
    ) -> None:
        lake.commit(begin(log_table()).request())
        head = lake.head(PATH)
        assert head is not None
        assert head.snapshot_id is not None
        lake.commit(begin(log_table(), number=2).request())
        roll_back(PATH, head.snapshot_id)
        with pytest.raises(RolledBackError, match=r"shop\.orders"):
            lake.head(PATH)

    def test_partitions_and_buckets_come_back(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        schema = COLUMNS.append(pa.field("day", pa.string(), nullable=False))
        tiering = begin(log_table(schema, partition_keys=("day",), bucket_key=("id",)))
        for number, day in enumerate(("mon", "tue")):
            for bucket in range(2):
                split = log_split(tiering.table, bucket, (day,), number)
                tiering.write(split, [source_batch(schema, [{"id": 10 * number + bucket, "day": day}])])
        lake.commit(tiering.request())
        rows = read_table(PATH).sort_by("id")
        assert rows.column("day").to_pylist() == ["mon", "mon", "tue", "tue"]
        assert rows.column(BUCKET_COLUMN).to_pylist() == [0, 1, 0, 1]

    def test_nested_nulls_and_all_types_come_back(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        parts = pa.list_(pa.struct([pa.field("sku", pa.string()), pa.field("count", pa.int32())]))
        schema = COLUMNS.append(pa.field("parts", parts)).append(pa.field("price", pa.decimal128(10, 2)))
        schema = schema.append(pa.field("seen", pa.timestamp("us", tz="UTC"))).append(pa.field("ratio", pa.float64()))
        values: list[object] = [None, [], [None], [{"sku": "a", "count": None}]]
        tiering = begin(log_table(schema))
        batch = source_batch(schema, [{"id": number, "parts": value} for number, value in enumerate(values)])
        tiering.write(log_split(tiering.table), [batch])
        lake.commit(tiering.request())
        rows = read_table(PATH).sort_by("id")
        assert rows.column("parts").to_pylist() == values
        assert rows.column("ratio").to_pylist() == [None] * 4

    def test_a_null_in_a_column_that_has_none_is_named(self, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        with pytest.raises(RowError, match="'id'"):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}, {"name": "no id"}])])

    def test_an_empty_split_leaves_no_file(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        assert tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [])]) == ()
        assert lake.list_prefix(PATH, lake.file_prefix(PATH, tiering.round_id)) == ()

    def test_files_lie_under_the_prefix_of_their_round_alone(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        one, ten = begin(log_table(), number=1), begin(log_table(), number=10)
        for tiering in (one, ten):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        for tiering in (one, ten):
            prefix = lake.file_prefix(PATH, tiering.round_id)
            assert lake.list_prefix(PATH, prefix) == tuple(file.path for file in tiering.files)

    @chaos
    def test_two_tries_of_a_split_write_different_files(self, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        for _ in range(2):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        assert len({file.path for file in tiering.files}) == 2

    @chaos
    def test_an_aborted_writer_leaves_nothing(
        self, lake: Lake, plugin: LakePlugin, begin: Callable[..., TieringRound]
    ) -> None:
        for table in (log_table(), key_table(path=TablePath("shop", "keyed"), table_id=8)):
            tiering = begin(table)
            writer = plugin.writer(tiering.task, table, log_split(table), 1)
            writer.write(source_batch(COLUMNS, [{"id": 1}]))
            writer.close()
            writer.abort()
            writer.abort()
            assert lake.list_prefix(table.path, lake.file_prefix(table.path, tiering.round_id)) == ()

    def test_only_committed_files_are_referenced(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        committed = tiering.files[0].path
        lake.commit(tiering.request())
        stray = tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 2}])])[0].path
        assert lake.referenced(PATH, (committed, stray)) == frozenset({committed})

    def test_deleting_takes_a_file_away_and_a_missing_one_is_no_error(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        tiering = begin(log_table())
        path = tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])[0].path
        lake.delete((path,))
        lake.delete((path,))
        assert lake.list_prefix(PATH, lake.file_prefix(PATH, tiering.round_id)) == ()

    def test_all_that_a_landed_commit_wrote_is_referenced(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        request = tiering.request()
        lake.commit(request)
        written = lake.commit_leftovers(PATH, request.ids)
        assert lake.referenced(PATH, written) == frozenset(written)

    @chaos
    def test_what_lost_commits_wrote_can_be_deleted(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        rounds = [begin(log_table(), number=number) for number in range(RACERS)]
        requests = [tiering.request() for tiering in rounds]

        def commit(number: int) -> None:
            try:
                lake.commit(requests[number])
            except FencedError:
                return

        with ThreadPoolExecutor(RACERS) as pool:
            list(pool.map(commit, range(RACERS)))
        for request in requests:
            written = lake.commit_leftovers(PATH, request.ids)
            lake.delete(frozenset(written) - lake.referenced(PATH, written))
        landed = [request for request in requests if lake.find(PATH, request.round_id, 0) is not None]
        assert len(landed) == 1
        assert not any(lake.commit_leftovers(PATH, one.ids) for one in requests if one is not landed[0])
        assert read_table(PATH).num_rows == 0

    def test_expiry_keeps_what_is_needed_and_every_row(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        requests = []
        for number in range(1, 41):
            tiering = begin(log_table(), number=number)
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": number}], start=number)])
            requests.append(tiering.request())
            lake.commit(requests[-1])
        oldest, newest = requests[0].ids.snapshot_id, requests[-1].ids.snapshot_id
        before = lake.head(PATH)
        assert lake.expire(PATH, frozenset({oldest})) > 0
        assert lake.expire(PATH, frozenset({oldest})) == 0
        assert lake.head(PATH) == before
        assert lake.find(PATH, requests[-1].round_id, 0) == newest
        assert sorted(read_table(PATH).column("id").to_pylist()) == list(range(1, 41))

    @chaos
    def test_expiry_never_takes_the_newest_commit_nor_raises_a_false_alarm(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        request = begin(log_table(), 1000).request()
        lake.commit(request)
        for started_ms in range(1001, 1031):
            lake.stamp(PATH, incarnation(started_ms))
        lake.expire(PATH, frozenset())
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.commit.snapshot_id == request.ids.snapshot_id
        assert head.stamp == incarnation(1030)

    @chaos
    def test_a_table_that_was_dropped_and_made_anew_starts_empty(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table())
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(stale.request())
        head = lake.open_table(log_table(table_id=8), incarnation())
        assert (head.table_id, head.commit, head.stamp) == (8, None, None)
        lake.stamp(PATH, stale.who)
        with pytest.raises(FencedError):
            lake.commit(stale.request())
        fresh = begin(log_table(table_id=8))
        fresh.write(log_split(fresh.table), [source_batch(COLUMNS, [{"id": 2}])])
        lake.commit(fresh.request())
        assert read_table(PATH).column("id").to_pylist() == [2]

    @upsert
    def test_a_kv_snapshot_becomes_rows(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(key_table())
        rows = [{"id": number, "name": "s"} for number in range(5)]
        tiering.write(snapshot_split(tiering.table), [source_batch(COLUMNS, rows, snapshot=True)])
        lake.commit(tiering.request())
        assert rows_of(read_table(PATH)) == [(number, "s") for number in range(5)]

    @pytest.mark.parametrize("seed", range(3))
    @upsert
    def test_changes_of_keys_leave_the_rows_of_a_model(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable, seed: int
    ) -> None:
        source = random.Random(seed)  # noqa: S311 - reproducible on purpose
        model: dict[int, str | None] = {}
        for number in range(1, 9):
            tiering = begin(key_table(), number=number)
            batches = [_random_batch(source, model, 100 * number + part * 20) for part in range(source.randrange(1, 4))]
            tiering.write(log_split(tiering.table), batches)
            assert lake.commit(tiering.request()) is CommitOutcome.LANDED
            assert rows_of(read_table(PATH)) == sorted(model.items(), key=repr)

    @upsert
    def test_a_round_that_deletes_unknown_keys_changes_no_row(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(key_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 5}], changes=[Change.DELETE])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        assert read_table(PATH).num_rows == 0

    @chaos
    def test_tables_commit_side_by_side(self, lake: Lake, plugin: LakePlugin, read_table: ReadTable) -> None:
        paths = [TablePath("shop", f"side{number}") for number in range(RACERS)]

        def tier(path: TablePath) -> CommitOutcome:
            tiering = TieringRound(plugin, lake, log_table(path=path, table_id=len(path.table)), incarnation())
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
            return lake.commit(tiering.request())

        with ThreadPoolExecutor(RACERS) as pool:
            assert list(pool.map(tier, paths)) == [CommitOutcome.LANDED] * RACERS
        assert [read_table(path).num_rows for path in paths] == [1] * RACERS

    def test_closing_twice_is_harmless(self, plugin: LakePlugin, options: Any) -> None:  # noqa: ANN401 - a plugin's options
        lake = plugin.open(options, FakeClock())
        lake.close()
        lake.close()

    @chaos
    def test_a_round_on_a_table_that_is_gone_is_an_error_of_ours(self, lake: Lake) -> None:
        with pytest.raises(LakewardError):
            lake.stamp(TablePath("no", "table"), incarnation())


def _random_batch(source: random.Random, model: dict[int, str | None], start: int) -> Any:  # noqa: ANN401 - a batch
    """Make a valid changelog of a small key space, and apply it to the model."""
    rows: list[dict[str, object]] = []
    changes: list[int] = []
    for _ in range(source.randrange(1, 15)):
        key = source.randrange(10)
        if key not in model:
            _record(rows, changes, key, f"i{start}", Change.INSERT)
            model[key] = f"i{start}"
        elif source.random() < 0.3:
            _record(rows, changes, key, model.pop(key), Change.DELETE)
        else:
            _record(rows, changes, key, model[key], Change.UPDATE_BEFORE)
            model[key] = f"u{start}-{len(rows)}"
            _record(rows, changes, key, model[key], Change.UPDATE_AFTER)
    return source_batch(COLUMNS, rows, changes=changes, start=start)


def _record(rows: list[dict[str, object]], changes: list[int], key: int, name: str | None, change: int) -> None:
    rows.append({"id": key, "name": name})
    changes.append(change)
