"""The suite for lakes says what is wrong with a lake that breaks one promise of the port."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import FencedError
from lakeward.model.results import CommitIds, CommitOutcome, LakeHead
from lakeward.model.tables import CHANGE_COLUMN, Change
from lakeward_service_kit.suites import failures, plain_part
from lakeward_service_kit.wrong_writers import BoastfulWriter, ForgetfulWriter
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin, FolderOptions, FolderWriter
from lakeward_testing.lake_conformance import LakeConformance
from lakeward_testing.lake_tables import TieringRound, incarnation

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitRequest
    from lakeward.model.splits import Split
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Clock, SourceBatch


KEPT = 20
"""Snapshots that an expiry keeps."""


@dataclass
class CompleteLake(FolderLake):
    """The folder lake with what it leaves out: it expires snapshots, and a commit says when it was made."""

    clock: Clock = field(default_factory=FakeClock)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        outcome = super().commit(request)
        with self._state(request.path) as state:
            for entry in state["log"]:
                if entry["id"] == request.ids.snapshot_id:
                    entry["made_ms"] = self.clock.wall_ms()
        return outcome

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """The next snapshot that stays takes over the files of those that go."""
        with self._state(path) as state:
            log = state["log"]
            commits = [entry["id"] for entry in log if "offsets" in entry]
            spared = {*keep, *commits[-1:], *(entry["id"] for entry in log[-KEPT:])}
            state["log"], files = [], []
            for entry in log:
                files += entry.get("files", ())
                if entry["id"] in spared:
                    state["log"].append(entry | {"files": files})
                    files = []
            return len(log) - len(state["log"])

    def _head(self, path: TablePath) -> LakeHead:
        head = super()._head(path)
        if head.commit is None:
            return head
        with self._state(path) as state:
            made_ms = {entry["id"]: entry.get("made_ms", 0) for entry in state["log"]}
        commit = replace(head.commit, timestamp_ms=made_ms[head.commit.snapshot_id])
        return replace(head, commit=commit, own=commit)


class ExpiresWhatHasToBeKept(CompleteLake):
    """Snapshots that a caller still needs are expired."""

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        return super().expire(path, frozenset())


class ExpiresNothing(CompleteLake):
    """The table's snapshots become more for ever."""

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        return 0


