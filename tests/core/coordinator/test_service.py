"""What the service does, end to end, without Spark."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lakeward.coordinator.rounds.effects import Discard
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.errors import ConfigError, LakewardError, OutcomeUnknownError, SourceError, SparkError, StorageError
from lakeward.model.identity import Incarnation
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward.storage.service_state import ServiceState, ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.later_loop import LaterLoop
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.results import CommitRequest, OffsetCommit
    from lakeward.model.status import ServiceReport
    from lakeward.model.tables import BucketState, TableBucket, TableSpec
    from lakeward_service_kit.service_world import World


def ids(rows: list[dict[str, object]]) -> list[object]:
    return sorted(row["id"] for row in rows)  # type: ignore[type-var] # ids are numbers


def committed(world: World, path: TablePath) -> OffsetCommit:
    head = world.lake.head(path)
    assert head is not None
    assert head.commit is not None
    return head.commit


def test_once_ends_when_each_table_stands_at_its_end_offsets(world: World) -> None:
    log, keyed = world.table("log"), world.table("keyed", key=True)
    world.load(log, 0, 1000)
    world.load(keyed, 0, 500)
    world.store.snapshot(keyed)
    world.load(keyed, 400, 200)
    end = world.once()
    assert end.failed == ()
    assert ids(world.lake.read(log)) == list(range(1000))
    assert ids(world.lake.read(keyed, key="id")) == list(range(600))


def test_a_second_run_without_new_rows_commits_nothing(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.once()
    world.once()
    assert world.outcomes(log) == ["committed"]


def test_new_rows_alone_are_tiered_by_the_next_run(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.once()
    world.load(log, 10, 5)
    world.once()
    assert ids(world.lake.read(log)) == list(range(15))


def test_empty_batches_alone_move_the_offsets(world: World) -> None:
    log = world.table("log", buckets=1)
    world.store.append_empty(log, 0, 7)
    world.once()
    assert list((committed(world, log).offsets or {}).values()) == [7]


def test_snapshots_are_acquired_before_the_job_and_released_after_the_commit(world: World) -> None:
    keyed = world.table("keyed", key=True)
    world.load(keyed, 0, 100)
    world.store.snapshot(keyed)
    seen: list[int] = []
    world.lake.before_commit = lambda _: seen.append(sum(len(lease.held) for lease in world.store.leases()))
    world.once()
    assert seen == [2]
    assert list(world.store.leases()) == []


def test_a_round_journal_is_gone_after_the_commit(world: World) -> None:
    world.load(world.table("log"), 0, 10)
    world.once()
    assert list((world.directory / "state").rglob("journal")) == []


def test_no_file_is_left_that_the_lake_does_not_name(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.once()
    assert world.lake.files_on_disk(log) == world.lake.referenced(log, world.lake.files_on_disk(log))


def test_a_table_that_fails_leaves_the_others_alone(world: World) -> None:
    bad, good = world.table("bad", buckets=1), world.table("good")
    world.load(bad, 0, 10)
    world.load(good, 0, 10)

    def fail(request: CommitRequest) -> None:
        if request.path == bad:
            message = "the lake said no"
            raise LakewardError(message)

    world.lake.before_commit = fail
    end = world.once()
    assert ids(world.lake.read(good)) == list(range(10))
    assert end.failed == ((bad, "the lake said no"),)


def test_a_log_trimmed_below_the_tiered_offset_is_an_error_of_that_table_alone(world: World) -> None:
    cut, good = world.table("cut", buckets=1), world.table("good")
    world.load(cut, 0, 10)
    world.load(good, 0, 10)
    world.once()
    world.load(cut, 10, 10)
    world.load(good, 10, 10)
    world.store.trim_log(cut, 0, 15)
    end = world.once()
    assert [path for path, _ in end.failed] == [cut]
    assert "15" in end.failed[0][1]
    assert "10" in end.failed[0][1]
    assert ids(world.lake.read(good)) == list(range(20))


def test_a_row_that_cannot_be_written_suspends_its_table_at_once_and_names_the_value(world: World) -> None:
    """No task and no round tries it again, and its slot is free for the others."""
    bad, good = world.table("bad", buckets=1), world.table("good")
    world.load(bad, 0, 5)
    no_text = pa.array([b"n5", b"\xff\xfe"]).view(pa.string())
    world.store.load(bad, pa.table({"id": [5, 6], "name": no_text}))
    world.load(good, 0, 10)
    tries: list[int] = []

    def run(place: SubtaskPlace) -> str:
        tries.append(place.subtask)
        return run_subtask(place)

    end = world.once(rounds=1, jobs=ThreadJobs(run))

    where = f"table t.bad, bucket {world.store.table(bad).table_id}/0, offset 6, column 'name'"
    expected = f"{where}: expected a value of type string, found b'\\xff\\xfe'"
    ((failed, reason),) = end.failed
    assert failed == bad
    assert expected in reason
    assert world.outcomes(bad) == ["failed"]
    assert ids(world.lake.read(good)) == list(range(10))
    assert len(tries) == 1 + len(world.store.buckets(good))


def create_anew(world: World, path: TablePath) -> None:
    """Let a table's log begin again at offset 0, under the same id, as a source does that was created anew."""
    table_id = world.store.table(path).table_id
    with world.store.database.write() as sql:
        for change in ("DELETE FROM segments", "UPDATE buckets SET log_end = 0", "DELETE FROM lake"):
            sql.execute(f"{change} WHERE table_id = ?", (table_id,))


