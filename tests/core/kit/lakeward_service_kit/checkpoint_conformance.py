"""What every place for checkpoints has to do: a subclass gives the fixture `open_files`, which opens the place."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.checkpoints import CheckpointState, LeaseCopy
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward_service_kit.checkpoint_rows import CheckpointRowsConformance
from lakeward_service_kit.checkpoint_values import (
    FIRST,
    LEASE,
    PATH,
    SECOND,
    SERVICE,
    THIRD,
    change_file,
    check,
    check_end,
    check_text,
    file_name,
    newest_of,
    only,
    reference,
    round_snapshot,
    state_of,
    subtask_snapshot,
    write_checkpoint,
    write_parts,
)
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, mismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.ports import CheckpointStore
    from lakeward.storage.small_files import SmallFiles

METADATA = "_metadata"


class CheckpointStoreConformance(CheckpointRowsConformance):
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

        where = "load, elsewhere, of a completed checkpoint"
        check(f"{where}: its name", ref, found.ref)
        check(f"{where}: the coordinator's part", round_snapshot(ref), found.coordinator)
        check(f"{where}: the lease", lease, found.lease)
        check(f"{where}: parts of its subtasks", (subtask_snapshot(0), subtask_snapshot(1)), found.subtasks)
        check(f"{where}: time and size", (clock.wall_ms(), size), (found.completed_ms, found.size_bytes))

    def test_a_checkpoint_lies_where_it_is_said_to(self, store: CheckpointStore, files: SmallFiles) -> None:
        """The layout is a format: other tools may look at it."""
        written = write_checkpoint(store, reference(12))

        folder = f"svc/{FIRST}/7-3/chk-12"
        found = files.entries("svc")

        names = [f"{folder}/{name}" for name in (METADATA, "part-0-1", "part-1-1")]
        check("complete: files of the checkpoint", names, [entry.name for entry in found])
        check("complete: size that it returned", sum(entry.size_bytes for entry in found), written.size_bytes)

    def test_a_round_without_subtasks_has_a_checkpoint(self, store: CheckpointStore) -> None:
        """Everything may be in the coordinator's part."""
        written = write_checkpoint(store, reference(), subtasks=0)

        check("load of a checkpoint without subtasks: their parts", (), store.load(written.ref).subtasks)

    def test_a_part_that_is_written_again_is_replaced(self, store: CheckpointStore) -> None:
        """A write whose answer was lost is tried again."""
        ref = reference()
        first = store.write_part(ref, subtask_snapshot())
        check("write_part of the same part again: file", first, store.write_part(ref, subtask_snapshot()))

        store.complete(ref, round_snapshot(ref), (first,), None)

        check("load, after a part was written twice: parts", (subtask_snapshot(),), store.load(ref).subtasks)

    def test_a_part_of_a_lost_attempt_does_not_count(self, store: CheckpointStore) -> None:
        """Only what `_metadata` names belongs to the checkpoint."""
        ref = reference()
        store.write_part(ref, subtask_snapshot(0, attempt=1))
        second = store.write_part(ref, subtask_snapshot(0, attempt=2))

        store.complete(ref, round_snapshot(ref), (second,), None)

        check(
            "load, after two attempts of a subtask wrote: parts",
            (subtask_snapshot(0, attempt=2),),
            store.load(ref).subtasks,
        )

    def test_it_does_not_complete_without_a_part(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Somebody swept it meanwhile."""
        ref = reference()
        parts = write_parts(store, ref)
        files.delete(file_name(ref, parts[1].name))

        with expect_error(StorageError, "complete, where a part is gone", parts[1].name):
            store.complete(ref, round_snapshot(ref), parts, None)

        check("newest, after a completion that failed", None, store.newest(SERVICE, 7))

    # --- the commit point -----------------------------------------------------------------------------------------

    def test_without_metadata_it_never_happened(self, store: CheckpointStore) -> None:
        """Its appearance is the commit point."""
        ref = reference()
        write_parts(store, ref)

        info = only("list, where parts are there without `_metadata`", store.list(SERVICE))

        found = (info.state, info.completed_ms, info.parts)
        check(
            "list of a checkpoint without `_metadata`: state, time, parts", (CheckpointState.UNFINISHED, None, 2), found
        )
        check("newest, where the only checkpoint has no `_metadata`", None, store.newest(SERVICE, 7))
        with expect_error(
            CorruptFileError, "load of a checkpoint without `_metadata`", f"{METADATA}: expected a completed checkpoint"
        ):
            store.load(ref)

    @pytest.mark.parametrize("end", [0, 3, 7, 8, 40, -1])
    def test_with_a_torn_metadata_it_never_happened(self, store: CheckpointStore, files: SmallFiles, end: int) -> None:
        """Where a store tears files after all."""
        older = write_checkpoint(store, reference(1)).ref
        torn = write_checkpoint(store, reference(2)).ref
        change_file(files, file_name(torn, METADATA), lambda data: data[:end])

        states = [CheckpointState.COMPLETE, CheckpointState.UNFINISHED]
        check(
            "list, where the second `_metadata` is torn: states", states, [info.state for info in store.list(SERVICE)]
        )
        check("newest, where a later `_metadata` is torn", older, newest_of(store))
        with expect_error(CorruptFileError, "load of a checkpoint whose `_metadata` is torn", f"chk-2/{METADATA}"):
            store.load(torn)

    def test_one_that_was_abandoned_cannot_complete(self, store: CheckpointStore, elsewhere: CheckpointStore) -> None:
        """A write that is still under way when its caller gives up must not count when it lands."""
        ref = reference()
        parts = write_parts(store, ref)
        elsewhere.abandon(ref)

        with expect_error(StorageError, "complete of a checkpoint that was abandoned", "given up"):
            store.complete(ref, round_snapshot(ref), parts, None)

        check(
            "list, after the completion of an abandoned checkpoint: states",
            [CheckpointState.UNFINISHED],
            [info.state for info in store.list(SERVICE)],
        )

    def test_one_that_was_abandoned_does_not_count_though_it_landed(self, store: CheckpointStore) -> None:
        """The same, the other way round."""
        ref = write_checkpoint(store, reference()).ref

        store.abandon(ref)

        check("newest, where the only checkpoint was abandoned", None, store.newest(SERVICE, 7))
        with expect_error(CorruptFileError, "load of a checkpoint that was abandoned", "given up"):
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

        with expect_error(CorruptFileError, f"load, where {name} is damaged") as caught:
            store.load(ref)

        check_end(f"load, where {name} is damaged: file that the error names", file_name(ref, name), caught.value.file)
        check("sweep, where a checkpoint is damaged: what it deleted", (), store.sweep(SECOND, ()))

    def test_a_part_that_is_missing_is_told_and_named(self, store: CheckpointStore, files: SmallFiles) -> None:
        """A list sees it too."""
        ref = write_checkpoint(store, reference()).ref
        files.delete(file_name(ref, "part-1-1"))

        info = only("list, where a part is gone", store.list(SERVICE))

        check("list, where a part is gone: state", CheckpointState.DAMAGED, info.state)
        check_text("list, where a part is gone: message", "chk-1/part-1-1: expected ", info.message)
        with expect_error(CorruptFileError, "load, where a part is gone", "chk-1/part-1-1"):
            store.load(ref)

    def test_a_part_of_another_size_is_told_and_named(self, store: CheckpointStore, files: SmallFiles) -> None:
        """A list sees it without reading it."""
        ref = write_checkpoint(store, reference()).ref
        change_file(files, file_name(ref, "part-1-1"), lambda data: data[:-1])

        info = only("list, where a part has another size", store.list(SERVICE))

        check("list, where a part has another size: state", CheckpointState.DAMAGED, info.state)
        check_text("list, where a part has another size: message", "chk-1/part-1-1: expected ", info.message)

    def test_a_part_that_was_written_anew_after_all_is_damage(self, store: CheckpointStore) -> None:
        """A zombie writes the file of its attempt once more, as large as before."""
        ref = write_checkpoint(store, reference()).ref
        (progress,) = subtask_snapshot().progress
        store.write_part(ref, structs.replace(subtask_snapshot(), progress=(structs.replace(progress, position=1235),)))

        with expect_error(
            CorruptFileError,
            "load, where a part was written anew after the completion",
            r"chk-1/part-0-1: expected checksum",
        ):
            store.load(ref)

    def test_a_checkpoint_that_lies_in_anothers_place_is_refused(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Copied by hand, or a bug."""
        ref, stray = write_checkpoint(store, reference(1)).ref, reference(2)
        for entry in files.entries(SERVICE):
            data = files.read(entry.name)
            assert data is not None, f"read of a file that was listed, {entry.name}: expected bytes, found None"
            files.write(file_name(stray, entry.name.rpartition("/")[2]), data)

        match = r"chk-2/_metadata: expected `_metadata` of .*chk-2, found .*chk-1"
        with expect_error(CorruptFileError, "load of a checkpoint whose files were copied from another one", match):
            store.load(stray)
        check("load of the checkpoint whose files were copied: its name", ref, store.load(ref).ref)

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

        check(
            "list of a service, beside other files: checkpoints",
            [reference(1), reference(1, table_id=8)],
            [info.ref for info in infos],
        )
        check(
            "list of a service: table, parts and message of each",
            [(PATH, 2, "")] * 2,
            [(info.path, info.parts, info.message) for info in infos],
        )
        for name in ("svc2", "nobody"):
            check(f"list of service {name}, which has no checkpoint", (), store.list(name))

    def test_the_higher_number_is_newer_whatever_the_clock_says(self, store: CheckpointStore, clock: FakeClock) -> None:
        """Clocks go back."""
        for number in (9, 10, 11):
            write_checkpoint(store, reference(number))
            clock.jump_wall(-3600)

        check(
            "list, where the clock went back: numbers", [9, 10, 11], [info.ref.number for info in store.list(SERVICE)]
        )
        check("newest, where the clock went back between numbers", reference(11), newest_of(store))

    def test_a_later_start_is_newer_whatever_the_clock_says(self, store: CheckpointStore, clock: FakeClock) -> None:
        """Numbers begin anew with each start."""
        write_checkpoint(store, reference(5, FIRST))
        clock.jump_wall(-3600)
        write_checkpoint(store, reference(1, SECOND))

        check("newest, where the clock went back between starts", reference(1, SECOND), newest_of(store))

    def test_a_later_epoch_is_newer_where_epochs_begin_anew(self, store: CheckpointStore, clock: FakeClock) -> None:
        """A source may count from 0 after its restart."""
        write_checkpoint(store, reference(5, epoch=9))
        clock.advance(1)
        write_checkpoint(store, reference(1, epoch=0))

        check("newest, where epochs began anew", reference(1, epoch=0), newest_of(store))

    # --- deleting -------------------------------------------------------------------------------------------------

    def test_deleting_leaves_nothing_and_may_be_repeated(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Its neighbours stay."""
        write_checkpoint(store, reference(1))
        write_checkpoint(store, reference(2))

        store.delete(reference(1))
        store.delete(reference(1))

        check("list, after a delete: checkpoints", [reference(2)], [info.ref for info in store.list(SERVICE)])
        check("delete, twice: files that are left", (), files.entries(f"svc/{FIRST}/7-3/chk-1"))

    def test_a_sweep_takes_what_never_completed(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Of earlier starts: without `_metadata`, torn, abandoned."""
        refs = [reference(number) for number in range(1, 5)]
        for ref in refs[1:]:
            write_checkpoint(store, ref)
        write_parts(store, refs[0])
        change_file(files, file_name(refs[1], METADATA), lambda data: data[:-1])
        store.abandon(refs[2])

        check("sweep by a later start: what it deleted", set(refs[:3]), set(store.sweep(SECOND, ())))

        check("list, after a sweep: checkpoints", [refs[3]], [info.ref for info in store.list(SERVICE)])
        check("sweep: folders that are left", {"chk-4"}, {entry.name.split("/")[3] for entry in files.entries(SERVICE)})

    def test_a_sweep_spares_what_is_under_way(self, store: CheckpointStore) -> None:
        """What it was told of, what may have begun since, and a later start's."""
        live, gone, begun = reference(1, epoch=2), reference(1, epoch=3), reference(2, epoch=3)
        later = reference(1, SECOND)
        for ref in (live, gone, begun, later, reference(9, epoch=2)):
            write_parts(store, ref)

        check("sweep, told of one that is under way: what it deleted", (gone,), store.sweep(FIRST, {live}))

    def test_a_sweep_leaves_other_services_alone(self, store: CheckpointStore) -> None:
        """Also one whose name begins the same."""
        other = type(FIRST)("svc.2", 1, "00000000000000aa")
        write_parts(store, reference(1, other))

        check("sweep, where another service's name begins the same: what it deleted", (), store.sweep(THIRD, ()))
        check("list of the other service, after the sweep: checkpoints", 1, len(store.list("svc.2")))

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

            both = swept and completed
            assert not both, f"sweep and complete at once, try {number}: expected one of them to win, found both did"
            if completed:
                check("load of a checkpoint that completed during a sweep: its name", ref, store.load(ref).ref)
            else:
                state, allowed = state_of(store, ref), (None, CheckpointState.UNFINISHED)
                said = mismatch("list, after a sweep won against a completion: state, one of", allowed, state)
                assert state in allowed, said

    def test_retaining_keeps_the_newest_whole_ones(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Damaged ones do not count, and go with those that are older; what is under way stays."""
        old, damaged_old, kept, damaged_new, newest = (reference(number) for number in range(1, 6))
        for ref in (old, damaged_old, kept, damaged_new, newest):
            write_checkpoint(store, ref)
        for ref in (damaged_old, damaged_new):
            files.delete(file_name(ref, "part-0-1"))
        write_parts(store, reference(6))
        write_checkpoint(store, reference(1, table_id=8))

        check("retain 2, with damaged ones between: what it deleted", (old, damaged_old), store.retain(FIRST, 7, 2))
        check("retain 2 once more: what it deleted", (), store.retain(FIRST, 7, 2))

        left = [info.ref for info in store.list(SERVICE)]
        check(
            "list, after retain 2: checkpoints",
            [kept, damaged_new, newest, reference(6), reference(1, table_id=8)],
            left,
        )

    def test_retaining_keeps_an_earlier_starts_until_there_are_enough(self, store: CheckpointStore) -> None:
        """It is what a restore that fails would come back to."""
        write_checkpoint(store, reference(8, FIRST))
        write_checkpoint(store, reference(1, SECOND))

        check("retain 2, one of them of an earlier start: what it deleted", (), store.retain(SECOND, 7, 2))
        check(
            "retain 1, where an earlier start has one, too: what it deleted",
            (reference(8, FIRST),),
            store.retain(SECOND, 7, 1),
        )

    def test_retaining_deletes_nothing_for_a_start_that_was_overtaken(self, store: CheckpointStore) -> None:
        """Its successor may have gone on from any of them, and may keep more than it did."""
        refs = [*(reference(number, FIRST) for number in (1, 2)), *(reference(number, SECOND) for number in (1, 2))]
        for ref in refs:
            write_checkpoint(store, ref)

        check("retain by a start that was overtaken: what it deleted", (), store.retain(FIRST, 7, 1))
        check(
            "list, after retain by a start that was overtaken: checkpoints",
            refs,
            [info.ref for info in store.list(SERVICE)],
        )
        check("retain by the latest start: what it deleted", tuple(refs[:-1]), store.retain(SECOND, 7, 1))

    def test_retaining_deletes_nothing_once_a_later_start_has_written_its_state(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """It may have read one back, and name the rows of that one in a checkpoint of its own."""
        refs = [reference(number, FIRST) for number in (1, 2)]
        for ref in refs:
            write_checkpoint(store, ref)
        files.write(f"{SERVICE}/{SECOND}/service.state", b"any")

        check("retain, where a later start has written its state: what it deleted", (), store.retain(FIRST, 7, 1))
        check(
            "list, where a later start has written its state: checkpoints",
            refs,
            [info.ref for info in store.list(SERVICE)],
        )
