"""Mutants of what is around the machine `recovery`: each puts one known bug of recoveries back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.coordinator.rounds import gang
from lakeward.model.events import DeployRecovery
from lakeward.subtask.exchange import recovering, spilled_rows
from lakeward.subtask.exchange.checkpoint_part import ExchangePart
from lakeward.subtask.exchange.draining import SpillDrain
from lakeward.subtask.exchange.exchange_work import ExchangeWork
from lakeward.subtask.exchange.items import MarkReceived, PieceRestored, SpillSealed
from lakeward.subtask.exchange.outputs import Outputs
from lakeward.subtask.exchange.recovering import RowsRecovery
from lakeward.subtask.exchange.restoring import Restoration
from lakeward.subtask.exchange.routing import Routing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    import pytest

    from lakeward.model.checkpoints import SubtaskSnapshot
    from lakeward.model.events import Deploy
    from lakeward.model.exchange import ExchangeState, Segment
    from lakeward.model.settings import CheckpointSettings
    from lakeward.model.tables import TableSpec
    from lakeward.ports import ChannelSender
    from lakeward.storage.spill_reader import Chunk, Position
    from lakeward.subtask.checkpointing import Checkpointing
    from lakeward.subtask.exchange.items import ExchangeItem, RestoredItem
    from lakeward.subtask.exchange.spilled_rows import RestoredChannel, RowPlace, SpilledPiece
    from lakeward.subtask.ports import OutputLimits


def bug_1_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is delivered stays in the spill's rest as well."""
    monkeypatch.setattr(SpillDrain, "_commit", lambda _self, _reader, _piece: None)


def bug_1_commits_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and not delivered is in neither part."""
    begin = SpillDrain.begin

    def wrong(self: SpillDrain) -> None:
        begin(self)
        reader, found = self._reader, self._pieces
        assert reader is not None

        def committed() -> Iterator[SpilledPiece]:
            for piece in found:
                self._commit(reader, piece)
                yield piece

        self._pieces = committed()

    monkeypatch.setattr(SpillDrain, "begin", wrong)


def bug_7_sends_before_it_has_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers start with a whole window."""
    init = Outputs.__init__

    def wrong(
        self: Outputs, senders: Sequence[ChannelSender], routing: Routing, limits: OutputLimits, *, granted: bool
    ) -> None:
        del granted
        init(self, senders, routing, limits)

    monkeypatch.setattr(Outputs, "__init__", wrong)


def bug_12_swallows_what_cannot_be_spilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the worker is nobody's."""
    take = RowsRecovery.take

    def wrong(self: RowsRecovery, item: RestoredItem) -> None:
        take(self, SpillSealed() if isinstance(item, SpillSealed) else item)

    monkeypatch.setattr(RowsRecovery, "take", wrong)


def bug_12_takes_an_error_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spill that cannot be read has no more rows."""
    take = RowsRecovery.take

    def wrong(self: RowsRecovery, item: RestoredItem) -> None:
        take(self, PieceRestored(item.piece) if isinstance(item, PieceRestored) else item)

    monkeypatch.setattr(RowsRecovery, "take", wrong)


def bug_14_hears_no_mark_while_it_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers wait behind the restored rows."""
    take = ExchangeWork.take

    def wrong(self: ExchangeWork, item: ExchangeItem) -> None:
        if isinstance(item, MarkReceived) and not self._restored.done:
            self._mailbox.put(item)
        else:
            take(self, item)

    monkeypatch.setattr(ExchangeWork, "take", wrong)


def bug_15_keeps_the_spill_of_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that is done gives no spill back."""
    monkeypatch.setattr(SpillDrain, "release", lambda _self: None)


def bug_18_cuts_a_batch_where_a_segment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the next segment is taken for the next batch."""

    def wrong(_read: Callable[[int], Chunk | None], first: Chunk | None, _size: int) -> tuple[bytes, Position]:
        assert first is not None
        return bytes(first.data), first.end

    monkeypatch.setattr(spilled_rows, "_exactly", wrong)


