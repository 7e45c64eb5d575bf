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
from lakeward.ports import ReadableLake
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, expect_no_error, mismatch
from lakeward_testing.lake_fencing import RACERS, LakeFencingConformance, check_new_ids, rows_of
from lakeward_testing.lake_resume import LakeResumeConformance
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    check_landed,
    check_row_count,
    check_values,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    newest_commit,
    snapshot_split,
    source_batch,
)
from lakeward_testing.levels import chaos, upsert

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
        first = begin(log_table()).request()
        lake.commit(first)
        snapshot_id = head_of(lake).snapshot_id
        assert snapshot_id is not None, "head after a commit: expected a snapshot id, found None"
        second = begin(log_table(), number=2).request()
        check_new_ids(first.ids, second.ids)
        lake.commit(second)
        roll_back(PATH, snapshot_id)
        where = "head of a table that was rolled back behind its newest commit"
        with expect_error(RolledBackError, where, match=r"shop\.orders"):
            lake.head(PATH)

    def test_a_commit_says_up_to_when_the_table_is_complete(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        for number, complete_ms in enumerate((1_795_887_000_123, None, 1_795_887_180_456), 1):
            lake.commit(begin(log_table(), number=number).request(complete_ms=complete_ms))
            commit = head_of(lake).commit
            found = None if commit is None else commit.complete_ms
            where = "complete_ms of the head's newest commit"
            assert found == complete_ms, mismatch(where, complete_ms, found)

    def test_the_head_names_the_columns_if_it_names_any(self, lake: Lake) -> None:
        lake.open_table(log_table(), incarnation())
        found = head_of(lake).columns
        said = mismatch("head: columns, or None", COLUMNS.names, found)
        assert found is None or set(found) >= set(COLUMNS.names), said
        lake.open_table(log_table(COLUMNS.append(pa.field("more", pa.string()))), incarnation())
        later = head_of(lake).columns
        assert later is None or "more" in later, mismatch("head: columns after one was added", "more", later)

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
        where = "commit of two partitions of two buckets"
        check_values(rows, "day", ["mon", "mon", "tue", "tue"], where)
        if BUCKET_COLUMN in rows.column_names:
            check_values(rows, BUCKET_COLUMN, [0, 1, 0, 1], where)

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
        check_values(rows, "parts", values, "commit of lists of structs with nulls")
        check_values(rows, "ratio", [None] * 4, "commit of a column of nulls")

    def test_a_null_in_a_column_that_has_none_is_named(self, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        with expect_error(RowError, "writer with a null in the column 'id', which has none", match="'id'"):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}, {"name": "no id"}])])

    def test_an_empty_split_leaves_no_file(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        files = tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [])])
        assert files == (), mismatch("close of a writer that took no row: files", (), files)
        _check_listed(lake, tiering, (), "a writer took no row")

    def test_files_lie_under_the_prefix_of_their_round_alone(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        one, ten = begin(log_table(), number=1), begin(log_table(), number=10)
        for tiering in (one, ten):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        for tiering in (one, ten):
            written = tuple(file.path for file in tiering.files)
            _check_listed(lake, tiering, written, f"rounds 1 and 10 wrote; the prefix is that of {tiering.number}")

    @chaos
    def test_two_tries_of_a_split_write_different_files(self, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        for _ in range(2):
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        paths = [file.path for file in tiering.files]
        assert len(set(paths)) == 2, f"writer: expected files of two tries to have different paths, found {paths}"

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
            with expect_no_error("abort of a writer that was aborted before"):
                writer.abort()
            _check_listed(lake, tiering, (), "a writer was aborted")

    def test_only_committed_files_are_referenced(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        committed = tiering.files[0].path
        lake.commit(tiering.request())
        stray = tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 2}])])[0].path
        found, expected = lake.referenced(PATH, (committed, stray)), frozenset({committed})
        assert found == expected, mismatch("referenced of a committed and an uncommitted file", expected, found)

    def test_deleting_takes_a_file_away_and_a_missing_one_is_no_error(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        tiering = begin(log_table())
        path = tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])[0].path
        lake.delete((path,))
        with expect_no_error("delete of a file that is gone already"):
            lake.delete((path,))
        _check_listed(lake, tiering, (), "the round's file was deleted")

    def test_all_that_a_landed_commit_wrote_is_referenced(self, lake: Lake, begin: Callable[..., TieringRound]) -> None:
        tiering = begin(log_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        request = tiering.request()
        lake.commit(request)
        written = lake.commit_leftovers(PATH, request.ids)
        found, expected = lake.referenced(PATH, written), frozenset(written)
        assert found == expected, mismatch("referenced of all that a landed commit wrote", expected, found)

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
        where = f"commit by {RACERS} rounds at once"
        assert len(landed) == 1, mismatch(f"{where}: how many `find` says have landed", 1, len(landed))
        for one in requests:
            left = lake.commit_leftovers(PATH, one.ids) if one is not landed[0] else ()
            assert not left, mismatch("commit_leftovers of a lost commit, after what it gave was deleted", (), left)
        check_row_count(read_table(PATH), 0, f"{where}, without files")

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
        # What the first call spares is there for the second to expire: so the port shows that `keep` was heeded.
        spared = lake.expire(PATH, frozenset(request.ids.snapshot_id for request in requests))
        expired = lake.expire(PATH, frozenset({oldest}))
        assert expired > 0, (
            "expire of a table of 40 commits, first with all of them in `keep`, then with the oldest alone: expected "
            f"the second to find more than 0 snapshots that the first has spared, found {spared} and then {expired}"
        )
        expired = lake.expire(PATH, frozenset({oldest}))
        assert expired == 0, mismatch("expire, called again: snapshots", 0, expired)
        head = lake.head(PATH)
        assert head == before, mismatch("head after expire", before, head)
        found = lake.find(PATH, requests[-1].round_id, 0)
        assert found == newest, mismatch("find of the newest round after expire", newest, found)
        if isinstance(lake, ReadableLake):
            where = "read_rows of the oldest snapshot, which was in the `keep` of expire"
            with expect_no_error(where):
                ids = [number for batch in lake.read_rows(PATH, oldest) for number in batch.column("id").to_pylist()]
            assert ids == [1], mismatch(f"{where}: column 'id'", [1], ids)
        check_values(read_table(PATH).sort_by("id"), "id", list(range(1, 41)), "expire")

    @chaos
    def test_expiry_never_takes_the_newest_commit_nor_raises_a_false_alarm(
        self, lake: Lake, begin: Callable[..., TieringRound]
    ) -> None:
        request = begin(log_table(), 1000).request()
        lake.commit(request)
        for started_ms in range(1001, 1031):
            lake.stamp(PATH, incarnation(started_ms))
        lake.expire(PATH, frozenset())
        found = newest_commit(lake).snapshot_id
        said = mismatch("expire after 30 stamps: snapshot id of the newest commit", request.ids.snapshot_id, found)
        assert found == request.ids.snapshot_id, said
        stamp = head_of(lake).stamp
        assert stamp == incarnation(1030), mismatch("expire after 30 stamps: stamp", incarnation(1030), stamp)

    @chaos
    def test_a_table_that_was_dropped_and_made_anew_starts_empty(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        stale = begin(log_table())
        stale.write(log_split(stale.table), [source_batch(COLUMNS, [{"id": 1}])])
        lake.commit(stale.request())
        head = lake.open_table(log_table(table_id=8), incarnation())
        found = (head.table_id, head.commit, head.stamp)
        where = "open_table of a table that was dropped and made anew"
        said = mismatch(f"{where}: table id, commit and stamp", (8, None, None), found)
        assert found == (8, None, None), said
        lake.stamp(PATH, stale.who)
        with expect_error(FencedError, "commit for the table before it was dropped and made anew"):
            lake.commit(stale.request())
        fresh = begin(log_table(table_id=8))
        fresh.write(log_split(fresh.table), [source_batch(COLUMNS, [{"id": 2}])])
        lake.commit(fresh.request())
        check_values(read_table(PATH), "id", [2], f"{where}, and a commit")

    @upsert
    def test_a_kv_snapshot_becomes_rows(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(key_table())
        rows = [{"id": number, "name": "s"} for number in range(5)]
        tiering.write(snapshot_split(tiering.table), [source_batch(COLUMNS, rows, snapshot=True)])
        lake.commit(tiering.request())
        _check_rows(read_table(PATH), [(number, "s") for number in range(5)], "commit of a KV snapshot")

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
            check_landed(lake.commit(tiering.request()))
            where = f"commit of round {number} of random changes of keys"
            _check_rows(read_table(PATH), sorted(model.items(), key=repr), where)

    @upsert
    def test_a_round_that_deletes_unknown_keys_changes_no_row(
        self, lake: Lake, begin: Callable[..., TieringRound], read_table: ReadTable
    ) -> None:
        tiering = begin(key_table())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 5}], changes=[Change.DELETE])])
        check_landed(lake.commit(tiering.request()), "commit of a DELETE of a key that the table does not have")
        check_row_count(read_table(PATH), 0, "commit of a DELETE of a key that the table does not have")

    @chaos
    def test_tables_commit_side_by_side(self, lake: Lake, plugin: LakePlugin, read_table: ReadTable) -> None:
        paths = [TablePath("shop", f"side{number}") for number in range(RACERS)]

        def tier(path: TablePath) -> CommitOutcome:
            tiering = TieringRound(plugin, lake, log_table(path=path, table_id=len(path.table)), incarnation())
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
            return lake.commit(tiering.request())

        with ThreadPoolExecutor(RACERS) as pool:
            outcomes = list(pool.map(tier, paths))
        where = f"commit to {RACERS} tables at once"
        for path, outcome in zip(paths, outcomes, strict=True):
            check_landed(outcome, f"{where}: table {path}")
            check_row_count(read_table(path), 1, f"{where}: table {path}")

    def test_closing_twice_is_harmless(self, plugin: LakePlugin, options: Any) -> None:  # noqa: ANN401 - a plugin's options
        lake = plugin.open(options, FakeClock())
        lake.close()
        with expect_no_error("close of a lake that was closed before"):
            lake.close()

    @chaos
    def test_a_round_on_a_table_that_is_gone_is_an_error_of_ours(self, lake: Lake) -> None:
        with expect_error(LakewardError, "stamp of a table that is not there"):
            lake.stamp(TablePath("no", "table"), incarnation())


def _check_listed(lake: Lake, tiering: TieringRound, expected: tuple[str, ...], where: str) -> None:
    __tracebackhide__ = True
    path = tiering.table.path
    found = lake.list_prefix(path, lake.file_prefix(path, tiering.round_id))
    assert found == expected, mismatch(f"list_prefix, after {where}", expected, found)


def _check_rows(table: pa.Table, expected: list[tuple[Any, Any]], where: str) -> None:
    __tracebackhide__ = True
    found = rows_of(table)
    assert found == expected, mismatch(f"{where}: rows of the table as a reader sees it", expected, found)


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
