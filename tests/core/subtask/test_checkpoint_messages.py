"""What a subtask does at a word on a checkpoint, at once, and what it puts into its part when it comes to it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from msgspec import structs

from lakeward.errors import IllegalEventError
from lakeward.model.checkpoints import SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    DeclineCheckpoint,
    Deploy,
    Open,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
)
from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.subtask.assigned_splits import AssignedSplits
from lakeward.subtask.checkpointing import Checkpointing, MakePart
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.no_exchange import NoExchange
from lakeward.subtask.part_store import PartWritten
from lakeward.subtask.run import real_ports
from lakeward_service_kit.checkpoint_values import LOG, reference, round_snapshot, subtask_snapshot
from lakeward_service_kit.links import RecordingLink
from lakeward_testing.lake_tables import log_table
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.hooks.plugins import SourcePlugin
    from lakeward.model.checkpoints import CheckpointRef, PartFile
    from lakeward.subtask.link import Link

RESULT = subtask_snapshot().blocked[0].result
DONE = SplitProgress.done(LOG, RESULT)
JOB = JobSpec("svc/1-1-1", 1, 1, "", "", "", "localhost", 1, b"", 16.0)


DEPLOY = Deploy(
    attempt=1, table=b"", source="", source_task=b"", lake="", lake_task=b"", fence_s=16.0, progress_s=1.0,
    checkpoint_ref=reference(),
)  # fmt: skip


class AnySource:
    """Reads nothing."""

    def reader(self, _task: bytes, _table: object) -> None:
        return None


class Attempt:
    """One attempt's checkpointing, with the test in the place of the receiving and of the mailbox thread."""

    def __init__(self, root: str, *, closed_for: int | None = None) -> None:
        self.link, self.mailbox = RecordingLink(), Mailbox()
        deploy = structs.replace(DEPLOY, checkpoint_root=root, gateway_closed=closed_for)
        link = cast("Link", self.link)
        self.checkpointing = Checkpointing(SubtaskPlace(JOB, 0, 0), deploy, link, real_ports(), self.mailbox)
        self.exchange = NoExchange(real_ports())

    def finish(self) -> None:
        self.checkpointing.finish(SplitFinished(result=RESULT), DONE)

    def cut(self) -> MakePart:
        """Come to the next cut in the mailbox."""
        cut = self.mailbox.get(0.0)
        assert isinstance(cut, MakePart)
        return cut

    def make_part(self, cut: MakePart) -> None:
        self.exchange.trigger(cut, self.checkpointing, progress=tuple)

    def answer(self) -> AckCheckpoint | DeclineCheckpoint:
        """Wait for what is said of a part."""
        written = self.mailbox.get(LIMIT_S)
        assert isinstance(written, PartWritten)
        self.checkpointing.part_written(written)
        return written.answer

    def part(self, cut: MakePart) -> tuple[SubtaskSnapshot, AckCheckpoint]:
        """Make the part; return what is stored, and the answer."""
        self.make_part(cut)
        answer = self.answer()
        assert isinstance(answer, AckCheckpoint)
        return answer.snapshot, answer


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(str(tmp_path))


def test_the_gateway_closes_and_opens_before_the_mailbox_comes_to_it(attempt: Attempt) -> None:
    attempt.checkpointing.on_message(Close(checkpoint=1))
    attempt.finish()
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    assert attempt.link.events == [AckClose(checkpoint=1, sent=0), SplitFinished(result=RESULT), Open(checkpoint=1)]


def test_a_finish_that_was_held_back_is_in_the_part_as_blocked(attempt: Attempt) -> None:
    attempt.checkpointing.on_message(Close(checkpoint=1))
    attempt.finish()
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    part, _ = attempt.part(attempt.cut())
    assert [one.result for one in part.blocked] == [RESULT]
    assert part.progress == ()


def test_a_split_that_ends_between_the_trigger_and_its_part_is_in_the_part_as_done(attempt: Attempt) -> None:
    attempt.checkpointing.on_message(Close(checkpoint=1))
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    attempt.finish()
    part, _ = attempt.part(attempt.cut())
    assert part.progress == (DONE,)
    assert part.blocked == ()


