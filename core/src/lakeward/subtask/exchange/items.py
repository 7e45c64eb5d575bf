"""What the transport's threads and workers post to the mailbox of a subtask with an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.exchange import ChannelMark, KeptRows
    from lakeward.subtask.exchange.spilled_rows import SpilledPiece
    from lakeward.subtask.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class RecordsReceived:
    """The next batch of a channel has come."""

    producer: int
    sequence: int
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class MarkReceived:
    """The next mark of a channel has come; it goes past batches that wait in the mailbox."""

    producer: int
    mark: ChannelMark


@dataclass(frozen=True, slots=True)
class CreditReceived:
    """A consumer has written all batches before `end`."""

    consumer: int
    end: int


@dataclass(frozen=True, slots=True)
class ProducerConnected:
    """A producer has opened its channel to this subtask."""

    producer: int


@dataclass(frozen=True, slots=True)
class ChannelLost:
    """A channel is gone."""

    peer: int
    reason: str


@dataclass(frozen=True, slots=True)
class WriteNext:
    """Write one of the batches that were received."""


@dataclass(frozen=True, slots=True)
class RowsRestored:
    """The next rows of a restored checkpoint; None: there are no more.

    `counted`: a writer had taken them before. `kept`: the checkpoint holds no other key groups of them.
    """

    records: pa.RecordBatch | None
    counted: bool = False
    kept: KeptRows | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class SpillSealed:
    """All rows of a restored checkpoint that are ours are on local disks, or cannot be put there."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class PieceRestored:
    """The next piece of the spill; None: there is no more."""

    piece: SpilledPiece | None
    error: Exception | None = None


RestoredItem = RowsRestored | SpillSealed | PieceRestored
ExchangeItem = (
    RecordsReceived | MarkReceived | CreditReceived | ProducerConnected | ChannelLost | WriteNext | RestoredItem
)


class MailboxReceiver:
    """See `lakeward.ports.ChannelReceiver`: posts everything, and does nothing on the transport's threads."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def on_records(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        """See Protocol."""
        self._mailbox.put(RecordsReceived(producer, sequence, records))

    def on_mark(self, producer: int, mark: ChannelMark) -> None:
        """See Protocol."""
        self._mailbox.put_message(MarkReceived(producer, mark))

    def on_credit(self, consumer: int, end: int) -> None:
        """See Protocol."""
        self._mailbox.put_message(CreditReceived(consumer, end))

    def on_connected(self, producer: int) -> None:
        """See Protocol."""
        self._mailbox.put_message(ProducerConnected(producer))

    def on_lost(self, peer: int, reason: str) -> None:
        """See Protocol."""
        self._mailbox.put_message(ChannelLost(peer, reason))
