"""What every lake must do about heads, stamps and commits."""

# ruff: noqa: S101, D102 - these are tests: they assert, and a name states its fact
from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import FencedError, LakeError, OutcomeUnknownError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TableBucket, TablePath
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, mismatch
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    check_landed,
    check_row_count,
    check_values,
    head_of,
    incarnation,
    log_split,
    log_table,
    newest_commit,
    source_batch,
)
from lakeward_testing.levels import Conformance, chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import CommitIds, CommitRequest
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake

    ReadTable = Callable[[TablePath], pa.Table]
    RollBack = Callable[[TablePath, int], None]

RACERS = 4
MANY_BUCKETS = 6000
"""So many offsets are more than 64 KiB of text."""
SLACK_MS = 86_400_000
"""A day: so far may a server's clock be from ours. A time in seconds or in microseconds is years away."""


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

    def test_the_ids_of_each_commit_are_new(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        """It stands first: where two commits have the same ids, other tests fail for reasons that mislead."""
        tiering = begin(log_table())
        check_new_ids(lake.new_ids(PATH), lake.new_ids(PATH), ("uuid",))
        first = tiering.request()
        lake.commit(first)
        check_new_ids(first.ids, lake.new_ids(PATH))

    def test_a_table_that_is_not_there_has_no_head(self, lake: Lake) -> None:
        found = lake.head(TablePath("no", "table"))
        assert found is None, mismatch("head of a table that is not there", None, found)

    def test_opening_creates_a_table_without_stamp_and_commit(self, lake: Lake) -> None:
        head = lake.open_table(log_table(), incarnation())
        found = (head.table_id, head.stamp, head.commit)
        said = mismatch("open_table of a table that is not there: table id, stamp and commit", (7, None, None), found)
        assert found == (7, None, None), said

    def test_opening_twice_changes_nothing(self, lake: Lake) -> None:
        first, second = (lake.open_table(log_table(), incarnation()) for _ in range(2))
        assert first == second, mismatch("open_table, called twice: the second head", first, second)

    @chaos
    def test_an_overtaken_start_sets_no_table_aside_that_its_successor_stamped(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        begin(log_table(), 1000)
        live = begin(log_table(table_id=8), 2000)
        live.write(log_split(live.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(live.request())
        where = "open_table by an overtaken start, where its successor has stamped a later table"
        with expect_error(FencedError, where) as fenced:
            lake.open_table(log_table(), incarnation(1000))
        _check_fenced_by(fenced.value, incarnation(2000), where)
        _check_table_id(lake, live.table.table_id, where)
        check_row_count(read_table(PATH), 1, where)

    @chaos
    def test_an_overtaken_start_sets_no_table_aside_that_its_successor_has_only_created(self, lake: Lake) -> None:
        lake.open_table(log_table(table_id=8), incarnation(2000))
        where = "open_table by an overtaken start, where its successor has created a later table"
        with expect_error(FencedError, where) as fenced:
            lake.open_table(log_table(), incarnation(1000))
        _check_fenced_by(fenced.value, incarnation(2000), where)
        _check_table_id(lake, 8, where)
        _check_stamp(lake, None, where)

    @chaos
    def test_a_start_that_saw_an_earlier_table_sets_no_later_one_aside(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        """It has not been overtaken: it asked the source before the table was dropped, and the lake afterwards."""
        live = begin(log_table(table_id=8), 1000)
        live.write(log_split(live.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(live.request())
        where = "open_table for a table that the source has dropped, where the lake has a later one"
        with expect_error(LakeError, where):
            lake.open_table(log_table(), incarnation(2000))
        _check_table_id(lake, live.table.table_id, where)
        check_row_count(read_table(PATH), 1, where)

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
        check_values(rows, "note", [None, "n"], "open_table with a new nullable column, and a commit")

    def test_a_column_of_another_type_is_refused_by_name(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        other = log_table(pa.schema([COLUMNS.field("id"), pa.field("name", pa.int64())]))
        with expect_error(SchemaMismatchError, "open_table with another type of the column 'name'", match="'name'"):
            lake.open_table(other, incarnation())

    def test_the_stamp_is_found_on_the_head(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        lake.stamp(PATH, incarnation())
        _check_stamp(lake, incarnation(), "stamp")

    def test_stamping_twice_makes_one_snapshot(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        first, second = (lake.stamp(PATH, incarnation()).snapshot_id for _ in range(2))
        assert first == second, mismatch("stamp, called twice by one start: the second snapshot id", first, second)

    @chaos
    def test_a_later_start_takes_the_stamp_and_an_earlier_one_cannot_take_it_back(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        lake.stamp(PATH, incarnation(1000))
        lake.stamp(PATH, incarnation(2000))
        where = "stamp by an earlier start, where a later one has stamped"
        with expect_error(FencedError, where) as fenced:
            lake.stamp(PATH, incarnation(1000))
        _check_fenced_by(fenced.value, incarnation(2000), where)

    @chaos
    def test_another_service_takes_the_stamp_over(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        lake.stamp(PATH, incarnation(2000, "other"))
        stamp = lake.stamp(PATH, incarnation(1000)).stamp
        where = "stamp, where another service has stamped: stamp of the head"
        assert stamp == incarnation(1000), mismatch(where, incarnation(1000), stamp)

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
        _check_stamp(lake, incarnation(999 + RACERS), f"stamp by {RACERS} threads at once")

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
        where = f"stamp by {RACERS} processes at once"
        _check_stamp(lake, incarnation(999 + RACERS), where)
        assert outcomes[-1] == "stamped", mismatch(f"{where}: outcome of the latest start", "stamped", outcomes[-1])

    def test_a_commit_is_found_with_its_offsets_and_rows(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1, "name": "a"}, {"id": 2}])])
        request = tiering.request({TableBucket(7, None, 0): 2, TableBucket(7, None, 1): 5}, source_path="/mine")
        check_landed(lake.commit(request))
        commit = newest_commit(lake)
        said = mismatch("head after a commit: offsets of the newest commit", request.offsets, commit.offsets)
        assert commit.offsets == request.offsets, said
        said = mismatch("head after a commit: source path of the newest commit", "/mine", commit.source_path)
        assert commit.source_path == "/mine", said
        made = (request.incarnation, request.round_id.name, 0)
        found = (commit.incarnation, commit.round_name, commit.step)
        said = mismatch("head after a commit: incarnation, round and step of the newest commit", made, found)
        assert found == made, said
        snapshot_id = request.ids.snapshot_id
        for what, of in (("the newest commit", commit.snapshot_id), ("the head", head_of(lake).snapshot_id)):
            assert of == snapshot_id, mismatch(f"head after a commit: snapshot id of {what}", snapshot_id, of)
        rows = rows_of(read_table(PATH))
        said = mismatch("commit: rows of the table as a reader sees it", [(1, "a"), (2, None)], rows)
        assert rows == [(1, "a"), (2, None)], said

    def test_the_time_of_a_commit_is_in_ms_since_1970(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        """It is told by the clock that the lake was opened with, or by that of a server which the lake asks."""
        clock_ms, started_ms = FakeClock().wall_ms(), time.time_ns() // 1_000_000
        lake.commit(begin(log_table()).request())
        ended_ms = time.time_ns() // 1_000_000
        found = newest_commit(lake).timestamp_ms
        spans = ((clock_ms, clock_ms), (started_ms, ended_ms))
        assert any(first - SLACK_MS <= found <= last + SLACK_MS for first, last in spans), (
            "head after a commit: timestamp_ms of the newest commit: expected the time of the commit in ms since 1970, "
            f"about {clock_ms} by the lake's clock or {ended_ms} by that of this machine, found {found}"
        )

    def test_a_round_finds_its_own_commit_and_no_other(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        request = tiering.request()
        found = lake.find(PATH, request.round_id, 0)
        assert found is None, mismatch("find, before the round commits", None, found)
        lake.commit(request)
        found = lake.find(PATH, request.round_id, 0)
        said = mismatch("find, after the round's commit: id of its snapshot", request.ids.snapshot_id, found)
        assert found == request.ids.snapshot_id, said
        found = lake.find(PATH, request.round_id, 1)
        assert found is None, mismatch("find of a step that the round has not committed", None, found)

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
        where = "commit that a gateway sends twice"
        sent = _sent(lake, request)
        assert sent is not CommitOutcome.CONFLICT, f"{where}: expected that it landed or is unknown, found {sent!r}"
        found = lake.find(PATH, request.round_id, 0)
        said = mismatch(f"find after a {where}", request.ids.snapshot_id, found)
        assert found == request.ids.snapshot_id, said
        lake.stamp(PATH, incarnation(2000))
        lake.expire(PATH, frozenset())
        written = lake.commit_leftovers(PATH, request.ids)
        lake.delete(frozenset(written) - lake.referenced(PATH, written))
        check_values(read_table(PATH), "id", [1], f"{where}; then its leftovers were deleted")

    @chaos
    def test_the_same_request_cannot_land_twice(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(tiering.request())
        where = "commit of a request that has landed already"
        with expect_error(FencedError, where):
            lake.commit(tiering.request())
        check_row_count(read_table(PATH), 1, where)

    def test_a_commit_without_files_moves_the_offsets(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        offsets = {TableBucket(7, None, 0): 9}
        check_landed(lake.commit(tiering.request(offsets)), "commit without files")
        found = newest_commit(lake).offsets
        assert found == offsets, mismatch("head after a commit without files: offsets", offsets, found)

    def test_offsets_of_very_many_buckets_come_back(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        offsets = {TableBucket(7, part, bucket): 10**12 + bucket for part in (3, 4) for bucket in range(MANY_BUCKETS)}
        lake.commit(begin(log_table()).request(offsets))
        found = newest_commit(lake).offsets
        assert found == offsets, mismatch(f"head after a commit of {len(offsets)} offsets: offsets", offsets, found)

    @chaos
    def test_a_committer_is_fenced_by_a_successor_that_has_only_stamped(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table(), 1000)
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.stamp(PATH, incarnation(2000))
        where = "commit by a start whose successor has stamped"
        with expect_error(FencedError, where) as fenced:
            lake.commit(stale.request())
        _check_fenced_by(fenced.value, incarnation(2000), where)
        check_row_count(read_table(PATH), 0, where)

    @chaos
    def test_a_committer_is_fenced_by_a_successor_that_has_committed(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table(), 1000)
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(begin(log_table(), 2000).request())
        where = "commit by a start whose successor has committed"
        with expect_error(FencedError, where):
            lake.commit(stale.request())
        check_row_count(read_table(PATH), 0, where)

    @chaos
    def test_a_round_whose_base_commit_is_no_longer_the_newest_is_fenced(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        late, early = begin(log_table(), number=1), begin(log_table(), number=2)
        lake.commit(early.request())
        with expect_error(FencedError, "commit of a round whose base commit is no longer the newest"):
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
        landed, where = outcomes.count(CommitOutcome.LANDED), f"commit by {RACERS} rounds at once"
        assert landed == 1, mismatch(f"{where}: how many landed", 1, landed)
        check_values(read_table(PATH), "id", [outcomes.index(CommitOutcome.LANDED)], where)


def check_new_ids(first: CommitIds, second: CommitIds, names: Sequence[str] = ("uuid", "snapshot_id")) -> None:
    """Assert that a commit has no id of the commit before, of those of these names."""
    __tracebackhide__ = True
    for name in names:
        before, found = getattr(first, name), getattr(second, name)
        assert found != before, (
            f"new_ids, called twice: expected another {name} than that of the first call, found {found!r} again"
        )


def _check_fenced_by(fenced: FencedError, successor: Incarnation, where: str) -> None:
    __tracebackhide__ = True
    said = mismatch(f"{where}: `by` of the FencedError, which is the start that has the table", successor, fenced.by)
    assert fenced.by == str(successor), said


def _check_table_id(lake: Lake, expected: int, where: str) -> None:
    __tracebackhide__ = True
    found = head_of(lake).table_id
    assert found == expected, mismatch(f"{where}: table id of the head afterwards", expected, found)


def _check_stamp(lake: Lake, expected: Incarnation | None, where: str) -> None:
    __tracebackhide__ = True
    found = head_of(lake).stamp
    assert found == expected, mismatch(f"{where}: stamp of the head afterwards", expected, found)


def _sent(lake: Lake, request: CommitRequest) -> CommitOutcome | None:
    try:
        return lake.commit(request)
    except OutcomeUnknownError:
        return None