class UnreadableSource(EmbeddedSource):
    """Cannot say which buckets one table has, so many times."""

    def __init__(self, store: EmbeddedStore, unreadable: TablePath, times: int) -> None:
        super().__init__(store)
        self._unreadable, self._times = unreadable, times

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        if table.path == self._unreadable and self._times:
            self._times -= 1
            message = f"table {table.path}: 2 of 4 buckets"
            raise SourceError(message)
        return super().buckets(table)


def test_once_serves_the_other_tables_where_the_source_cannot_describe_one(world: World) -> None:
    bad, good = world.table("bad"), world.table("good")
    world.load(bad, 0, 10)
    world.load(good, 0, 10)
    with world.store.database.write() as sql:
        sql.execute("UPDATE schemas SET arrow = x'00' WHERE table_id = ?", (world.store.table(bad).table_id,))

    ((failed, reason),) = world.once().failed

    assert failed == bad
    assert "definition of table t.bad: expected columns and keys of a table" in reason
    assert ids(world.lake.read(good)) == list(range(10))


def test_once_serves_the_other_tables_where_one_cannot_be_looked_at(world: World) -> None:
    bad, good = world.table("bad"), world.table("good")
    world.load(bad, 0, 10)
    world.load(good, 0, 10)

    ((failed, reason),) = world.once(source=UnreadableSource(world.store, bad, 1000)).failed

    assert (failed, reason) == (bad, "table t.bad: 2 of 4 buckets")
    assert ids(world.lake.read(good)) == list(range(10))


def test_once_tiers_a_table_that_can_be_looked_at_later_up_to_its_end(world: World) -> None:
    late = world.table("late")
    world.load(late, 0, 10)

    assert world.once(source=UnreadableSource(world.store, late, 1)).failed == ()

    assert ids(world.lake.read(late)) == list(range(10))


class DroppingSource(EmbeddedSource):
    """Drops a table after it was listed."""

    def __init__(self, store: EmbeddedStore, dropped: TablePath) -> None:
        super().__init__(store)
        self._dropped = dropped

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        if table.path == self._dropped:
            self.store.drop_table(table.path)
        return super().buckets(table)


def test_once_does_not_wait_for_a_table_that_is_dropped_while_it_starts(world: World) -> None:
    dropped, good = world.table("dropped"), world.table("good")
    world.load(dropped, 0, 10)
    world.load(good, 0, 10)

    assert world.once(source=DroppingSource(world.store, dropped)).failed == ()

    assert ids(world.lake.read(good)) == list(range(10))