def bug_19_ends_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask whose channels have ended finishes, whatever is still to be recovered."""
    write_on = ExchangeWork._write_on

    def wrong(self: ExchangeWork) -> None:
        restored, deployed = self._restored, self._deployed
        if deployed is not None and deployed.inputs.ended and deployed.outputs.ended:
            self._restored = Restoration()
        write_on(self)
        self._restored = restored

    monkeypatch.setattr(ExchangeWork, "_write_on", wrong)


def bug_22_knows_one_kind_of_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of open files are not read back."""
    channels_of = spilled_rows.channels_of

    def wrong(states: Sequence[ExchangeState]) -> tuple[RestoredChannel, ...]:
        return tuple(one for one in channels_of(states) if not one.counted)

    monkeypatch.setattr(recovering, "channels_of", wrong)


def bug_11_spills_though_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature that is off looks for directories."""
    begin = ExchangeWork.begin

    def wrong(self: ExchangeWork, deploy: Deploy, table: TableSpec, checkpointing: Checkpointing) -> None:
        assert deploy.exchange is not None
        recovery = DeployRecovery(spill_dirs=[], spill_quota_bytes=1 << 30, memory_bytes=1)
        exchange = msgspec.structs.replace(deploy.exchange, recovery=recovery)
        begin(self, msgspec.structs.replace(deploy, exchange=exchange), table, checkpointing)

    monkeypatch.setattr(ExchangeWork, "begin", wrong)


def bug_21_needs_no_unaligned_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The feature is on though no checkpoint may be unaligned."""
    recovery = gang._recovery

    def wrong(checkpoint: CheckpointSettings) -> DeployRecovery | None:
        return recovery(msgspec.structs.replace(checkpoint, unaligned=True))

    monkeypatch.setattr(gang, "_recovery", wrong)


def stores_live_rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of restored rows comes behind what channels brought meanwhile."""
    store = ExchangePart.store

    def wrong(
        self: ExchangePart, subtask: int, task_attempt: int, write: Callable[[Iterator[pa.RecordBatch]], Segment]
    ) -> SubtaskSnapshot:
        found = store(self, subtask, task_attempt, write)
        assert found.exchange is not None
        channels = tuple(reversed(found.exchange.channels))
        return msgspec.structs.replace(found, exchange=msgspec.structs.replace(found.exchange, channels=channels))

    monkeypatch.setattr(ExchangePart, "store", wrong)


def restores_whole_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of a segment is taken for all of it: rows that others hold as well come back."""
    places = Routing.places
    monkeypatch.setattr(Routing, "places", lambda self, records, subtask, _kept=None: places(self, records, subtask))


def counts_own_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a segment is counted from by its old owner's rows, which are others' to the next owner."""
    left = spilled_rows.OwnSegments.left

    def wrong(self: spilled_rows.OwnSegments, start: RowPlace) -> Iterator[tuple[int, Segment]]:
        return left(self, start._replace(row=start.before))

    monkeypatch.setattr(spilled_rows.OwnSegments, "left", wrong)


SHELLS = (
    bug_1_commits_nothing,
    bug_1_commits_what_is_read,
    bug_7_sends_before_it_has_credit,
    bug_12_swallows_what_cannot_be_spilled,
    bug_12_takes_an_error_for_the_end,
    bug_14_hears_no_mark_while_it_recovers,
    bug_15_keeps_the_spill_of_what_has_ended,
    bug_18_cuts_a_batch_where_a_segment_ends,
    bug_19_ends_with_its_input,
    bug_22_knows_one_kind_of_state,
    bug_11_spills_though_it_is_off,
    bug_21_needs_no_unaligned_checkpoints,
    stores_live_rows_first,
    restores_whole_segments,
    counts_own_rows_alone,
)
"""All of them."""
