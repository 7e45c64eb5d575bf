"""What every place for checkpoints has to do. Subclass it with one fixture, which opens the place.

class TestMyStore(CheckpointStoreConformance):
__test__ = True

@pytest.fixture
def open_files(self, tmp_path: Path) -> Callable[[], SmallFiles]:
return lambda: SmallFiles(str(tmp_path))
"""

# ruff: noqa: S101 - a conformance suite asserts
from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.checkpoints import CheckpointState, LeaseCopy
from lakeward.model.exchange import KeptRows
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.testing.checkpoint_values import (
    FIRST,
    LEASE,
    PATH,
    SECOND,
    SERVICE,
    THIRD,
    batches,
    change_file,
    exchange_snapshot,
    file_name,
    newest_of,
    reference,
    round_snapshot,
    state_of,
    subtask_snapshot,
    write_checkpoint,
    write_exchange,
    write_parts,
    write_segment,
)
from lakeward.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.ports import CheckpointStore
    from lakeward.storage.small_files import SmallFiles

METADATA = "_metadata"


class CheckpointStoreConformance:
    """The suite. `store` and `elsewhere` are two openings of one place, as the driver's and a subtask's are."""

    __test__ = False

    races = 20
    """Times that a sweep and a completion are let loose on each other."""

    @pytest.fixture
    def open_files(self) -> Callable[[], SmallFiles]:
        """Return what opens the place, anew at each call; it is empty."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> FakeClock:
        """Return the clock of both openings."""
        return FakeClock()

    @pytest.fixture
    def files(self, open_files: Callable[[], SmallFiles]) -> SmallFiles:
        """Return the place itself, to damage it."""
        return open_files()

    @pytest.fixture
    def store(self, open_files: Callable[[], SmallFiles], clock: FakeClock) -> CheckpointStore:
        """Return the store."""
        return CheckpointFiles(open_files(), clock)

    @pytest.fixture
    def elsewhere(self, open_files: Callable[[], SmallFiles], clock: FakeClock) -> CheckpointStore:
        """Return the same store, as another process opens it."""
        return CheckpointFiles(open_files(), clock)

    # --- writing and reading --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("lease", [LEASE, LeaseCopy("ttl", "id", None), None], ids=["2", "2 no bytes", "1"])
    def test_a_checkpoint_is_read_back_as_it_was_written(
        self, store: CheckpointStore, elsewhere: CheckpointStore, clock: FakeClock, lease: LeaseCopy | None
    ) -> None:
        """Parts are written elsewhere, and it is restored elsewhere."""
        ref = reference()
        parts = write_parts(elsewhere, ref)
        size = store.complete(ref, round_snapshot(ref), parts, lease)

        found = elsewhere.load(ref)

        assert (found.ref, found.coordinator, found.lease) == (ref, round_snapshot(ref), lease)
        assert found.subtasks == (subtask_snapshot(0), subtask_snapshot(1))
        assert (found.completed_ms, found.size_bytes) == (clock.wall_ms(), size)

    def test_a_checkpoint_lies_where_it_is_said_to(self, store: CheckpointStore, files: SmallFiles) -> None:
        """The layout is a format: other tools may look at it."""
        written = write_checkpoint(store, reference(12))

        folder = f"svc/{FIRST}/7-3/chk-12"
        found = files.entries("svc")

        assert [entry.name for entry in found] == [f"{folder}/{name}" for name in (METADATA, "part-0-1", "part-1-1")]
        assert sum(entry.size_bytes for entry in found) == written.size_bytes

    def test_a_round_without_subtasks_has_a_checkpoint(self, store: CheckpointStore) -> None:
        """Everything may be in the coordinator's part."""
        written = write_checkpoint(store, reference(), subtasks=0)

        assert store.load(written.ref).subtasks == ()

    def test_a_part_that_is_written_again_is_replaced(self, store: CheckpointStore) -> None:
        """A write whose answer was lost is tried again."""
        ref = reference()
        first = store.write_part(ref, subtask_snapshot())
        assert store.write_part(ref, subtask_snapshot()) == first

        store.complete(ref, round_snapshot(ref), (first,), None)

        assert store.load(ref).subtasks == (subtask_snapshot(),)

    def test_a_part_of_a_lost_attempt_does_not_count(self, store: CheckpointStore) -> None:
        """Only what `_metadata` names belongs to the checkpoint."""
        ref = reference()
        store.write_part(ref, subtask_snapshot(0, attempt=1))
        second = store.write_part(ref, subtask_snapshot(0, attempt=2))

        store.complete(ref, round_snapshot(ref), (second,), None)

        assert store.load(ref).subtasks == (subtask_snapshot(0, attempt=2),)

    def test_it_does_not_complete_without_a_part(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Somebody swept it meanwhile."""
        ref = reference()
        parts = write_parts(store, ref)
        files.delete(file_name(ref, parts[1].name))

        with pytest.raises(StorageError, match=parts[1].name):
            store.complete(ref, round_snapshot(ref), parts, None)

        assert store.newest(SERVICE, 7) is None

    # --- the commit point -----------------------------------------------------------------------------------------

    def test_without_metadata_it_never_happened(self, store: CheckpointStore) -> None:
        """Its appearance is the commit point."""
        ref = reference()
        write_parts(store, ref)

        (info,) = store.list(SERVICE)

        assert (info.state, info.completed_ms, info.parts) == (CheckpointState.UNFINISHED, None, 2)
        assert store.newest(SERVICE, 7) is None
        with pytest.raises(CorruptFileError, match=f"{METADATA}: expected a completed checkpoint"):
            store.load(ref)

    @pytest.mark.parametrize("end", [0, 3, 7, 8, 40, -1])
    def test_with_a_torn_metadata_it_never_happened(self, store: CheckpointStore, files: SmallFiles, end: int) -> None:
        """Where a store tears files after all."""
        older = write_checkpoint(store, reference(1)).ref
        torn = write_checkpoint(store, reference(2)).ref
        change_file(files, file_name(torn, METADATA), lambda data: data[:end])

        assert [info.state for info in store.list(SERVICE)] == [CheckpointState.COMPLETE, CheckpointState.UNFINISHED]
        newest = store.newest(SERVICE, 7)
        assert newest is not None
        assert newest.ref == older
        with pytest.raises(CorruptFileError, match=f"chk-2/{METADATA}"):
            store.load(torn)

    def test_one_that_was_abandoned_cannot_complete(self, store: CheckpointStore, elsewhere: CheckpointStore) -> None:
        """A write that is still under way when its caller gives up must not count when it lands."""
        ref = reference()
        parts = write_parts(store, ref)
        elsewhere.abandon(ref)

        with pytest.raises(StorageError, match="given up"):
            store.complete(ref, round_snapshot(ref), parts, None)

        assert [info.state for info in store.list(SERVICE)] == [CheckpointState.UNFINISHED]

    def test_one_that_was_abandoned_does_not_count_though_it_landed(self, store: CheckpointStore) -> None:
        """The same, the other way round."""
        ref = write_checkpoint(store, reference()).ref

        store.abandon(ref)

        assert store.newest(SERVICE, 7) is None
        with pytest.raises(CorruptFileError, match="given up"):
            store.load(ref)

    # --- damage ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("name", [METADATA, "part-0-1", "part-1-1"])
    @pytest.mark.parametrize(
        "damage",
        [lambda data: data + b"\x00", lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], lambda _: b"x"],
        ids=["trailing", "flipped", "another"],
    )
    def test_damage_is_an_error_that_names_the_file(
        self, store: CheckpointStore, files: SmallFiles, name: str, damage: Callable[[bytes], bytes]
    ) -> None:
        """And it is not swept: a person may want to look."""
        ref = write_checkpoint(store, reference()).ref
        change_file(files, file_name(ref, name), damage)

        with pytest.raises(CorruptFileError) as caught:
            store.load(ref)

        assert caught.value.file.endswith(file_name(ref, name))
        assert store.sweep(SECOND, ()) == ()

    def test_a_part_that_is_missing_is_told_and_named(self, store: CheckpointStore, files: SmallFiles) -> None:
        """A list sees it too."""
        ref = write_checkpoint(store, reference()).ref
        files.delete(file_name(ref, "part-1-1"))

        (info,) = store.list(SERVICE)

        assert info.state is CheckpointState.DAMAGED
        assert "chk-1/part-1-1: expected " in info.message
        with pytest.raises(CorruptFileError, match="chk-1/part-1-1"):
            store.load(ref)

    def test_a_part_of_another_size_is_told_and_named(self, store: CheckpointStore, files: SmallFiles) -> None:
        """A list sees it without reading it."""
        ref = write_checkpoint(store, reference()).ref
        change_file(files, file_name(ref, "part-1-1"), lambda data: data[:-1])

        (info,) = store.list(SERVICE)

        assert info.state is CheckpointState.DAMAGED
        assert "chk-1/part-1-1: expected " in info.message

    def test_a_part_that_was_written_anew_after_all_is_damage(self, store: CheckpointStore) -> None:
        """A zombie writes the file of its attempt once more, as large as before."""
        ref = write_checkpoint(store, reference()).ref
        (progress,) = subtask_snapshot().progress
        store.write_part(ref, replace(subtask_snapshot(), progress=(replace(progress, position=1235),)))

        with pytest.raises(CorruptFileError, match=r"chk-1/part-0-1: expected checksum"):
            store.load(ref)

    def test_a_checkpoint_that_lies_in_anothers_place_is_refused(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Copied by hand, or a bug."""
        ref, stray = write_checkpoint(store, reference(1)).ref, reference(2)
        for entry in files.entries(SERVICE):
            data = files.read(entry.name)
            assert data is not None
            files.write(file_name(stray, entry.name.rpartition("/")[2]), data)

        with pytest.raises(CorruptFileError, match=r"chk-2/_metadata: expected `_metadata` of .*chk-2, found .*chk-1"):
            store.load(stray)
        assert store.load(ref).ref == ref

    # --- which one is the newest ----------------------------------------------------------------------------------

    def test_a_list_has_all_of_a_service_and_nothing_else(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Journals and states lie beside them."""
        write_checkpoint(store, reference(1))
        write_checkpoint(store, reference(1, table_id=8))
        files.write(f"svc/{FIRST}/7-3-1/journal", b"x")
        files.write(f"svc/{FIRST}/service.state", b"x")
        files.write("svc2/x", b"x")
        files.write("svc/svc2-1-00000000000000aa/7-3/chk-1/part-0-1", b"x")
        files.write("svc/elsewhere/7-3/chk-1/part-0-1", b"x")

        infos = store.list(SERVICE)

        assert [info.ref for info in infos] == [reference(1), reference(1, table_id=8)]
        assert [(info.path, info.parts, info.message) for info in infos] == [(PATH, 2, "")] * 2
        assert store.list("svc2") == store.list("nobody") == ()

    def test_the_higher_number_is_newer_whatever_the_clock_says(self, store: CheckpointStore, clock: FakeClock) -> None:
        """Clocks go back."""
        for number in (9, 10, 11):
            write_checkpoint(store, reference(number))
            clock.jump_wall(-3600)

        assert [info.ref.number for info in store.list(SERVICE)] == [9, 10, 11]
        assert newest_of(store) == reference(11)

    def test_a_later_start_is_newer_whatever_the_clock_says(self, store: CheckpointStore, clock: FakeClock) -> None:
        """Numbers begin anew with each start."""
        write_checkpoint(store, reference(5, FIRST))
        clock.jump_wall(-3600)
        write_checkpoint(store, reference(1, SECOND))

        assert newest_of(store) == reference(1, SECOND)

    def test_a_later_epoch_is_newer_where_epochs_begin_anew(self, store: CheckpointStore, clock: FakeClock) -> None:
        """A source may count from 0 after its restart."""
        write_checkpoint(store, reference(5, epoch=9))
        clock.advance(1)
        write_checkpoint(store, reference(1, epoch=0))

        assert newest_of(store) == reference(1, epoch=0)

    # --- deleting -------------------------------------------------------------------------------------------------

    def test_deleting_leaves_nothing_and_may_be_repeated(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Its neighbours stay."""
        write_checkpoint(store, reference(1))
        write_checkpoint(store, reference(2))

        store.delete(reference(1))
        store.delete(reference(1))

        assert [info.ref for info in store.list(SERVICE)] == [reference(2)]
        assert files.entries(f"svc/{FIRST}/7-3/chk-1") == ()

    def test_a_sweep_takes_what_never_completed(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Of earlier starts: without `_metadata`, torn, abandoned."""
        refs = [reference(number) for number in range(1, 5)]
        for ref in refs[1:]:
            write_checkpoint(store, ref)
        write_parts(store, refs[0])
        change_file(files, file_name(refs[1], METADATA), lambda data: data[:-1])
        store.abandon(refs[2])

        assert set(store.sweep(SECOND, ())) == set(refs[:3])

        assert [info.ref for info in store.list(SERVICE)] == [refs[3]]
        assert {entry.name.split("/")[3] for entry in files.entries(SERVICE)} == {"chk-4"}

    def test_a_sweep_spares_what_is_under_way(self, store: CheckpointStore) -> None:
        """What it was told of, what may have begun since, and a later start's."""
        live, gone, begun = reference(1, epoch=2), reference(1, epoch=3), reference(2, epoch=3)
        later = reference(1, SECOND)
        for ref in (live, gone, begun, later, reference(9, epoch=2)):
            write_parts(store, ref)

        assert store.sweep(FIRST, {live}) == (gone,)

    def test_a_sweep_leaves_other_services_alone(self, store: CheckpointStore) -> None:
        """Also one whose name begins the same."""
        other = type(FIRST)("svc.2", 1, "00000000000000aa")
        write_parts(store, reference(1, other))

        assert store.sweep(THIRD, ()) == ()
        assert len(store.list("svc.2")) == 1

    def test_a_sweep_and_a_completion_never_both_win(self, store: CheckpointStore, elsewhere: CheckpointStore) -> None:
        """A zombie completes while its successor sweeps."""
        for number in range(1, self.races + 1):
            ref = reference(number)
            parts = write_parts(store, ref)
            at_once = threading.Barrier(2)

            def complete(ref: CheckpointRef = ref, parts: tuple = parts, at_once: threading.Barrier = at_once) -> bool:  # type: ignore[type-arg]  # of PartFile
                at_once.wait()
                try:
                    return store.complete(ref, round_snapshot(ref), parts, None) > 0
                except StorageError:
                    return False

            with ThreadPoolExecutor(1) as pool:
                completing = pool.submit(complete)
                at_once.wait()
                swept = ref in elsewhere.sweep(SECOND, ())
                completed = completing.result()

            assert not (swept and completed)
            if completed:
                assert store.load(ref).ref == ref
            else:
                assert state_of(store, ref) in {None, CheckpointState.UNFINISHED}

    def test_retaining_keeps_the_newest_whole_ones(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Damaged ones do not count, and go with those that are older; what is under way stays."""
        old, damaged_old, kept, damaged_new, newest = (reference(number) for number in range(1, 6))
        for ref in (old, damaged_old, kept, damaged_new, newest):
            write_checkpoint(store, ref)
        for ref in (damaged_old, damaged_new):
            files.delete(file_name(ref, "part-0-1"))
        write_parts(store, reference(6))
        write_checkpoint(store, reference(1, table_id=8))

        assert store.retain(FIRST, 7, 2) == (old, damaged_old)
        assert store.retain(FIRST, 7, 2) == ()

        left = [info.ref for info in store.list(SERVICE)]
        assert left == [kept, damaged_new, newest, reference(6), reference(1, table_id=8)]

    def test_retaining_keeps_an_earlier_starts_until_there_are_enough(self, store: CheckpointStore) -> None:
        """It is what a restore that fails would come back to."""
        write_checkpoint(store, reference(8, FIRST))
        write_checkpoint(store, reference(1, SECOND))

        assert store.retain(SECOND, 7, 2) == ()
        assert store.retain(SECOND, 7, 1) == (reference(8, FIRST),)

    def test_retaining_deletes_nothing_for_a_start_that_was_overtaken(self, store: CheckpointStore) -> None:
        """Its successor may have gone on from any of them, and may keep more than it did."""
        refs = [*(reference(number, FIRST) for number in (1, 2)), *(reference(number, SECOND) for number in (1, 2))]
        for ref in refs:
            write_checkpoint(store, ref)

        assert store.retain(FIRST, 7, 1) == ()
        assert [info.ref for info in store.list(SERVICE)] == refs
        assert store.retain(SECOND, 7, 1) == tuple(refs[:-1])

    def test_retaining_deletes_nothing_once_a_later_start_has_written_its_state(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """It may have read one back, and name the rows of that one in a checkpoint of its own."""
        refs = [reference(number, FIRST) for number in (1, 2)]
        for ref in refs:
            write_checkpoint(store, ref)
        files.write(f"{SERVICE}/{SECOND}/service.state", b"any")

        assert store.retain(FIRST, 7, 1) == ()
        assert [info.ref for info in store.list(SERVICE)] == refs

    # --- rows beside checkpoints ----------------------------------------------------------------------------------

    def test_rows_are_read_back_as_they_were_written(
        self, store: CheckpointStore, elsewhere: CheckpointStore, files: SmallFiles
    ) -> None:
        """A subtask writes them, another one reads them; where they lie is a format."""
        segment = elsewhere.write_segment(reference(12), "12-0-1-7.arrow", iter(batches(3, 0, 2)))

        assert list(store.read_segment(segment)) == list(batches(3, 0, 2))
        (entry,) = files.entries(SERVICE)
        assert entry.name == segment.name == f"svc/{FIRST}/7-3/segments/12-0-1-7.arrow"
        assert (segment.rows, segment.size_bytes) == (5, entry.size_bytes)

    def test_what_a_subtask_of_an_exchange_holds_is_read_back(self, store: CheckpointStore) -> None:
        """Files, counts, open rows and channels."""
        ref = reference()
        segments = (write_segment(store, ref, 1), write_segment(store, ref, 2))
        write_exchange(store, ref, *segments)

        (found,) = store.load(ref).subtasks

        assert found == exchange_snapshot(*segments)
        assert found.exchange is not None
        assert found.exchange.segments() == segments

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[: len(data) // 2],
            lambda data: data[:-1],
            lambda data: data[:-8],
            lambda _: b"",
            lambda data: data.replace(b"name 1", b"name 2", 1),
            lambda data: data + b"\x00",
            lambda _: b"x" * 100,
        ],
        ids=["half", "a byte less", "no end", "empty", "flipped", "trailing", "another"],
    )
    def test_damaged_rows_are_an_error_that_names_the_file(
        self, store: CheckpointStore, files: SmallFiles, damage: Callable[[bytes], bytes]
    ) -> None:
        """Batches before the damage may be given out; none that is not as it was written."""
        segment = write_segment(store, reference())
        change_file(files, segment.name, damage)
        found: list[object] = []

        with pytest.raises(CorruptFileError) as caught:
            found.extend(store.read_segment(segment))

        assert caught.value.file.endswith(segment.name)
        assert found == list(batches(3, 2))[: len(found)]

    def test_missing_rows_are_an_error_that_names_the_file(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Somebody deleted them."""
        segment = write_segment(store, reference())
        files.delete(segment.name)

        with pytest.raises(CorruptFileError, match=r"segments/1-0-1-1\.arrow: expected .* bytes, found 'no such"):
            list(store.read_segment(segment))

    def test_a_checkpoint_whose_rows_are_gone_or_cut_off_is_found_out_without_reading_them(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """See the name."""
        ref = reference()
        write_exchange(store, ref, write_segment(store, ref, 1), write_segment(store, ref, 2))
        checkpoint = store.load(ref)
        store.check_segments(checkpoint)
        name = f"svc/{FIRST}/7-3/segments/1-0-1-2.arrow"
        size = len(files.read(name) or b"")
        files.write(name, b"too short")
        with pytest.raises(CorruptFileError, match=rf"segments/1-0-1-2\.arrow: expected {size} bytes, found '9 bytes'"):
            store.check_segments(checkpoint)
        files.delete(name)
        with pytest.raises(CorruptFileError, match=r"segments/1-0-1-2\.arrow: expected .*, found 'no such file'"):
            store.check_segments(checkpoint)

    def test_retaining_keeps_rows_that_a_checkpoint_refers_to_or_may_refer_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Rows of a file that is still open are stored once, and later checkpoints refer to them."""
        shared, closed = write_segment(store, reference(1), 1), write_segment(store, reference(1), 2)
        write_exchange(store, reference(1), shared, closed)
        second = write_segment(store, reference(2))
        write_exchange(store, reference(2), shared, second)
        running = write_segment(store, reference(3))
        other = write_segment(store, reference(1, table_id=8))

        assert store.retain(FIRST, 7, 1) == (reference(1),)

        assert _segments(files) == {shared.name, second.name, running.name, other.name}

    def test_rows_of_an_earlier_start_go_with_its_last_checkpoint(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """They were written anew by the start that went on from them."""
        old = write_segment(store, reference(5, FIRST))
        write_exchange(store, reference(5, FIRST), old)
        new = write_segment(store, reference(1, SECOND))
        write_exchange(store, reference(1, SECOND), new)

        store.retain(SECOND, 7, 2)
        assert _segments(files) == {old.name, new.name}

        store.retain(SECOND, 7, 1)
        assert _segments(files) == {new.name}

    def test_rows_of_an_earlier_start_stay_while_a_later_checkpoint_names_a_share_of_them(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """One that is taken during a recovery does; they go with the last one that does."""
        old, written = write_segment(store, reference(5, FIRST), 1), write_segment(store, reference(5, FIRST), 2)
        write_exchange(store, reference(5, FIRST), old, written)
        share = msgspec.structs.replace(old, kept=KeptRows(0, 64, 2, 3))
        write_exchange(store, reference(1, SECOND), share)

        assert store.retain(SECOND, 7, 1) == (reference(5, FIRST),)
        assert _segments(files) == {old.name}
        store.check_segments(store.load(reference(1, SECOND)))
        store.sweep(SECOND, ())
        store.sweep(THIRD, ())
        store.delete_rows(reference(1, SECOND))
        assert _segments(files) == {old.name}

        write_exchange(store, reference(2, SECOND))
        assert store.retain(SECOND, 7, 1) == (reference(1, SECOND),)
        assert _segments(files) == set()

    def test_deleting_the_last_checkpoint_that_names_a_share_deletes_rows_of_earlier_starts(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Also if both are of one table, and the earlier one is deleted first."""
        old = write_segment(store, reference(5, FIRST))
        write_exchange(store, reference(5, FIRST), old)
        write_exchange(store, reference(1, SECOND), msgspec.structs.replace(old, kept=KeptRows(0, 64, 0, 5)))

        store.delete(reference(5, FIRST))
        assert _segments(files) == {old.name}
        store.delete(reference(1, SECOND))
        assert _segments(files) == set()

    def test_rows_of_an_earlier_start_stay_while_a_later_checkpoint_is_damaged_and_go_with_a_sweep(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """What a damaged checkpoint names is not known."""
        old = write_segment(store, reference(5, FIRST))
        write_exchange(store, reference(1, SECOND), msgspec.structs.replace(old, kept=KeptRows(0, 64, 0, 5)))
        data = files.read(file_name(reference(1, SECOND), "part-0-1")) or b""
        files.write(file_name(reference(1, SECOND), "part-0-1"), data[:-1] + b"x")
        store.sweep(SECOND, ())
        assert _segments(files) == {old.name}

        store.delete(reference(1, SECOND))
        store.sweep(SECOND, ())
        assert _segments(files) == set()

    def test_deleting_a_tables_only_checkpoint_deletes_its_rows(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Its round is over."""
        write_exchange(store, reference(2), write_segment(store, reference(1)), write_segment(store, reference(2)))

        store.delete(reference(2))

        assert files.entries(SERVICE) == ()

    def test_deleting_a_running_rounds_only_checkpoint_leaves_rows_that_the_next_one_refers_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """A person deletes it; the subtasks do not know, and store the rows of their open files once."""
        shared = write_segment(store, reference(1))
        write_exchange(store, reference(1), shared, write_segment(store, reference(1), 2))
        store.delete(reference(1), keep_segments=True)
        assert {info.ref for info in store.list(SERVICE)} == set()

        write_exchange(store, reference(2), shared)
        write_exchange(store, reference(3), shared)
        store.retain(FIRST, 7, 1)

        assert list(store.read_segment(shared)) == list(batches(3, 2))
        assert _segments(files) == {shared.name}, "what nothing refers to any more goes as always"

    def test_deleting_an_aborted_checkpoint_leaves_rows_that_the_next_one_refers_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Also where none has completed yet: what a subtask has stored of an open file it does not store again."""
        shared = write_segment(store, reference(1))
        store.write_part(reference(1), exchange_snapshot(shared))
        store.delete(reference(1))
        assert _segments(files) == {shared.name}

        write_exchange(store, reference(2), shared)

        assert list(store.read_segment(shared)) == list(batches(3, 2))

    def test_a_sweep_takes_rows_of_earlier_starts_that_no_checkpoint_can_refer_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Those of a start with a whole checkpoint, of this start and of a later one stay."""
        write_segment(store, reference(1, FIRST))
        store.write_part(reference(2, FIRST), exchange_snapshot(write_segment(store, reference(2, FIRST))))
        kept = write_segment(store, reference(2, FIRST, epoch=2))
        write_exchange(store, reference(2, FIRST, epoch=2), kept)
        ours, later = write_segment(store, reference(1, SECOND)), write_segment(store, reference(1, THIRD))

        assert store.sweep(SECOND, ()) == (reference(2, FIRST),)

        assert _segments(files) == {kept.name, ours.name, later.name}

    def test_a_sweep_leaves_the_rows_of_a_checkpoint_that_is_under_way(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """An aborted one before it is swept."""
        shared, fresh = write_segment(store, reference(1)), write_segment(store, reference(2))
        store.write_part(reference(1), exchange_snapshot(shared))
        store.write_part(reference(2), exchange_snapshot(shared, fresh))

        assert store.sweep(FIRST, ()) == (reference(1),)

        assert _segments(files) == {shared.name, fresh.name}

    def test_when_a_round_is_over_rows_go_that_no_whole_checkpoint_refers_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Those of its own checkpoints: the next round of the epoch may have stored some already."""
        kept, aborted = write_segment(store, reference(1)), write_segment(store, reference(2))
        write_exchange(store, reference(1), kept)
        store.write_part(reference(2), exchange_snapshot(aborted))
        late, following = write_segment(store, reference(3)), write_segment(store, reference(4))
        others = write_segment(store, reference(1, table_id=8)), write_segment(store, reference(1, SECOND))

        store.delete_rows(reference(3))

        assert _segments(files) == {kept.name, following.name, *(other.name for other in others)}
        assert late.name not in _segments(files)

    def test_rows_of_a_round_without_a_whole_checkpoint_go_with_it(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Also if there are none."""
        write_segment(store, reference(1))

        store.delete_rows(reference(1))
        store.delete_rows(reference(1))

        assert _segments(files) == set()

    def test_no_rows_are_deleted_while_a_checkpoint_is_damaged(self, store: CheckpointStore, files: SmallFiles) -> None:
        """A person may want to look at it."""
        kept = {write_segment(store, reference(1)).name, write_segment(store, reference(2)).name}
        for number in (1, 2, 3):
            write_exchange(store, reference(number))
        files.delete(file_name(reference(2), "part-0-1"))
        write_exchange(store, reference(4))

        assert store.retain(FIRST, 7, 3) == ()
        store.delete_rows(reference(4))
        store.delete(reference(1))

        assert _segments(files) == kept


def _segments(files: SmallFiles) -> set[str]:
    return {entry.name for entry in files.entries(SERVICE) if "/segments/" in entry.name}
