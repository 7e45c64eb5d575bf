"""The port of the exchange: channels between the subtasks of one launch.

A channel goes from one producer to one consumer, also from a subtask to itself. It has two streams, which do not delay
one another: data, in order, as far as the consumer has given credit; and marks (`ChannelMark`), in order. A mark may
pass batches that were sent before it, but no batch passes a mark: a transport that uses two connections numbers its
marks, sends with each batch how many went before it, and holds a batch back until they have arrived. Otherwise rows
behind a barrier could be written before it is known. Neither stream may be late: a channel that breaks or is silent is
reported as lost, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.exchange import ChannelMark


class ExchangeKey(NamedTuple):
    """Whose exchange it is: channels of another round, launch or service run are refused."""

    round_name: str
    job_attempt: int
    subtask: int
    secret: bytes
    trusted: str = ""
    """Certificates (PEM text), as of `Address`; not empty: data streams use TLS as well."""


class ChannelReceiver(Protocol):
    """A subtask's ends of all its channels; called on threads of the transport."""

    def on_records(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        """Take the next batch of a channel; its sequence is one more than that of the one before, from 0.

        Every mark that was sent before it has been given to `on_mark`.
        """
        ...

    def on_mark(self, producer: int, mark: ChannelMark) -> None:
        """Take the next mark of a channel.

        It may come before batches that were sent before it, never after one that was sent after it.
        """
        ...

    def on_credit(self, consumer: int, end: int) -> None:
        """Learn that a consumer has written all batches before the sequence `end`; a later call says all of it anew."""
        ...

    def on_connected(self, producer: int) -> None:
        """Learn that a producer has opened its channel to this subtask."""
        ...

    def on_lost(self, peer: int, reason: str) -> None:
        """Learn that the channel to or from a subtask is gone. Nothing more comes from it.

        A channel that has ended, and whose batches are all written, may be closed by either end without that.
        """
        ...


class ChannelSender(Protocol):
    """One channel, as its producer sees it. No method blocks."""

    def send(self, sequence: int, records: pa.RecordBatch) -> None:
        """Send a batch; the caller has credit for it."""
        ...

    def mark(self, mark: ChannelMark) -> None:
        """Send a mark at once, past all batches that are on their way."""
        ...

    def close(self) -> None:
        """Close the channel; calling it twice is harmless. What was sent into one that has ended still arrives."""
        ...


class SubtaskExchange(Protocol):
    """A subtask's part of the exchange of one launch."""

    @property
    def address(self) -> str:
        """Where other subtasks reach this one: `host:port`."""
        ...

    def connect(self, consumer: int, address: str) -> ChannelSender:
        """Open the channel to a consumer, at the address that it registered, and return at once.

        That it could not be opened is `on_lost`.
        """
        ...

    def give_credit(self, producer: int, end: int) -> None:
        """Tell a producer that all its batches before the sequence `end` are written. Does not block.

        It knows their sizes: the two ends need not agree on the size of a batch, which differs after a transfer.
        """
        ...

    def close(self) -> None:
        """Close all channels; calling it twice is harmless."""
        ...


class ExchangeTransport(Protocol):
    """Makes exchanges: Arrow Flight, or the simulator's network."""

    def open(self, key: ExchangeKey, host: str, receiver: ChannelReceiver) -> SubtaskExchange:
        """Listen for the channels of a subtask; the receiver is told what arrives.

        `host` is the name or address that other executors reach this one at, or a network in which it has one; empty:
        that of the route to the coordinator.

        Raises:
            ConfigError: this machine has no address in the network.
            StorageError: no port can be opened.
        """
        ...
