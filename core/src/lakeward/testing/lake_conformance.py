"""What every lake must do. A plugin's tests subclass `LakeConformance` and give the fixtures.

Fixtures: `plugin` (a `LakePlugin`), `options` (an instance of its options, on a fresh warehouse; it must pickle),
`read_table` (a function from `TablePath` to a `pa.Table` of the table's live rows, by an independent reader), and
`roll_back` (a function of a path and a snapshot id that makes main stand there again, as a person would).
"""

# ruff: noqa: S101, D102, PLR2004 - these are tests: they assert, and a name states its fact
from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import FencedError, LakewardError, RolledBackError, RowError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import BUCKET_COLUMN, Change, TableBucket, TablePath
from lakeward.testing.clock import FakeClock
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake

    ReadTable = Callable[[TablePath], pa.Table]
    RollBack = Callable[[TablePath, int], None]

_RACERS = 4
_MANY_BUCKETS = 6000
"""So many offsets are more than 64 KiB of text."""


def _stamp_in_process(plugin: LakePlugin, options: Any, started_ms: int) -> str:  # noqa: ANN401 - a plugin's options
    """Stamp from a process of its own; return what happened in one word."""
    lake = plugin.open(options, FakeClock())
    try:
        lake.stamp(PATH, incarnation(started_ms))
    except FencedError as fenced:
        return fenced.by
    finally:
        lake.close()
    return "stamped"


def _rows(table: pa.Table) -> list[tuple[object, object]]:
    """Return the rows as (id, name), ordered."""
    return sorted(zip(table.column("id").to_pylist(), table.column("name").to_pylist(), strict=True), key=repr)


