"""The ports that a subtask uses: built by `lakeward.subtask.run`, and by the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.hooks.plugins import LakePlugin, SourcePlugin
    from lakeward.ports import CheckpointStore, Clock, Executor, Transport


@dataclass(frozen=True, slots=True)
class SubtaskParts:
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
    heartbeat_s: float = 0.5
    """Seconds between two heartbeats."""
