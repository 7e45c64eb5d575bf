"""What every lake must do about heads, stamps and commits."""

# ruff: noqa: S101, D102 - these are tests: they assert, and a name states its fact
from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import FencedError, LakeError, OutcomeUnknownError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TableBucket, TablePath
from lakeward.testing.clock import FakeClock
from lakeward.testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    incarnation,
    log_split,
    log_table,
    source_batch,
)
from lakeward.testing.levels import Conformance, chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.results import CommitRequest
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake

    ReadTable = Callable[[TablePath], pa.Table]
    RollBack = Callable[[TablePath, int], None]

RACERS = 4
MANY_BUCKETS = 6000
"""So many offsets are more than 64 KiB of text."""


def _stamp_in_process(plugin: LakePlugin, options: Any, started_ms: int) -> str:  # noqa: ANN401 - a plugin's options
    """Stamp from a process of its own; return what happened."""
    lake = plugin.open(options, FakeClock())
    try:
        lake.stamp(PATH, incarnation(started_ms))
    except FencedError as fenced:
        return fenced.by
    finally:
        lake.close()
    return "stamped"


def rows_of(table: pa.Table) -> list[tuple[object, object]]:
    """Return the rows as (id, name), ordered."""
    return sorted(zip(table.column("id").to_pylist(), table.column("name").to_pylist(), strict=True), key=repr)