class LakeConformance:
    """The contract of `lakeward.ports.Lake` and `LakeWriter`, as tests."""

    __test__ = False

    @pytest.fixture
    def lake(self, plugin: LakePlugin, options: Any) -> Iterator[Lake]:  # noqa: ANN401 - a plugin's options
        """An open lake on a fresh warehouse."""
        lake = plugin.open(options, FakeClock())
        yield lake
        lake.close()

    @pytest.fixture
    def begin(self, plugin: LakePlugin, lake: Lake) -> Callable[..., TieringRound]:
        """Starts a round: `begin(table, who, number)`."""

        def start(table: TableSpec, started_ms: int = 1000, number: int = 1) -> TieringRound:
            return TieringRound(plugin, lake, table, incarnation(started_ms), number)

        return start

    def test_a_table_that_is_not_there_has_no_head(self, lake: Lake) -> None:
        assert lake.head(TablePath("no", "table")) is None

    def test_opening_creates_a_table_without_stamp_and_commit(self, lake: Lake) -> None:
        head = lake.open_table(log_table())
        assert (head.table_id, head.stamp, head.commit) == (7, None, None)

    def test_opening_twice_changes_nothing(self, lake: Lake) -> None:
        assert lake.open_table(log_table()) == lake.open_table(log_table())

    def test_a_new_nullable_column_is_appended_and_old_rows_have_null(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        first = begin(log_table())
        first.write(log_split(first.table), [source_batch(COLUMNS, [{"id": 1, "name": "a"}])])
        lake.commit(first.request())
        wider = COLUMNS.append(pa.field("note", pa.string()))
        second = begin(log_table(wider), number=2)
        second.write(log_split(second.table), [source_batch(wider, [{"id": 2, "name": "b", "note": "n"}], start=1)])
        lake.commit(second.request())
        rows = read_table(PATH).sort_by("id")
        assert rows.column("note").to_pylist() == [None, "n"]

    def test_a_column_of_another_type_is_refused_by_name(self, lake: Lake) -> None:
        lake.open_table(log_table())
        other = log_table(pa.schema([COLUMNS.field("id"), pa.field("name", pa.int64())]))
        with pytest.raises(SchemaMismatchError, match="'name'"):
            lake.open_table(other)

    def test_the_stamp_is_found_on_the_head(self, lake: Lake) -> None:
        lake.open_table(log_table())
        lake.stamp(PATH, incarnation())
        head = lake.head(PATH)
        assert head is not None
        assert head.stamp == incarnation()

    def test_stamping_twice_makes_one_snapshot(self, lake: Lake) -> None:
        lake.open_table(log_table())
        assert lake.stamp(PATH, incarnation()).snapshot_id == lake.stamp(PATH, incarnation()).snapshot_id

    def test_a_later_start_takes_the_stamp_and_an_earlier_one_cannot_take_it_back(self, lake: Lake) -> None:
        lake.open_table(log_table())
        lake.stamp(PATH, incarnation(1000))
        lake.stamp(PATH, incarnation(2000))
        with pytest.raises(FencedError) as fenced:
            lake.stamp(PATH, incarnation(1000))
        assert fenced.value.by == str(incarnation(2000))

    def test_another_service_takes_the_stamp_over(self, lake: Lake) -> None:
        lake.open_table(log_table())
        lake.stamp(PATH, incarnation(2000, "other"))
        assert lake.stamp(PATH, incarnation(1000)).stamp == incarnation(1000)

    def test_of_threads_that_stamp_at_once_the_latest_start_holds_it(self, lake: Lake) -> None:
        lake.open_table(log_table())

        def stamp(started_ms: int) -> None:
            try:
                lake.stamp(PATH, incarnation(started_ms))
            except FencedError:
                return

        with ThreadPoolExecutor(_RACERS) as pool:
            list(pool.map(stamp, range(1000, 1000 + _RACERS)))
        head = lake.head(PATH)
        assert head is not None
        assert head.stamp == incarnation(999 + _RACERS)

    def test_of_processes_that_stamp_at_once_the_latest_start_holds_it(
        self,
        lake: Lake,
        plugin: LakePlugin,
        options: Any,  # noqa: ANN401 - a plugin's options
    ) -> None:
        lake.open_table(log_table())
        with ProcessPoolExecutor(_RACERS, mp_context=get_context("spawn")) as pool:
            racing = [pool.submit(_stamp_in_process, plugin, options, 1000 + number) for number in range(_RACERS)]
            outcomes = [race.result() for race in racing]
        head = lake.head(PATH)
        assert head is not None
        assert head.stamp == incarnation(999 + _RACERS)
        assert outcomes[-1] == "stamped"

    def test_a_commit_is_found_with_its_offsets_and_rows(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1, "name": "a"}, {"id": 2}])])
        request = tiering.request({TableBucket(7, None, 0): 2, TableBucket(7, None, 1): 5}, note="mine")
        assert lake.commit(request) is CommitOutcome.LANDED
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.commit.offsets == request.offsets
        assert (head.commit.incarnation, head.commit.round_name, head.commit.step) == (
            request.incarnation,
            request.round_id.name,
            0,
        )
        assert head.commit.snapshot_id == request.ids.snapshot_id == head.snapshot_id
        assert _rows(read_table(PATH)) == [(1, "a"), (2, None)]

    def test_a_round_finds_its_own_commit_and_no_other(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        request = tiering.request()
        assert lake.find(PATH, request.round_id, 0) is None
        lake.commit(request)
        assert lake.find(PATH, request.round_id, 0) == request.ids.snapshot_id
        assert lake.find(PATH, request.round_id, 1) is None

    def test_the_same_request_cannot_land_twice(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(tiering.request())
        with pytest.raises(FencedError):
            lake.commit(tiering.request())
        assert read_table(PATH).num_rows == 1

    def test_a_commit_without_files_moves_the_offsets(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        assert lake.commit(tiering.request({TableBucket(7, None, 0): 9})) is CommitOutcome.LANDED
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.commit.offsets == {TableBucket(7, None, 0): 9}

    def test_offsets_of_very_many_buckets_come_back(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        offsets = {TableBucket(7, part, bucket): 10**12 + bucket for part in (3, 4) for bucket in range(_MANY_BUCKETS)}
        lake.commit(begin(log_table()).request(offsets))
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.commit.offsets == offsets

    def test_a_committer_is_fenced_by_a_successor_that_has_only_stamped(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table(), 1000)
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.stamp(PATH, incarnation(2000))
        with pytest.raises(FencedError) as fenced:
            lake.commit(stale.request())
        assert fenced.value.by == str(incarnation(2000))
        assert read_table(PATH).num_rows == 0

    def test_a_committer_is_fenced_by_a_successor_that_has_committed(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table(), 1000)
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(begin(log_table(), 2000).request())
        with pytest.raises(FencedError):
            lake.commit(stale.request())
        assert read_table(PATH).num_rows == 0

    def test_a_round_whose_base_commit_is_no_longer_the_newest_is_fenced(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        late, early = begin(log_table(), number=1), begin(log_table(), number=2)
        lake.commit(early.request())
        with pytest.raises(FencedError):
            lake.commit(late.request())

    def test_of_commits_that_race_exactly_one_lands(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        rounds = [begin(log_table(), number=number) for number in range(_RACERS)]
        for tiering in rounds:
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": tiering.number}])])

        def commit(tiering: TieringRound) -> object:
            try:
                return lake.commit(tiering.request())
            except FencedError:
                return None

        with ThreadPoolExecutor(_RACERS) as pool:
            outcomes = list(pool.map(commit, rounds))
        assert outcomes.count(CommitOutcome.LANDED) == 1
        assert read_table(PATH).column("id").to_pylist() == [outcomes.index(CommitOutcome.LANDED)]

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
            prefix = lake.file_prefix(PATH, tiering.round_id)
            assert lake.list_prefix(PATH, prefix) == tuple(file.path for file in tiering.files)

    def test_two_tries_of_a_split_write_different_files(self, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        for _ in range(2):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        assert len({file.path for file in tiering.files}) == 2

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

    def test_what_lost_commits_wrote_can_be_deleted(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        rounds = [begin(log_table(), number=number) for number in range(_RACERS)]
        requests = [tiering.request() for tiering in rounds]

        def commit(number: int) -> None:
            try:
                lake.commit(requests[number])
            except FencedError:
                return

        with ThreadPoolExecutor(_RACERS) as pool:
            list(pool.map(commit, range(_RACERS)))
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

    def test_a_table_that_was_dropped_and_made_anew_starts_empty(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table())
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(stale.request())
        head = lake.open_table(log_table(table_id=8))
        assert (head.table_id, head.commit, head.stamp) == (8, None, None)
        lake.stamp(PATH, stale.who)
        with pytest.raises(FencedError):
            lake.commit(stale.request())
        fresh = begin(log_table(table_id=8))
        fresh.write(log_split(fresh.table), [source_batch(COLUMNS, [{"id": 2}])])
        lake.commit(fresh.request())
        assert read_table(PATH).column("id").to_pylist() == [2]

    def test_a_kv_snapshot_becomes_rows(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(key_table())
        rows = [{"id": number, "name": "s"} for number in range(5)]
        tiering.write(snapshot_split(tiering.table), [source_batch(COLUMNS, rows, snapshot=True)])
        lake.commit(tiering.request())
        assert _rows(read_table(PATH)) == [(number, "s") for number in range(5)]

    @pytest.mark.parametrize("seed", range(3))
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
            assert _rows(read_table(PATH)) == sorted(model.items(), key=repr)

    def test_a_round_that_deletes_unknown_keys_changes_no_row(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(key_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 5}], changes=[Change.DELETE])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        assert read_table(PATH).num_rows == 0

    def test_tables_commit_side_by_side(self, lake: Lake, plugin: LakePlugin, read_table: ReadTable) -> None:
        paths = [TablePath("shop", f"side{number}") for number in range(_RACERS)]

        def tier(path: TablePath) -> CommitOutcome:
            tiering = TieringRound(plugin, lake, log_table(path=path, table_id=len(path.table)), incarnation())
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
            return lake.commit(tiering.request())

        with ThreadPoolExecutor(_RACERS) as pool:
            assert list(pool.map(tier, paths)) == [CommitOutcome.LANDED] * _RACERS
        assert [read_table(path).num_rows for path in paths] == [1] * _RACERS

    def test_closing_twice_is_harmless(self, plugin: LakePlugin, options: Any) -> None:  # noqa: ANN401 - a plugin's options
        lake = plugin.open(options, FakeClock())
        lake.close()
        lake.close()

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