def test_a_source_that_was_re_created_is_an_error_of_that_table_alone_and_is_told_nothing(world: World) -> None:
    anew, good = world.table("anew", buckets=1), world.table("good")
    world.load(anew, 0, 20)
    world.load(good, 0, 10)
    world.once()
    create_anew(world, anew)
    world.load(anew, 100, 3)
    world.load(good, 10, 10)

    ((failed, reason),) = world.once().failed

    assert failed == anew
    assert "the lake has all records below offset 20, the log ends at 3" in reason
    assert "lakeward tables accept" in reason
    assert ids(world.lake.read(good)) == list(range(20))
    assert EmbeddedSource(world.store).lake_record(world.store.table(anew)) is None


def test_a_table_whose_source_was_re_created_is_suspended_at_the_fourth_try(world: World) -> None:
    """A server that has just become the leader may for a moment know less than the one before."""
    anew = world.table("anew", buckets=1)
    world.load(anew, 0, 20)
    world.once()
    create_anew(world, anew)
    world.load(anew, 100, 3)
    world.rounds.clear()
    words: list[str] = []

    def stop_at_the_end(report: ServiceReport) -> None:
        words.extend(table.status for table in report.tables)
        if "suspended" in words or len(world.rounds) > 4:
            service.stop()

    service = world.service(on_report=stop_at_the_end)
    asyncio.run(service.serve())

    assert world.outcomes(anew) == ["failed"] * 4
    assert words[-1] == "suspended"


