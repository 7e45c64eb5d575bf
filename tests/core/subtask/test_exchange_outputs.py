"""What a producer of an exchange gathers, sends and holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.partitioning import PartitionField
from lakeward.subtask.exchange.outputs import Outputs
from lakeward.subtask.exchange.routing import Routing
from lakeward.subtask.ports import OutputLimits
from lakeward_testing.folder_lake import FolderPartitioner

if TYPE_CHECKING:
    from lakeward.model.exchange import ChannelMark

ROW_BYTES = 1000
LIMITS = OutputLimits(
    window_bytes=80 * ROW_BYTES,
    received_bytes=800 * ROW_BYTES,
    channel_bytes=100 * ROW_BYTES,
    subtask_bytes=600 * ROW_BYTES,
    gathered_bytes=30 * ROW_BYTES,
)


class Sender:
    """Keeps what it is to send; see `lakeward.ports.ChannelSender`."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        """Rows of each batch."""

    def send(self, sequence: int, records: pa.RecordBatch) -> None:
        assert sequence == len(self.sent)
        self.sent.append(records.num_rows)

    def mark(self, mark: ChannelMark) -> None:
        """Nobody looks at marks here."""

    def close(self) -> None:
        """Nothing is open."""


def outputs_to(count: int, limits: OutputLimits = LIMITS) -> tuple[Outputs, list[Sender]]:
    senders = [Sender() for _ in range(count)]
    routing = Routing(FolderPartitioner((PartitionField.parse("color"),)), count, by_bucket=False)
    return Outputs(senders, routing, limits), senders


def rows_of(colors: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"color": colors, "text": ["x" * (ROW_BYTES - 20)] * len(colors)})


def test_small_slices_are_sent_together() -> None:
    outputs, (only,) = outputs_to(1)
    for _ in range(LIMITS.gathered_bytes // ROW_BYTES - 1):
        outputs.put(rows_of(["red"]), bucket=0)
    assert only.sent == []
    outputs.flush()
    assert only.sent == [LIMITS.gathered_bytes // ROW_BYTES - 1]


@pytest.mark.parametrize("count", [1, 2, 8, 40, 100])
def test_what_all_producers_may_have_under_way_to_one_consumer_is_bounded_however_many_they_are(count: int) -> None:
    outputs, senders = outputs_to(count)
    colors = [f"color {number}" for number in range(50 * count)]
    for _ in range(4):
        outputs.put(rows_of(colors), bucket=0)
    outputs.flush()
    sent = max(sum(sender.sent) for sender in senders)
    assert 0 < sent * ROW_BYTES <= min(LIMITS.window_bytes, LIMITS.received_bytes // count)
    assert max(rows for sender in senders for rows in sender.sent) * ROW_BYTES <= LIMITS.window_bytes // 2


def test_a_reader_stands_still_for_batches_that_wait_and_not_for_what_is_gathered() -> None:
    """There are so many consumers that what is gathered for each of them is not yet enough to be sent."""
    count = 100
    outputs, senders = outputs_to(count, OutputLimits(gathered_bytes=30 * ROW_BYTES, subtask_bytes=600 * ROW_BYTES))
    colors = [f"color {number}" for number in range(20 * count)]
    for start in range(0, len(colors), 100):
        outputs.put(rows_of(colors[start : start + 100]), bucket=0)
    assert sum(sum(sender.sent) for sender in senders) > 0
    assert not outputs.full


def test_a_reader_stands_still_once_all_channels_together_have_too_much() -> None:
    outputs, _ = outputs_to(100)
    colors = [f"color {number}" for number in range(2000)]
    outputs.put(rows_of(colors), bucket=0)
    assert outputs.full
    assert outputs.queued_bytes >= LIMITS.subtask_bytes


def test_a_reader_stands_still_for_one_channel_that_is_full_until_its_consumer_has_written() -> None:
    outputs, (only,) = outputs_to(1)
    outputs.put(rows_of(["red"] * 200), bucket=0)
    assert outputs.full
    assert LIMITS.channel_bytes <= outputs.queued_bytes < LIMITS.subtask_bytes
    for _ in range(200):  # a credit at least for each batch
        outputs.credit(0, len(only.sent))
    assert sum(only.sent) == 200
    assert (outputs.full, outputs.queued_bytes) == (False, 0)