def test_a_finish_held_for_the_next_checkpoint_is_done_in_a_part_that_is_still_to_be_made(attempt: Attempt) -> None:
    for checkpoint in (1, 2):
        attempt.checkpointing.on_message(Close(checkpoint=checkpoint))
        if checkpoint == 2:
            attempt.finish()
        attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=checkpoint))
    (first, _), (second, _) = (attempt.part(cut) for cut in (attempt.cut(), attempt.cut()))
    assert (first.progress, first.blocked) == ((DONE,), ())
    assert (second.progress, [one.result for one in second.blocked]) == ((), [RESULT])


@pytest.mark.parametrize("end", [CheckpointAborted(checkpoint=1), CheckpointComplete(checkpoint=1)])
def test_the_end_of_an_older_checkpoint_lets_nothing_out(
    attempt: Attempt, end: CheckpointAborted | CheckpointComplete
) -> None:
    for checkpoint in (1, 2):
        attempt.checkpointing.on_message(Close(checkpoint=checkpoint))
    attempt.finish()
    attempt.checkpointing.on_message(end)
    assert attempt.link.events == [AckClose(checkpoint=1, sent=0), AckClose(checkpoint=2, sent=0)]
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=2))
    part, _ = attempt.part(attempt.cut())
    assert [one.result for one in part.blocked] == [RESULT]


def test_a_subtask_that_comes_in_the_midst_of_a_checkpoint_holds_its_finishes_for_it(tmp_path: Path) -> None:
    late = Attempt(str(tmp_path), closed_for=1)
    late.checkpointing.start()
    late.finish()
    assert late.link.events == []
    late.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    part, _ = late.part(late.cut())
    assert [one.result for one in part.blocked] == [RESULT]


def test_a_trigger_that_is_said_again_is_answered_again(attempt: Attempt) -> None:
    attempt.checkpointing.on_message(Close(checkpoint=1))
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    _, answer = attempt.part(attempt.cut())
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    assert attempt.link.events[-2:] == [answer, answer]
    assert attempt.mailbox.get(0.0) is None


def test_a_trigger_without_a_close_is_illegal_and_changes_nothing(attempt: Attempt) -> None:
    with pytest.raises(IllegalEventError):
        attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    assert attempt.link.events == []
    assert attempt.mailbox.get(0.0) is None


def test_who_has_left_says_nothing_more(attempt: Attempt) -> None:
    attempt.checkpointing.send_done()
    attempt.checkpointing.on_message(Close(checkpoint=1))
    assert attempt.link.events == [SubtaskDone()]


def test_the_end_waits_for_the_parts_of_earlier_checkpoints_as_well(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one would be stored once its round is over, and nobody would delete it."""
    closing, write = threading.Event(), CheckpointFiles.write_part

    def write_the_first_late(store: CheckpointFiles, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
        assert ref.number != 1 or closing.wait(LIMIT_S)
        return write(store, ref, snapshot)

    monkeypatch.setattr(CheckpointFiles, "write_part", write_the_first_late)
    attempt.make_part(MakePart(1))
    attempt.make_part(MakePart(2))
    assert isinstance(attempt.mailbox.get(LIMIT_S), PartWritten)
    threading.Timer(0.3, closing.set).start()
    attempt.checkpointing.store.close()
    assert {file.parent.name for file in tmp_path.rglob("part-*")} == {"chk-1", "chk-2"}


def test_where_no_place_for_checkpoints_is_named_they_are_declined() -> None:
    attempt = Attempt("")
    attempt.checkpointing.on_message(Close(checkpoint=1))
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    attempt.make_part(attempt.cut())
    assert isinstance(attempt.answer(), DeclineCheckpoint)
    assert isinstance(attempt.link.events[-1], DeclineCheckpoint)


def test_a_part_that_the_store_refuses_is_declined(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"a file where a folder is needed")
    attempt = Attempt(str(tmp_path / "state"))
    attempt.checkpointing.on_message(Close(checkpoint=1))
    attempt.checkpointing.on_message(TriggerCheckpoint(checkpoint=1))
    attempt.make_part(attempt.cut())
    assert isinstance(attempt.answer(), DeclineCheckpoint)


def test_the_files_of_a_split_that_waits_are_in_the_part() -> None:
    """Behind another one, and before it is begun: it may come with files of the attempt before."""
    attempt, table = Attempt(""), log_table()
    parts = replace(real_ports(), source=lambda _: cast("SourcePlugin", AnySource()))
    splits = AssignedSplits(DEPLOY, table, attempt.exchange, attempt.checkpointing, parts, attempt.mailbox)
    (half,) = round_snapshot(reference()).progress
    splits._waiting = [half]
    assert splits.roll() == (half,)
