"""Right before a commit is sent, its files, rows and offsets are compared with what its splits came to."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from lakeward.clock import SystemClock
from lakeward.coordinator.commits.commit_account import CommitAccount, SplitShare
from lakeward.errors import RowCountError
from lakeward.model.events import SplitFinished
from lakeward.model.exchange import ExchangeState
from lakeward.model.results import LakeFile
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket, TablePath
from lakeward.sockets import SocketTransport
from lakeward.subtask.run import real_ports
from lakeward.subtask.subtask import Subtask
from lakeward_service_kit.jobs import ThreadJobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.events import Envelope
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.results import WriteResult
    from lakeward.ports import Address, Connection, Receiver
    from lakeward_service_kit.service_world import World

PATH = TablePath("t", "log")
BUCKET = TableBucket(7, None, 0)
OTHER = TableBucket(7, None, 1)
FIRST = LogSplit("b0-100", BUCKET, (), 100, 110)
SECOND = LogSplit("b0-110", BUCKET, (), 110, 120)
SNAPSHOT = SnapshotSplit("b1-s3", OTHER, (), 3, 50)


replace_state = structs.replace


def a_file(name: str, rows: int, kind: str = "data") -> LakeFile:
    return LakeFile(name, kind, rows, 1)


SHARES = (
    SplitShare(FIRST, 110, 8, (a_file("a", 5), a_file("b", 2)), left_out=1, empty_offsets=2),
    SplitShare(SECOND, 115, 5, (a_file("c", 5),), left_out=0, empty_offsets=0),
    SplitShare(SNAPSHOT, 50, 30, (a_file("d", 30), a_file("e", 9, "deletes")), left_out=0, empty_offsets=None),
)
FILES = tuple(file for share in SHARES for file in share.files)
ACCOUNT = CommitAccount(PATH, (SNAPSHOT, FIRST, SECOND), {BUCKET: 100}, {BUCKET: 100}, frozenset(), SHARES)
OFFSETS = {BUCKET: 115, OTHER: 50}


def test_what_is_accounted_for_may_be_committed() -> None:
    ACCOUNT.check(OFFSETS, FILES)


def test_files_that_a_step_has_committed_count() -> None:
    replace(ACCOUNT, in_lake=frozenset({"a"})).check(OFFSETS, FILES[1:])


WRITERS = (
    ExchangeState(subtask=0, subtasks=2, rows=13, left_out=1, files=FILES[:2]),
    ExchangeState(subtask=1, subtasks=2, rows=30, left_out=0, files=FILES[2:]),
)
EXCHANGED = replace(ACCOUNT, shares=tuple(replace(share, files=(), left_out=None) for share in SHARES), writers=WRITERS)
"""Files that hold rows of many splits: only all of them together are the rows of all splits."""


def test_the_rows_of_an_exchange_are_counted_over_the_round() -> None:
    EXCHANGED.check(OFFSETS, FILES)
    replace(EXCHANGED, in_lake=frozenset({"a", "d"})).check(OFFSETS, (FILES[1], FILES[2], FILES[4]))


@pytest.mark.parametrize(
    ("writers", "files"),
    [
        (WRITERS, FILES[1:]),
        ((replace_state(WRITERS[0], left_out=0), WRITERS[1]), FILES),
        ((replace_state(WRITERS[0], rows=12), WRITERS[1]), FILES),
        (WRITERS[:1], FILES[:2]),
        ((), ()),
    ],
    ids=["a file is missing", "a row is missing", "a row never arrived", "a writer is missing", "all are missing"],
)
def test_rows_that_an_exchange_lost_are_an_error_with_both_figures(
    writers: tuple[ExchangeState, ...], files: tuple[LakeFile, ...]
) -> None:
    with pytest.raises(RowCountError, match=r"t.log: 43 records were read, \d+ came through the exchange; \d+ rows"):
        replace(EXCHANGED, writers=writers).check(OFFSETS, files)


def test_a_file_that_two_writers_name_or_none_is_an_error() -> None:
    strange = replace(EXCHANGED, writers=(WRITERS[0], replace_state(WRITERS[1], files=FILES[2:4])))
    with pytest.raises(RowCountError, match="no split's, e first"):
        strange.check(OFFSETS, FILES)
    twice = (*FILES[:2], FILES[4])
    with pytest.raises(RowCountError, match="two splits' at once"):
        replace(EXCHANGED, writers=(replace_state(WRITERS[0], files=twice), WRITERS[1])).check(OFFSETS, FILES)


def test_an_offset_stays_where_an_earlier_step_took_it() -> None:
    replace(ACCOUNT, landed={BUCKET: 118}).check({BUCKET: 118, OTHER: 50}, FILES)


@pytest.mark.parametrize("share", [SHARES[0], SHARES[2]])
def test_an_offset_that_goes_back_is_an_error_also_where_no_split_of_its_bucket_is_committed(share: SplitShare) -> None:
    bucket = share.split.bucket
    others = tuple(one for one in SHARES if one.split.bucket != bucket)
    account = replace(ACCOUNT, landed={bucket: share.end}, shares=others)
    offsets = {**ACCOUNT.before, **{one.split.bucket: one.end for one in others}}
    files = tuple(file for one in others for file in one.files)
    with pytest.raises(RowCountError, match=f"bucket {bucket}: .* the lake stands at {share.end}"):
        account.check(offsets, files)
    account.check({**offsets, bucket: share.end}, files)


def test_offsets_of_an_earlier_table_of_the_name_may_be_left_out() -> None:
    replace(ACCOUNT, landed={structs.replace(BUCKET, table_id=6): 500}).check(OFFSETS, FILES)


def test_a_bucket_without_splits_stays_where_it_was() -> None:
    third = structs.replace(BUCKET, bucket=2)
    account = replace(ACCOUNT, before={**ACCOUNT.before, third: 9})
    account.check({**OFFSETS, third: 9}, FILES)
    with pytest.raises(
        RowCountError, match="bucket 7/2: offset 10 is to be committed; the rows that were counted end at 9"
    ):
        account.check({**OFFSETS, third: 10}, FILES)


def test_a_file_that_is_missing_is_an_error_with_both_counts() -> None:
    with pytest.raises(RowCountError, match="bucket 7/0, split b0-100: 8 records were read; 5 rows are in the 1 files"):
        ACCOUNT.check(OFFSETS, tuple(file for file in FILES if file.path != "b"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda share: replace(share, rows=9), "9 records were read; 7 rows are in the 2 files"),
        (
            lambda share: replace(share, left_out=0),
            "8 records were read; 7 rows .*, 0 records needed none and 0 do",
        ),
        (lambda share: replace(share, left_out=None, rows=6), "6 records were read; 7 rows"),
        (
            lambda share: replace(share, empty_offsets=1),
            "10 offsets from 100 to 110 .* 8 records .* 1 offsets hold none",
        ),
        (lambda share: replace(share, empty_offsets=None, rows=11, left_out=4), "10 offsets from 100 to 110"),
        (lambda share: replace(share, end=109), "9 offsets from 100 to 109"),
    ],
)
def test_rows_that_do_not_make_up_the_offsets_are_an_error(
    wrong: Callable[[SplitShare], SplitShare], said: str
) -> None:
    with pytest.raises(RowCountError, match=said):
        replace(ACCOUNT, shares=(wrong(SHARES[0]), *SHARES[1:])).check(OFFSETS, FILES)


def test_rows_of_a_snapshot_that_are_in_no_file_are_an_error() -> None:
    with pytest.raises(RowCountError, match="bucket 7/1, split b1-s3: 31 records were read; 30 rows"):
        replace(ACCOUNT, shares=(*SHARES[:2], replace(SHARES[2], rows=31))).check(OFFSETS, FILES)


def test_what_an_earlier_version_did_not_count_is_no_error() -> None:
    old = tuple(replace(share, left_out=None, empty_offsets=None) for share in SHARES)
    replace(ACCOUNT, shares=old).check(OFFSETS, FILES)


@pytest.mark.parametrize(
    ("files", "in_lake", "said"),
    [
        ((*FILES, FILES[0]), (), "committed twice, a first"),
        (FILES, ("a",), "committed twice, a first"),
        ((*FILES, a_file("x", 1)), (), "no split's, x first"),
    ],
)
def test_a_file_that_no_split_has_or_that_is_committed_already_is_an_error(
    files: tuple[LakeFile, ...], in_lake: tuple[str, ...], said: str
) -> None:
    with pytest.raises(RowCountError, match=said):
        replace(ACCOUNT, in_lake=frozenset(in_lake)).check(OFFSETS, files)


def test_an_offset_beyond_what_was_counted_is_an_error_with_both_offsets() -> None:
    with pytest.raises(
        RowCountError, match=r"bucket 7/0: offset 120 is to be committed; .* end at 115, the lake stands at 100"
    ):
        ACCOUNT.check({**OFFSETS, BUCKET: 120}, FILES)


def test_a_split_that_is_missing_between_two_others_is_an_error() -> None:
    with pytest.raises(RowCountError, match="split b0-110: starts at offset 110, the one before ends at 100"):
        replace(ACCOUNT, shares=SHARES[1:]).check(OFFSETS, FILES[2:])


class LossyConnection:
    """Sends something else of each finish than the subtask did."""

    def __init__(self, connection: Connection, loses: Callable[[WriteResult], WriteResult]) -> None:
        self._connection = connection
        self._loses = loses

    def send(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, SplitFinished):
            event = structs.replace(event, result=self._loses(event.result))
        self._connection.send(structs.replace(envelope, event=event))

    def close(self) -> None:
        self._connection.close()


class LossyTransport(SocketTransport):
    """Makes lossy connections."""

    def __init__(self, loses: Callable[[WriteResult], WriteResult]) -> None:
        super().__init__(SystemClock())
        self._loses = loses

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Connection:  # type: ignore[override] # any connection
        passing = Passing(receiver)
        connection = LossyConnection(super().connect(address, first, passing, after_s=after_s), self._loses)
        passing.connection.set_result(connection)
        return connection


class Passing:
    """Passes what arrives on to a receiver that knows the lossy connection alone, as soon as there is one."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.connection: Future[Connection] = Future()

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        del connection
        self._receiver.on_message(self.connection.result(), envelope)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        del connection
        self._receiver.on_disconnect(self.connection.result(), error)


def run_lossy(place: SubtaskPlace, loses: Callable[[WriteResult], WriteResult]) -> str:
    return Subtask(place, replace(real_ports(), transport=LossyTransport(loses))).run()


def one_row_less(result: WriteResult) -> WriteResult:
    return structs.replace(result, files=tuple(structs.replace(file, rows=file.rows - 1) for file in result.files))


def no_files(result: WriteResult) -> WriteResult:
    return structs.replace(result, files=())


@pytest.mark.parametrize("loses", [one_row_less, no_files])
def test_rows_that_are_lost_between_a_subtask_and_the_commit_suspend_the_table(
    world: World, loses: Callable[[WriteResult], WriteResult]
) -> None:
    log = world.table("log", buckets=1)
    world.load(log, 0, 20)
    ((path, reason),) = world.once(jobs=ThreadJobs(lambda place: run_lossy(place, loses))).failed
    assert (path, world.outcomes(log)) == (log, ["failed"])
    assert ", bucket " in reason
    assert "20 records were read" in reason
    head = world.lake.head(log)
    assert head is not None
    assert head.commit is None
    assert world.lake.files_on_disk(log) == set()
    assert world.once().failed == ()
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(20))
