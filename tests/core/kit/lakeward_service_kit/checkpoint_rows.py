"""What every place for checkpoints has to do with rows beside them: of files that are open, and of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import CorruptFileError
from lakeward.model.exchange import KeptRows
from lakeward_service_kit.checkpoint_values import (
    FIRST,
    SECOND,
    SERVICE,
    THIRD,
    batches,
    change_file,
    check,
    check_end,
    check_rows,
    exchange_snapshot,
    file_name,
    only,
    reference,
    write_exchange,
    write_segment,
)
from lakeward_testing.expectations import expect_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import CheckpointStore
    from lakeward.storage.small_files import SmallFiles


class CheckpointRowsConformance:
    """Part of `CheckpointStoreConformance`, whose fixtures it uses."""

    __test__ = False

    def test_rows_are_read_back_as_they_were_written(
        self, store: CheckpointStore, elsewhere: CheckpointStore, files: SmallFiles
    ) -> None:
        """A subtask writes them, another one reads them; where they lie is a format."""
        segment = elsewhere.write_segment(reference(12), "12-0-1-7.arrow", iter(batches(3, 0, 2)))

        check("read_segment, elsewhere: batches", list(batches(3, 0, 2)), list(store.read_segment(segment)))
        entry = only("write_segment: files", files.entries(SERVICE))
        name = f"svc/{FIRST}/7-3/segments/12-0-1-7.arrow"
        check("write_segment: names of the file and of what it returned", (name, name), (entry.name, segment.name))
        check(
            "write_segment: rows and size that it returned", (5, entry.size_bytes), (segment.rows, segment.size_bytes)
        )

    def test_what_a_subtask_of_an_exchange_holds_is_read_back(self, store: CheckpointStore) -> None:
        """Files, counts, open rows and channels."""
        ref = reference()
        segments = (write_segment(store, ref, 1), write_segment(store, ref, 2))
        write_exchange(store, ref, *segments)

        found = only("load of an exchange with one subtask: parts", store.load(ref).subtasks)

        check("load of an exchange: the subtask's part", exchange_snapshot(*segments), found)
        assert found.exchange is not None, "load of an exchange: expected the state of the exchange, found None"
        check("load of an exchange: segments that the part names", segments, found.exchange.segments())

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

        with expect_error(CorruptFileError, "read_segment of damaged rows") as caught:
            found.extend(store.read_segment(segment))

        check_end("read_segment of damaged rows: file that the error names", segment.name, caught.value.file)
        check("read_segment of damaged rows: batches before the error", list(batches(3, 2))[: len(found)], found)

    def test_missing_rows_are_an_error_that_names_the_file(self, store: CheckpointStore, files: SmallFiles) -> None:
        """Somebody deleted them."""
        segment = write_segment(store, reference())
        files.delete(segment.name)

        with expect_error(
            CorruptFileError,
            "read_segment of rows that are gone",
            r"segments/1-0-1-1\.arrow: expected .* bytes, found 'no such",
        ):
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
        match = rf"segments/1-0-1-2\.arrow: expected {size} bytes, found '9 bytes'"
        with expect_error(CorruptFileError, "check_segments, where rows are cut off", match):
            store.check_segments(checkpoint)
        files.delete(name)
        match = r"segments/1-0-1-2\.arrow: expected .*, found 'no such file'"
        with expect_error(CorruptFileError, "check_segments, where rows are gone", match):
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

        check(
            "retain 1, where the kept one shares rows with the older one: what it deleted",
            (reference(1),),
            store.retain(FIRST, 7, 1),
        )

        check_rows(
            "retain 1, where the kept one shares rows with the older one",
            {shared.name, second.name, running.name, other.name},
            files,
        )

    def test_rows_of_an_earlier_start_go_with_its_last_checkpoint(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """They were written anew by the start that went on from them."""
        old = write_segment(store, reference(5, FIRST))
        write_exchange(store, reference(5, FIRST), old)
        new = write_segment(store, reference(1, SECOND))
        write_exchange(store, reference(1, SECOND), new)

        store.retain(SECOND, 7, 2)
        check_rows("retain 2, one of them of an earlier start", {old.name, new.name}, files)

        store.retain(SECOND, 7, 1)
        check_rows("retain 1, where an earlier start had one, too", {new.name}, files)

    def test_rows_of_an_earlier_start_stay_while_a_later_checkpoint_names_a_share_of_them(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """One that is taken during a recovery does; they go with the last one that does."""
        old, written = write_segment(store, reference(5, FIRST), 1), write_segment(store, reference(5, FIRST), 2)
        write_exchange(store, reference(5, FIRST), old, written)
        share = msgspec.structs.replace(old, kept=KeptRows(0, 64, 2, 3))
        write_exchange(store, reference(1, SECOND), share)

        removed = store.retain(SECOND, 7, 1)
        check(
            "retain 1, where it names a share of an earlier start's rows: what it deleted",
            (reference(5, FIRST),),
            removed,
        )
        check_rows("retain 1, where it names a share of an earlier start's rows", {old.name}, files)
        store.check_segments(store.load(reference(1, SECOND)))
        store.sweep(SECOND, ())
        store.sweep(THIRD, ())
        store.delete_rows(reference(1, SECOND))
        check_rows(
            "sweeps and delete_rows, where a checkpoint names a share of an earlier start's rows", {old.name}, files
        )

        write_exchange(store, reference(2, SECOND))
        removed = store.retain(SECOND, 7, 1)
        check("retain 1, where the newest names no share: what it deleted", (reference(1, SECOND),), removed)
        check_rows("retain 1, where the newest names no share of an earlier start's rows", set(), files)

    def test_deleting_the_last_checkpoint_that_names_a_share_deletes_rows_of_earlier_starts(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Also if both are of one table, and the earlier one is deleted first."""
        old = write_segment(store, reference(5, FIRST))
        write_exchange(store, reference(5, FIRST), old)
        write_exchange(store, reference(1, SECOND), msgspec.structs.replace(old, kept=KeptRows(0, 64, 0, 5)))

        store.delete(reference(5, FIRST))
        check_rows(
            "delete of an earlier start's checkpoint, of whose rows a later one names a share", {old.name}, files
        )
        store.delete(reference(1, SECOND))
        check_rows("delete of the last checkpoint that names a share of an earlier start's rows", set(), files)

    def test_rows_of_an_earlier_start_stay_while_a_later_checkpoint_is_damaged_and_go_with_a_sweep(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """What a damaged checkpoint names is not known."""
        old = write_segment(store, reference(5, FIRST))
        write_exchange(store, reference(1, SECOND), msgspec.structs.replace(old, kept=KeptRows(0, 64, 0, 5)))
        data = files.read(file_name(reference(1, SECOND), "part-0-1")) or b""
        files.write(file_name(reference(1, SECOND), "part-0-1"), data[:-1] + b"x")
        store.sweep(SECOND, ())
        check_rows("sweep, where the checkpoint that names the rows is damaged", {old.name}, files)

        store.delete(reference(1, SECOND))
        store.sweep(SECOND, ())
        check_rows("sweep, after the damaged checkpoint was deleted", set(), files)

    def test_deleting_a_tables_only_checkpoint_deletes_its_rows(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Its round is over."""
        write_exchange(store, reference(2), write_segment(store, reference(1)), write_segment(store, reference(2)))

        store.delete(reference(2))

        check("delete of a table's only checkpoint: files that are left", (), files.entries(SERVICE))

    def test_deleting_a_running_rounds_only_checkpoint_leaves_rows_that_the_next_one_refers_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """A person deletes it; the subtasks do not know, and store the rows of their open files once."""
        shared = write_segment(store, reference(1))
        write_exchange(store, reference(1), shared, write_segment(store, reference(1), 2))
        store.delete(reference(1), keep_segments=True)
        check("list, after a delete that keeps rows: checkpoints", set(), {info.ref for info in store.list(SERVICE)})

        write_exchange(store, reference(2), shared)
        write_exchange(store, reference(3), shared)
        store.retain(FIRST, 7, 1)

        check(
            "read_segment, after a delete that keeps rows, two checkpoints and retain: batches",
            list(batches(3, 2)),
            list(store.read_segment(shared)),
        )
        check_rows("retain, after a delete that kept rows; what nothing refers to goes as always", {shared.name}, files)

    def test_deleting_an_aborted_checkpoint_leaves_rows_that_the_next_one_refers_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Also where none has completed yet: what a subtask has stored of an open file it does not store again."""
        shared = write_segment(store, reference(1))
        store.write_part(reference(1), exchange_snapshot(shared))
        store.delete(reference(1))
        check_rows("delete of an aborted checkpoint", {shared.name}, files)

        write_exchange(store, reference(2), shared)

        check(
            "read_segment, after the checkpoint that stored the rows was deleted: batches",
            list(batches(3, 2)),
            list(store.read_segment(shared)),
        )

    def test_a_sweep_takes_rows_of_earlier_starts_that_no_checkpoint_can_refer_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Those of a start with a whole checkpoint, of this start and of a later one stay."""
        write_segment(store, reference(1, FIRST))
        store.write_part(reference(2, FIRST), exchange_snapshot(write_segment(store, reference(2, FIRST))))
        kept = write_segment(store, reference(2, FIRST, epoch=2))
        write_exchange(store, reference(2, FIRST, epoch=2), kept)
        ours, later = write_segment(store, reference(1, SECOND)), write_segment(store, reference(1, THIRD))

        check("sweep by a later start: what it deleted", (reference(2, FIRST),), store.sweep(SECOND, ()))

        check_rows("sweep by a later start", {kept.name, ours.name, later.name}, files)

    def test_a_sweep_leaves_the_rows_of_a_checkpoint_that_is_under_way(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """An aborted one before it is swept."""
        shared, fresh = write_segment(store, reference(1)), write_segment(store, reference(2))
        store.write_part(reference(1), exchange_snapshot(shared))
        store.write_part(reference(2), exchange_snapshot(shared, fresh))

        check(
            "sweep by the start itself, where a later one is under way: what it deleted",
            (reference(1),),
            store.sweep(FIRST, ()),
        )

        check_rows("sweep by the start itself, where a later one is under way", {shared.name, fresh.name}, files)

    def test_when_a_round_is_over_rows_go_that_no_whole_checkpoint_refers_to(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Those of its own checkpoints: the next round of the epoch may have stored some already."""
        kept, aborted = write_segment(store, reference(1)), write_segment(store, reference(2))
        write_exchange(store, reference(1), kept)
        store.write_part(reference(2), exchange_snapshot(aborted))
        write_segment(store, reference(3))
        following = write_segment(store, reference(4))
        others = write_segment(store, reference(1, table_id=8)), write_segment(store, reference(1, SECOND))

        store.delete_rows(reference(3))

        check_rows(
            "delete_rows of a round that is over", {kept.name, following.name, *(other.name for other in others)}, files
        )

    def test_rows_of_a_round_without_a_whole_checkpoint_go_with_it(
        self, store: CheckpointStore, files: SmallFiles
    ) -> None:
        """Also if there are none."""
        write_segment(store, reference(1))

        store.delete_rows(reference(1))
        store.delete_rows(reference(1))

        check_rows("delete_rows of a round without a whole checkpoint, twice", set(), files)

    def test_no_rows_are_deleted_while_a_checkpoint_is_damaged(self, store: CheckpointStore, files: SmallFiles) -> None:
        """A person may want to look at it."""
        kept = {write_segment(store, reference(1)).name, write_segment(store, reference(2)).name}
        for number in (1, 2, 3):
            write_exchange(store, reference(number))
        files.delete(file_name(reference(2), "part-0-1"))
        write_exchange(store, reference(4))

        check("retain, where a checkpoint is damaged: what it deleted", (), store.retain(FIRST, 7, 3))
        store.delete_rows(reference(4))
        store.delete(reference(1))

        check_rows("retain, delete_rows and delete, where a checkpoint is damaged", kept, files)