class LakeFencingConformance(Conformance):
    """The contract of `lakeward.ports.Lake` about who may commit, as tests."""

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
        head = lake.open_table(log_table(), incarnation())
        assert (head.table_id, head.stamp, head.commit) == (7, None, None)

    def test_opening_twice_changes_nothing(self, lake: Lake) -> None:
        assert lake.open_table(log_table(), incarnation()) == lake.open_table(log_table(), incarnation())

    @chaos
    def test_an_overtaken_start_sets_no_table_aside_that_its_successor_stamped(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        begin(log_table(), 1000)
        live = begin(log_table(table_id=8), 2000)
        live.write(log_split(live.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(live.request())
        with pytest.raises(FencedError) as fenced:
            lake.open_table(log_table(), incarnation(1000))
        assert fenced.value.by == str(incarnation(2000))
        head = lake.head(PATH)
        assert head is not None
        assert head.table_id == live.table.table_id
        assert read_table(PATH).num_rows == 1

    @chaos
    def test_an_overtaken_start_sets_no_table_aside_that_its_successor_has_only_created(self, lake: Lake) -> None:
        lake.open_table(log_table(table_id=8), incarnation(2000))
        with pytest.raises(FencedError) as fenced:
            lake.open_table(log_table(), incarnation(1000))
        assert fenced.value.by == str(incarnation(2000))
        head = lake.head(PATH)
        assert head is not None
        assert (head.table_id, head.stamp) == (8, None)

    @chaos
    def test_a_start_that_saw_an_earlier_table_sets_no_later_one_aside(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        """It has not been overtaken: it asked the source before the table was dropped, and the lake afterwards."""
        live = begin(log_table(table_id=8), 1000)
        live.write(log_split(live.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(live.request())
        with pytest.raises(LakeError):
            lake.open_table(log_table(), incarnation(2000))
        head = lake.head(PATH)
        assert head is not None
        assert head.table_id == live.table.table_id
        assert read_table(PATH).num_rows == 1

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
        lake.open_table(log_table(), incarnation())
        other = log_table(pa.schema([COLUMNS.field("id"), pa.field("name", pa.int64())]))
        with pytest.raises(SchemaMismatchError, match="'name'"):
            lake.open_table(other, incarnation())

    def test_the_stamp_is_found_on_the_head(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        lake.stamp(PATH, incarnation())
        head = lake.head(PATH)
        assert head is not None
        assert head.stamp == incarnation()

    def test_stamping_twice_makes_one_snapshot(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        assert lake.stamp(PATH, incarnation()).snapshot_id == lake.stamp(PATH, incarnation()).snapshot_id

    @chaos
    def test_a_later_start_takes_the_stamp_and_an_earlier_one_cannot_take_it_back(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        lake.stamp(PATH, incarnation(1000))
        lake.stamp(PATH, incarnation(2000))
        with pytest.raises(FencedError) as fenced:
            lake.stamp(PATH, incarnation(1000))
        assert fenced.value.by == str(incarnation(2000))

    @chaos
    def test_another_service_takes_the_stamp_over(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        lake.stamp(PATH, incarnation(2000, "other"))
        assert lake.stamp(PATH, incarnation(1000)).stamp == incarnation(1000)

    @chaos
    def test_of_threads_that_stamp_at_once_the_latest_start_holds_it(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())

        def stamp(started_ms: int) -> None:
            try:
                lake.stamp(PATH, incarnation(started_ms))
            except FencedError:
                return

        with ThreadPoolExecutor(RACERS) as pool:
            list(pool.map(stamp, range(1000, 1000 + RACERS)))
        head = lake.head(PATH)
        assert head is not None
        assert head.stamp == incarnation(999 + RACERS)

    @chaos
    def test_of_processes_that_stamp_at_once_the_latest_start_holds_it(
        self,
        lake: Lake,
        plugin: LakePlugin,
        options: Any,  # noqa: ANN401 - a plugin's options
    ) -> None:
        lake.open_table(log_table(), incarnation())
        with ProcessPoolExecutor(RACERS, mp_context=get_context("spawn")) as pool:
            racing = [pool.submit(_stamp_in_process, plugin, options, 1000 + number) for number in range(RACERS)]
            outcomes = [race.result() for race in racing]
        head = lake.head(PATH)
        assert head is not None
        assert head.stamp == incarnation(999 + RACERS)
        assert outcomes[-1] == "stamped"

    def test_a_commit_is_found_with_its_offsets_and_rows(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1, "name": "a"}, {"id": 2}])])
        request = tiering.request({TableBucket(7, None, 0): 2, TableBucket(7, None, 1): 5}, source_path="/mine")
        assert lake.commit(request) is CommitOutcome.LANDED
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.commit.offsets == request.offsets
        assert head.commit.source_path == "/mine"
        assert (head.commit.incarnation, head.commit.round_name, head.commit.step) == (
            request.incarnation,
            request.round_id.name,
            0,
        )
        assert head.commit.snapshot_id == request.ids.snapshot_id == head.snapshot_id
        assert rows_of(read_table(PATH)) == [(1, "a"), (2, None)]

    def test_a_round_finds_its_own_commit_and_no_other(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        request = tiering.request()
        assert lake.find(PATH, request.round_id, 0) is None
        lake.commit(request)
        assert lake.find(PATH, request.round_id, 0) == request.ids.snapshot_id
        assert lake.find(PATH, request.round_id, 1) is None

    @pytest.fixture
    def repeat_commits(self) -> Callable[[Lake], None] | None:
        """Sends each commit of a lake twice from now on, the second answer counting; None where nothing is sent."""
        return None

    @chaos
    def test_a_commit_that_a_gateway_sends_twice_counts_once_and_keeps_its_files(
        self,
        lake: Lake,
        begin: Callable[..., TieringRound],
        read_table: ReadTable,
        repeat_commits: Callable[[Lake], None] | None,
    ) -> None:
        if repeat_commits is None:
            pytest.skip("declared: repeat_commits gives None; this lake sends its commits to no server")
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        request = tiering.request()
        repeat_commits(lake)
        assert _sent(lake, request) is not CommitOutcome.CONFLICT
        assert lake.find(PATH, request.round_id, 0) == request.ids.snapshot_id
        lake.stamp(PATH, incarnation(2000))
        lake.expire(PATH, frozenset())
        written = lake.commit_leftovers(PATH, request.ids)
        lake.delete(frozenset(written) - lake.referenced(PATH, written))
        assert read_table(PATH).column("id").to_pylist() == [1]

    @chaos
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
        offsets = {TableBucket(7, part, bucket): 10**12 + bucket for part in (3, 4) for bucket in range(MANY_BUCKETS)}
        lake.commit(begin(log_table()).request(offsets))
        head = lake.head(PATH)
        assert head is not None
        assert head.commit is not None
        assert head.commit.offsets == offsets

    @chaos
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

    @chaos
    def test_a_committer_is_fenced_by_a_successor_that_has_committed(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table(), 1000)
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(begin(log_table(), 2000).request())
        with pytest.raises(FencedError):
            lake.commit(stale.request())
        assert read_table(PATH).num_rows == 0

    @chaos
    def test_a_round_whose_base_commit_is_no_longer_the_newest_is_fenced(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        late, early = begin(log_table(), number=1), begin(log_table(), number=2)
        lake.commit(early.request())
        with pytest.raises(FencedError):
            lake.commit(late.request())

    @chaos
    def test_of_commits_that_race_exactly_one_lands(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        rounds = [begin(log_table(), number=number) for number in range(RACERS)]
        for tiering in rounds:
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": tiering.number}])])

        def commit(tiering: TieringRound) -> object:
            try:
                return lake.commit(tiering.request())
            except FencedError:
                return None

        with ThreadPoolExecutor(RACERS) as pool:
            outcomes = list(pool.map(commit, rounds))
        assert outcomes.count(CommitOutcome.LANDED) == 1
        assert read_table(PATH).column("id").to_pylist() == [outcomes.index(CommitOutcome.LANDED)]


def _sent(lake: Lake, request: CommitRequest) -> CommitOutcome | None:
    try:
        return lake.commit(request)
    except OutcomeUnknownError:
        return None