class TellsTheTimeInSeconds(CompleteLake):
    """Each commit seems to be decades old."""

    def _head(self, path: TablePath) -> LakeHead:
        head = super()._head(path)
        if head.commit is None:
            return head
        return replace(head, commit=replace(head.commit, timestamp_ms=head.commit.timestamp_ms // 1000))


class ChoosesTheSameIdsAgain(FolderLake):
    """A commit cannot be told from the one before."""

    def new_ids(self, path: TablePath) -> CommitIds:
        return CommitIds("00", 4711)


class ChoosesTheSameSnapshotIdAgain(FolderLake):
    """A commit has a uuid of its own, and the snapshot id of the one before."""

    def new_ids(self, path: TablePath) -> CommitIds:
        return replace(super().new_ids(path), snapshot_id=4711)


class StampsLateStartsToo(FolderLake):
    """An earlier start takes the table back from a later one."""

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        try:
            return super().stamp(path, incarnation)
        except FencedError:
            return self._head(path)


class StampsEachTime(FolderLake):
    """Each stamp is a snapshot, also where the start has the table already."""

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        with self._state(path) as state:
            state["log"].append({"id": len(state["log"]) + 1, "stamp": str(incarnation)})
        return self._head(path)


class CommitsWithoutALook(FolderLake):
    """It does not ask who has the table before it commits."""

    def commit(self, request: CommitRequest) -> CommitOutcome:
        head = self.head(request.path)
        assert head is not None
        base = None if head.commit is None else head.commit.snapshot_id
        return super().commit(replace(request, incarnation=head.stamp or request.incarnation, base_commit=base))


class CallsAFenceAConflict(FolderLake):
    """A conflict is built again, a fence never: the core must know which it was."""

    def commit(self, request: CommitRequest) -> CommitOutcome:
        try:
            return super().commit(request)
        except FencedError:
            return CommitOutcome.CONFLICT


class ForgetsOffsets(FolderLake):
    """A commit without the offsets of the source."""

    def commit(self, request: CommitRequest) -> CommitOutcome:
        return super().commit(replace(request, offsets={}))


class FindsNoCommit(FolderLake):
    """A round whose answer was lost cannot find out that it landed."""

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        return None


class FindsACommitOfAnotherRound(FolderLake):
    """Any commit is taken for one's own."""

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        head = self.head(path)
        return None if head is None or head.commit is None else head.commit.snapshot_id


class InventsAHead(FolderLake):
    """A table that is not there has a head."""

    def head(self, path: TablePath) -> LakeHead | None:
        return super().head(path) or LakeHead(path, 0, str(self.root), None, None, None, None)


class FailsToDeleteTwice(FolderLake):
    """A file that is gone already is an error."""

    def delete(self, files: Collection[str]) -> None:
        for file in files:
            Path(file).unlink()


class ReferencesWhateverItIsAskedFor(FolderLake):
    """Files that no commit names are kept for ever."""

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        return frozenset(files)


class ListsOtherRoundsToo(FolderLake):
    """Round 1 is taken for round 10, whose files are then deleted with it."""

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:
        found = sorted((self.root / str(path)).rglob("*.arrow"))
        return tuple(str(file) for file in found if str(file).startswith(prefix))


class _Writes(FolderLakePlugin):
    """A right lake with a writer that is wrong."""

    wrong: type[FolderWriter] = FolderWriter

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> FolderWriter:
        writer = super().writer(task, table, split, attempt, progress)
        writer.__class__ = self.wrong
        return writer


class _LosesARow(FolderWriter):
    def write(self, batch: SourceBatch) -> None:
        super().write(replace(batch, records=batch.records.slice(1)))


class LosesARow(_Writes):
    """The first record of each batch is lost."""

    wrong = _LosesARow


class _IgnoresDeletes(FolderWriter):
    def write(self, batch: SourceBatch) -> None:
        place = batch.records.schema.get_field_index(CHANGE_COLUMN)
        kind = pa.repeat(pa.scalar(Change.INSERT, pa.uint8()), batch.records.num_rows)
        super().write(replace(batch, records=batch.records.set_column(place, CHANGE_COLUMN, kind)))


class IgnoresDeletes(_Writes):
    """Deleted rows stay."""

    wrong = _IgnoresDeletes


class _LeavesFilesBehind(FolderWriter):
    def abort(self) -> None:
        return


class LeavesFilesBehind(_Writes):
    """An aborted writer leaves what it wrote."""

    wrong = _LeavesFilesBehind


class ForgetsTheFilesBefore(_Writes):
    """A writer that goes on from a checkpoint returns its own files alone."""

    wrong = ForgetfulWriter


class SaysThatAllIsFlushed(_Writes):
    """A checkpoint would then name rows that are in no file."""

    wrong = BoastfulWriter


class _Plugin(FolderLakePlugin):
    def __init__(self, lake: type[FolderLake]) -> None:
        self._lake = lake

    def open(self, options: FolderOptions, clock: Clock) -> FolderLake:
        return self._lake(Path(options.path), target_bytes=options.target_bytes)


WRONG: list[tuple[type, str, str]] = [
    (
        ExpiresWhatHasToBeKept,
        "test_expiry_keeps_what_is_needed_and_every_row",
        "expire of a table of 40 commits, .*: expected the second to find more than 0 .*, found 21 and then 0",
    ),
    (
        ExpiresNothing,
        "test_expiry_keeps_what_is_needed_and_every_row",
        "expire of a table of 40 commits, .*: expected the second to find more than 0 .*, found 0 and then 0",
    ),
    (
        TellsTheTimeInSeconds,
        "test_the_time_of_a_commit_is_in_ms_since_1970",
        r"head after a commit: timestamp_ms .*: expected .* in ms since 1970, .*, found 1700000000$",
    ),
    (
        ChoosesTheSameIdsAgain,
        "test_the_ids_of_each_commit_are_new",
        "new_ids, called twice: expected another uuid than that of the first call, found '00' again",
    ),
    (
        ChoosesTheSameSnapshotIdAgain,
        "test_the_ids_of_each_commit_are_new",
        "new_ids, called twice: expected another snapshot_id than that of the first call, found 4711 again",
    ),
    (
        StampsLateStartsToo,
        "test_a_later_start_takes_the_stamp_and_an_earlier_one",
        "stamp by an earlier start, where a later one has stamped: expected FencedError, found no error",
    ),
    (
        StampsEachTime,
        "test_stamping_twice_makes_one_snapshot",
        "stamp, called twice by one start: the second snapshot id: expected 1, found 2",
    ),
    (
        CommitsWithoutALook,
        "test_a_committer_is_fenced_by_a_successor_that_has_only",
        "commit by a start whose successor has stamped: expected FencedError, found no error",
    ),
    (
        CallsAFenceAConflict,
        "test_a_committer_is_fenced_by_a_successor_that_has_comm",
        "commit by a start whose successor has committed: expected FencedError, found no error",
    ),
    (
        ForgetsOffsets,
        "test_a_commit_is_found_with_its_offsets_and_rows",
        "head after a commit: offsets of the newest commit: expected {TableBucket.*, found {}$",
    ),
    (
        FindsNoCommit,
        "test_a_round_finds_its_own_commit_and_no_other",
        r"find, after the round's commit: id of its snapshot: expected \d+, found None",
    ),
    (
        FindsACommitOfAnotherRound,
        "test_a_round_finds_its_own_commit_and_no_other",
        r"find of a step that the round has not committed: expected None, found \d+",
    ),
    (
        InventsAHead,
        "test_a_table_that_is_not_there_has_no_head",
        r"head of a table that is not there: expected None, found LakeHead\(",
    ),
    (
        FailsToDeleteTwice,
        "test_deleting_takes_a_file_away_and_a_missing_one_is_no_error",
        "delete of a file that is gone already: expected no error, found FileNotFoundError: ",
    ),
    (
        ReferencesWhateverItIsAskedFor,
        "test_only_committed_files_are_referenced",
        "referenced of a committed and an uncommitted file: expected frozenset.*, found frozenset",
    ),
    (
        ListsOtherRoundsToo,
        "test_files_lie_under_the_prefix_of_their_round_alone",
        "list_prefix, after rounds 1 and 10 wrote; the prefix is that of 1: expected .*/7-1-1/.*, found .*/7-1-10/",
    ),
    (
        LosesARow,
        "test_a_commit_is_found_with_its_offsets_and_rows",
        "writer: expected each of its 2 records to be a row .*, found 2 records: 1 rows, 0 left out",
    ),
    (
        IgnoresDeletes,
        "test_a_round_that_deletes_unknown_keys_changes_no_row",
        "commit of a DELETE of a key that the table does not have: rows of the table .*: expected 0, found 1",
    ),
    (
        LeavesFilesBehind,
        "test_an_aborted_writer_leaves_nothing",
        r"list_prefix, after a writer was aborted: expected \(\), found \('.*\.arrow',\)",
    ),
    (
        ForgetsTheFilesBefore,
        "test_a_writer_that_takes_nothing_more_returns_what_was_there",
        r"close of a writer that goes on from a checkpoint .*: files: expected \(LakeFile\(.*, found \(\)$",
    ),
    (
        SaysThatAllIsFlushed,
        "test_a_file_below_half_its_target_size_stays_open_at_a_checkpoint",
        r"all_rows_flushed, before and after a write .*: expected \[True, False\], found \[True, True\]",
    ),
]


def verdicts(wrong: type, wanted: str, place: Path) -> dict[str, str]:
    """Run tests of the suite on a lake, or on a plugin; each case in a folder of its own."""
    made = 0

    def fixtures() -> dict[str, Any]:
        nonlocal made
        made += 1
        folder = place / str(made)
        folder.mkdir()
        plugin: Any = _Plugin(wrong) if issubclass(wrong, FolderLake) else wrong()

        def opened(target_bytes: int) -> FolderLake:
            lake: FolderLake = plugin.open(FolderOptions(path=str(folder), target_bytes=target_bytes), FakeClock())
            return lake

        lake = opened(1000)

        def begin(table: TableSpec, started_ms: int = 1000, number: int = 1) -> TieringRound:
            return TieringRound(plugin, lake, table, incarnation(started_ms), number)

        def read(path: TablePath) -> pa.Table:
            return pa.Table.from_pylist(lake.read(path, "id"))

        return {
            "plugin": plugin,
            "lake": lake,
            "begin": begin,
            "read_table": read,
            "sized": opened,
            "options": FolderOptions(path=str(folder)),
        }

    return failures(LakeConformance, fixtures, wanted)


@pytest.mark.parametrize("test", sorted({test for _, test, _ in WRONG}))
def test_the_suite_finds_nothing_wrong_with_a_right_lake(test: str, tmp_path: Path) -> None:
    assert verdicts(CompleteLake, test, tmp_path) == {}


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_lake_that(wrong: type, test: str, message: str, tmp_path: Path) -> None:
    (said,) = verdicts(wrong, test, tmp_path).values()
    assert re.search(message, plain_part(said)), said


def test_there_is_a_mistake_for_each_wrong_lake() -> None:
    known = {*FolderLake.__subclasses__(), *CompleteLake.__subclasses__(), *_Writes.__subclasses__()} - {CompleteLake}
    assert {wrong for wrong, _, _ in WRONG} == {one for one in known if one.__module__ == __name__}
