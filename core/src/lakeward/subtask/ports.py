"""The ports and limits that a subtask uses: built by `lakeward.subtask.run`, and by the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.storage.spill import LOCAL_DISK

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.ports import CheckpointStore, Clock, ExchangeTransport, Executor, SpillDisk, Transport


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much a producer of an exchange has under way, keeps waiting and gathers."""

    window_bytes: int = 16 << 20
    """Of a channel: sent and not yet written by its consumer, at most. With 4 MiB two subtasks wait for each other."""
    received_bytes: int = 64 << 20
    """Of all channels of one consumer: sent and not yet written, at most; channels share it where there are many."""
    channel_bytes: int = 16 << 20
    """Waiting for one consumer, from which on nothing more is read."""
    subtask_bytes: int = 64 << 20
    """Waiting for all consumers together, from which on nothing more is read."""
    gathered_bytes: int = 1 << 20
    """Slices are gathered until they have so many bytes, or `gathered_rows`."""
    gathered_rows: int = 65_536
    """Of a batch, at most; larger slices are parted at that, and at half a window."""
    restored_bytes: int | None = None
    """Restored rows of a channel are spilled once there are so many; None: as many as a segment of the spill holds."""


LIMITS = OutputLimits()


@dataclass(frozen=True, slots=True)
class SubtaskPorts:
    """The ports of a subtask."""

    transport: Transport
    executor: Executor
    clock: Clock
    source: Callable[[str], SourcePlugin]
    """Loads a source by its name."""
    lake: Callable[[str], LakePlugin]
    """Loads a lake by its name."""
    checkpoints: Callable[[str], CheckpointStore]
    """Opens the store of checkpoints at a root."""
    exchange: ExchangeTransport
    """Moves rows between the subtasks of a launch."""
    heartbeat_s: float = 0.5
    """Seconds between two heartbeats."""
    exchange_limits: OutputLimits = LIMITS
    """How much of an exchange's rows waits in the subtask, and is under way."""
    spill_disk: SpillDisk = LOCAL_DISK
    """Where restored rows are spilled to."""