def test_a_commit_whose_answer_is_lost_after_it_landed_is_found_again(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    lost = iter([True])

    def lose(_: CommitRequest) -> None:
        if next(lost, False):
            message = "no answer"
            raise OutcomeUnknownError(message)

    world.lake.after_commit = lose
    assert world.once().failed == ()
    assert ids(world.lake.read(log)) == list(range(10))


def test_a_commit_whose_answer_is_lost_before_it_landed_is_sent_again(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    lost = iter([True])

    def lose(_: CommitRequest) -> None:
        if next(lost, False):
            message = "no answer"
            raise OutcomeUnknownError(message)

    world.lake.before_commit = lose
    assert world.once().failed == ()
    assert ids(world.lake.read(log)) == list(range(10))


class ForgetfulSource(EmbeddedSource):
    """Dies once between the lake's commit and its own."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self.dead = False

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        if not self.dead:
            self.dead = True
            message = "gone"
            raise SourceError(message)
        super().commit(table, snapshot_id, prepared, offsets)


def test_a_source_that_does_not_know_the_newest_lake_commit_is_repaired(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    source = ForgetfulSource(EmbeddedStore.open(world.store.root))
    world.once(source=source)
    record = source.lake_record(source.table(log))
    assert record is not None
    assert record.snapshot_id == committed(world, log).snapshot_id
    assert ids(world.lake.read(log)) == list(range(10))


def test_a_backend_that_hangs_fails_its_table_alone_by_name(world: World) -> None:
    keyed, log = world.table("keyed", key=True), world.table("log")
    world.load(keyed, 0, 10)
    world.store.snapshot(keyed)
    world.load(log, 0, 10)
    forever = threading.Event()

    def hang(hook: str) -> None:
        if hook == "acquire":
            loop.call_soon_threadsafe(loop.advance, 10.0)
            forever.wait(LIMIT_S)

    world.backend.before = hang
    with asyncio.Runner(loop_factory=LaterLoop) as runner:
        loop = cast("LaterLoop", runner.get_loop())
        end = runner.run(world.service(once=True, call_timeout_s=10.0).serve())
    forever.set()
    assert ids(world.lake.read(log)) == list(range(10))
    assert [path for path, _ in end.failed] == [keyed]
    assert "plain" in end.failed[0][1]


def test_a_backend_that_raises_fails_its_table_alone_by_name(world: World) -> None:
    keyed, log = world.table("keyed", key=True), world.table("log")
    world.load(keyed, 0, 10)
    world.store.snapshot(keyed)
    world.load(log, 0, 10)

    def fail(hook: str) -> None:
        if hook == "acquire":
            message = "broken"
            raise ValueError(message)

    world.backend.before = fail
    end = world.once()
    assert ids(world.lake.read(log)) == list(range(10))
    assert "plain" in dict(end.failed)[keyed]


def test_an_excluded_table_is_left_alone(world: World) -> None:
    log, other = world.table("log"), world.table("other")
    world.load(log, 0, 10)
    world.load(other, 0, 10)
    world.rules = lambda path: TableSettings(include=path != other)
    world.once()
    assert world.lake.head(other) is None
    assert len(world.lake.read(log)) == 10


def test_an_incarnation_that_lost_its_stamp_to_a_later_start_stops_and_reports_nothing(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    first = world.service(once=True)

    def take_over(_: CommitRequest) -> None:
        world.lake.before_commit = lambda _: None
        world.lake.stamp(log, world.service_container().components().incarnation)

    world.lake.before_commit = take_over
    end = asyncio.run(first.serve())
    assert end.superseded_by
    assert world.lake.read(log) == []
    assert world.lake.deleted == []


def test_a_cut_log_split_is_read_by_ranges_and_committed_whole(world: World) -> None:
    log = world.table("log", buckets=1)
    for start in range(0, 1000, 100):
        world.load(log, start, 100)
    world.rules = lambda _: TableSettings(max_split_rows=100)
    world.once()
    assert ids(world.lake.read(log)) == list(range(1000))


@pytest.mark.parametrize("final", [False, True])
def test_a_stopped_service_ends_and_gives_its_tables_back(world: World, final: bool) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    service = world.service(final=final)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: world.outcomes(log))
        service.stop()
        await serving

    asyncio.run(run())
    assert world.reports[-1].state == "stopped"
    assert world.container.rounds().tables == ()


def test_a_round_that_a_stop_finds_still_opening_is_not_told_of(world: World) -> None:
    log = world.table("log")
    opening, stopped = threading.Event(), threading.Event()

    class Held(EmbeddedSource):
        def buckets(self, table: TableSpec) -> Sequence[BucketState]:
            opening.set()
            stopped.wait(LIMIT_S)
            return super().buckets(table)

    service = world.service(source=Held(EmbeddedStore.open(world.store.root)))

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(opening.is_set)
        service.stop()
        await serving
        stopped.set()

    asyncio.run(run())
    assert world.outcomes(log) == []


def test_a_paused_table_is_kept_in_hand_and_not_tiered(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.paused = frozenset({str(log)})
    service = world.service()

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: world.container.rounds().tables)
        assert [status.phase.value for status in world.container.rounds().tables] == ["paused"]
        world.paused = frozenset()
        await until(lambda: world.outcomes(log))
        service.stop()
        await serving

    asyncio.run(run())
    assert len(world.lake.read(log)) == 10


def test_the_report_says_what_became_of_each_table(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.once()
    (table,) = world.reports[-1].tables
    assert (table.path, table.rounds, table.rows, table.lag_rows) == (str(TablePath("t", "log")), 1, 10, 0)


def test_a_report_that_the_disk_refuses_ends_no_service(world: World) -> None:
    def refuse(_: object) -> None:
        message = "status.json: cannot be written (No space left on device)"
        raise StorageError(message)

    log = world.table("log")
    world.load(log, 0, 10)
    with capture_logs() as lines:
        assert world.once(on_report=refuse).failed == ()
    assert len(world.lake.read(log)) == 10
    assert [line["reason"] for line in lines if "report could not be written" in line["event"]] == [
        "status.json: cannot be written (No space left on device)"
    ]


class FullStore(ServiceStateStore):
    """A store whose disk is full from the second write to the sixth."""

    def __init__(self, files: SmallFiles) -> None:
        super().__init__(files)
        self.writes = 0

    def save(self, state: ServiceState) -> None:
        self.writes += 1
        if 1 < self.writes < 7:
            message = "state: cannot be written: No space left on device"
            raise StorageError(message)
        super().save(state)


def test_a_state_that_cannot_be_written_is_said_once_and_counted_when_it_can(world: World) -> None:
    tables = [world.table(f"log{number}") for number in range(6)]
    for table in tables:
        world.load(table, 0, 10)
    start = Incarnation("svc", world.clock.wall_ms(), "0123456789abcdef")
    store = FullStore(SmallFiles(str(world.directory / "state")))
    with capture_logs() as lines:
        world.once(incarnation=start, state=ServiceStateWriter(store, start, "plain", world.clock))
    assert store.writes > 6
    said = [(line["event"], line.get("failures")) for line in lines if "service's state" in line["event"]]
    assert said == [("the service's state could not be written", None), ("the service's state is written again", 5)]


def test_a_port_in_use_is_named(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"service.port: .*127.0.0.1:{port}"):
            world.once(port=port)


def test_a_freshness_of_ours_replaces_the_sources(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.rules = lambda _: TableSettings(freshness_s=77.0)
    service = world.service()
    seen: list[float] = []
    world.lake.before_commit = lambda _: seen.extend(s.assignment.freshness_s for s in world.container.rounds().tables)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: seen)
        service.stop()
        await serving

    asyncio.run(run())
    assert seen == [77.0]


def test_a_service_whose_engine_is_gone_ends_and_says_so(world: World) -> None:
    class Gone(ThreadJobs):
        def gone(self) -> str:
            return "Spark's Java process has ended"

    world.load(world.table("log"), 0, 10)
    with pytest.raises(SparkError, match="Java process has ended"):
        asyncio.run(world.service(jobs=Gone(run_subtask), stop_timeout_s=0.2).serve())


def test_a_late_finish_of_files_that_a_step_has_committed_deletes_none_of_them(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.once()
    committed = world.lake.files_on_disk(log)
    cleaning = world.service_container().cleaning()
    cleaning.discard(Discard(log, world.store.table(log).table_id, tuple(committed)))
    assert committed
    assert world.lake.files_on_disk(log) == committed


def test_columns_whose_names_differ_in_case_alone_are_warned_of_once(world: World) -> None:
    log = world.table("log")
    world.store.add_column(log, pa.field("ID", pa.int64()))
    service = world.service()

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        world.load(log, 0, 1)
        await until(lambda: len(world.outcomes(log)) == 1)
        world.load(log, 1, 1)
        await until(lambda: len(world.outcomes(log)) == 2)
        service.stop()
        await serving

    with capture_logs() as logs:
        asyncio.run(run())
    warned = [line for line in logs if "differ in case alone" in line["event"]]
    assert [(line["table"], line["event"][:13]) for line in warned] == [("t.log", "'id' and 'ID'")]


class PaimonSource(EmbeddedSource):
    """Its clients read one table in Paimon."""

    def __init__(self, store: EmbeddedStore, path: TablePath) -> None:
        super().__init__(store)
        self._path = path

    def table(self, path: TablePath) -> TableSpec:
        spec = super().table(path)
        return replace(spec, lake_format="paimon") if path == self._path else spec


def test_a_table_that_the_sources_clients_read_in_another_lake_is_refused_alone_and_may_be_mirrored(
    world: World,
) -> None:
    other, good = world.table("other"), world.table("good")
    world.load(other, 0, 10)
    world.load(good, 0, 10)

    ((failed, reason),) = world.once(source=PaimonSource(EmbeddedStore.open(world.store.root), other)).failed

    assert failed == other
    assert "expected a lake of type 'paimon', in which the source's clients read the table" in reason
    assert 'mirror it (`mode = "mirror"` in [tables."t.other"])' in reason
    assert world.lake.head(other) is None
    assert ids(world.lake.read(good)) == list(range(10))
    world.rules = lambda _: TableSettings(mode="mirror")
    source = PaimonSource(EmbeddedStore.open(world.store.root), other)
    assert world.once(source=source, mirrors=True).failed == ()
    assert ids(world.lake.read(other)) == list(range(10))
