"""A store that fails, throttles, tears or is used by two at once."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import CorruptFileError, LakewardError, OutcomeUnknownError, StorageError
from lakeward.model.checkpoints import CheckpointState
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import FileEntry, SmallFiles
from lakeward_service_kit.checkpoint_values import (
    FIRST,
    SECOND,
    SERVICE,
    reference,
    round_snapshot,
    subtask_snapshot,
    write_checkpoint,
    write_parts,
)
from lakeward_testing.clock import FakeClock
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.checkpoints import CheckpointRef, PartFile
    from lakeward.ports import CheckpointStore

pytestmark = pytest.mark.slow

REF = reference()
METADATA = f"svc/{REF}/_metadata"


class Failing(SmallFiles):
    """Files whose next operations of some kind fail, before or after they took effect."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.fail: dict[str, str] = {}

    def write(self, name: str, data: bytes) -> None:
        if self.fail.get("write") == "torn":
            super().write(name, data[: len(data) // 2])
        self._before("write", name)
        super().write(name, data)
        self._after("write", name)

    def read(self, name: str) -> bytes | None:
        self._before("read", name)
        return super().read(name)

    def delete(self, name: str) -> None:
        self._before("delete", name)
        super().delete(name)

    def entries(self, under: str) -> tuple[FileEntry, ...]:
        self._before("list", under)
        return super().entries(under)

    def _before(self, what: str, name: str) -> None:
        if self.fail.get(what) in {"before", "torn"}:
            message = f"{self.path(name)}: slow down"
            raise StorageError(message)

    def _after(self, what: str, name: str) -> None:
        if self.fail.get(what) == "after":
            message = f"{self.path(name)}: connection lost"
            raise StorageError(message)


@pytest.fixture
def files(tmp_path: Path) -> Failing:
    return Failing(tmp_path)


@pytest.fixture
def store(files: Failing) -> CheckpointFiles:
    return CheckpointFiles(files, FakeClock())


def complete(store: CheckpointStore, parts: tuple[PartFile, ...], ref: CheckpointRef = REF) -> int:
    return store.complete(ref, round_snapshot(ref), parts, None)


@pytest.mark.parametrize("how", ["before", "torn"])
def test_what_fails_in_its_last_step_never_completed_and_may_be_tried_again(
    store: CheckpointFiles, files: Failing, how: str
) -> None:
    parts = write_parts(store, REF)
    files.fail = {"write": how}

    with pytest.raises(StorageError, match="slow down"):
        complete(store, parts)

    files.fail = {}
    assert [info.state for info in store.list(SERVICE)] == [CheckpointState.UNFINISHED]
    complete(store, parts)
    assert store.load(REF).subtasks == (subtask_snapshot(0), subtask_snapshot(1))


def test_a_write_that_landed_though_its_answer_was_lost_has_completed(store: CheckpointFiles, files: Failing) -> None:
    parts = write_parts(store, REF)
    files.fail = {"write": "after"}

    size = complete(store, parts)

    assert store.load(REF).size_bytes == size


def test_what_can_neither_be_written_nor_read_is_unknown(store: CheckpointFiles, files: Failing) -> None:
    parts = write_parts(store, REF)
    files.fail = {"write": "after", "read": "before"}

    with pytest.raises(OutcomeUnknownError, match=r"connection lost; then .*slow down"):
        complete(store, parts)


def test_what_cannot_be_looked_at_again_has_not_completed(store: CheckpointFiles, files: Failing) -> None:
    """The second look fails: `_metadata` is taken back."""
    parts = write_parts(store, REF)
    looks = itertools.count()
    files.entries = lambda under: SmallFiles.entries(files, under) if next(looks) == 0 else _refuse()  # type: ignore[method-assign]  # fails at the second call

    with pytest.raises(StorageError, match="refused"):
        complete(store, parts)

    assert not (files.read(METADATA))


def test_what_cannot_be_looked_at_again_nor_taken_back_is_unknown(store: CheckpointFiles, files: Failing) -> None:
    parts = write_parts(store, REF)
    looks = itertools.count()
    files.entries = lambda under: SmallFiles.entries(files, under) if next(looks) == 0 else _refuse()  # type: ignore[method-assign]  # fails at the second call
    files.fail = {"delete": "before"}

    with pytest.raises(OutcomeUnknownError):
        complete(store, parts)


def _refuse() -> tuple[FileEntry, ...]:
    message = "refused"
    raise StorageError(message)


def test_an_unknown_one_that_was_abandoned_is_settled(store: CheckpointFiles, files: Failing) -> None:
    parts = write_parts(store, REF)
    files.fail = {"write": "after", "read": "before"}
    with pytest.raises(OutcomeUnknownError):
        complete(store, parts)

    files.fail = {}
    store.abandon(REF)

    assert store.newest(SERVICE, 7) is None


def test_what_cannot_be_read_is_not_taken_for_damaged_or_swept(store: CheckpointFiles, files: Failing) -> None:
    write_checkpoint(store, REF)
    files.fail = {"read": "before"}
    for look in (lambda: store.list(SERVICE), lambda: store.sweep(SECOND, ()), lambda: store.load(REF)):
        with pytest.raises(StorageError, match="slow down"):
            look()

    files.fail = {}
    assert store.load(REF).ref == REF


def test_a_deletion_that_fails_half_way_leaves_no_checkpoint_without_parts(
    store: CheckpointFiles, files: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(store, REF)
    monkeypatch.setattr(files, "delete_folder", lambda _: _refuse())

    with pytest.raises(StorageError):
        store.delete(REF)

    assert [info.state for info in store.list(SERVICE)] == [CheckpointState.UNFINISHED]


def test_a_slow_write_keeps_only_writes_of_its_own_file_waiting(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(SmallFiles):
        def _write(self, name: str, data: bytes) -> None:
            if data == b"slow":
                begun.set()
                assert go.wait(LIMIT_S)
            super()._write(name, data)

    files = Slow(str(tmp_path))
    threads = [threading.Thread(target=files.write, args=("svc/a", b"slow"))]
    threads[0].start()
    assert begun.wait(LIMIT_S)
    threads.append(threading.Thread(target=files.write, args=("svc/a", b"later")))
    threads[1].start()

    files.write("svc/b", b"x")

    assert files.read("svc/b") == b"x"
    assert files.read("svc/a") is None
    go.set()
    for thread in threads:
        thread.join()
    assert files.read("svc/a") == b"later"


# --- a sweep and a completion, in every order of their steps ------------------------------------------------------


class Stepped(SmallFiles):
    """Files whose every operation waits for its turn."""

    def __init__(self, root: Path, wait: Callable[[], None]) -> None:
        super().__init__(str(root))
        self._wait = wait

    def write(self, name: str, data: bytes) -> None:
        self._wait()
        super().write(name, data)

    def read(self, name: str) -> bytes | None:
        self._wait()
        return super().read(name)

    def delete(self, name: str) -> None:
        self._wait()
        super().delete(name)

    def delete_folder(self, name: str) -> None:
        self._wait()
        super().delete_folder(name)

    def entries(self, under: str) -> tuple[FileEntry, ...]:
        self._wait()
        return super().entries(under)


class Actor:
    """A thread that makes one step whenever it is told to."""

    def __init__(self, work: Callable[[Callable[[], None]], None]) -> None:
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self.over = False
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()
        self._stands.acquire()

    def step(self) -> None:
        self._go.release()
        self._stands.acquire()

    def _run(self, work: Callable[[Callable[[], None]], None]) -> None:
        try:
            work(self._wait)
        finally:
            self.over = True
            self._stands.release()

    def _wait(self) -> None:
        self._stands.release()
        self._go.acquire()

    def join(self) -> None:
        while not self.over:
            self.step()
        self._thread.join()


def orders(steps: int, switches: int) -> Iterator[tuple[int, ...]]:
    """Yield when the turn changes: every order of the two with so many changes at the most."""
    for count in range(switches + 1):
        yield from itertools.combinations(range(1, steps), count)


@pytest.mark.parametrize("first", ["complete", "sweep"])
@pytest.mark.parametrize("rival", ["sweep", "abandon"])
def test_in_no_order_of_steps_do_two_win(tmp_path: Path, first: str, rival: str) -> None:
    seen = set()
    for number, changes in enumerate(orders(12, 3), start=1):
        ref = reference(1, table_id=number)
        outside = CheckpointFiles(SmallFiles(str(tmp_path / str(number))), FakeClock())
        parts = write_parts(outside, ref)
        actors = ("complete", rival) if first == "complete" else (rival, "complete")
        outcome = _play(tmp_path / str(number), ref, parts, changes, actors)
        seen.add(outcome)

        completed, beaten = outcome
        assert not (completed and beaten and rival == "sweep")
        if completed and not beaten:
            assert outside.load(ref).ref == ref
        else:
            with pytest.raises(CorruptFileError):
                outside.load(ref)
            assert outside.newest(SERVICE, number) is None
    assert {(True, False), (False, True)} <= seen or rival == "abandon"
    assert (False, True) in seen


def _play(
    root: Path, ref: CheckpointRef, parts: tuple[PartFile, ...], changes: tuple[int, ...], names: tuple[str, str]
) -> tuple[bool, bool]:
    """Let both run, the turn changing after these steps; return whether it completed, and whether the rival won."""
    won = {"complete": False, "rival": False}

    def completing(wait: Callable[[], None]) -> None:
        with contextlib.suppress(LakewardError):
            won["complete"] = complete(CheckpointFiles(Stepped(root, wait), FakeClock()), parts, ref) > 0

    def rivalling(wait: Callable[[], None]) -> None:
        store = CheckpointFiles(Stepped(root, wait), FakeClock())
        if "abandon" in names:
            store.abandon(ref)
            won["rival"] = True
        else:
            won["rival"] = store.sweep(SECOND, ()) != ()

    actors = [Actor(completing if name == "complete" else rivalling) for name in names]
    turn = 0
    for step in itertools.count(1):
        if all(actor.over for actor in actors):
            break
        turn += step in changes
        actor = actors[turn % 2]
        (actors[(turn + 1) % 2] if actor.over else actor).step()
    for actor in actors:
        actor.join()
    return won["complete"], won["rival"]


def test_a_sweep_that_ends_in_the_middle_destroys_nothing_of_the_living(tmp_path: Path) -> None:
    """It wrote `_abandoned` to one that never completed, and died: the next one takes that away."""
    store = CheckpointFiles(SmallFiles(str(tmp_path)), FakeClock())
    write_parts(store, REF)
    write_checkpoint(store, reference(2))
    store.abandon(REF)

    assert store.sweep(FIRST, ()) == (REF,)
    assert [info.ref for info in store.list(SERVICE)] == [reference(2)]
