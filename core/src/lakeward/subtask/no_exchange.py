"""The work of a subtask that writes what it reads: opens the writer of each split, and makes parts of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.subtask.exchange.phase import ExchangePhase
from lakeward.subtask.part_store import CheckpointPart
from lakeward.subtask.writers import split_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.events import Deploy
    from lakeward.model.tables import TableSpec
    from lakeward.ports import LakeWriter
    from lakeward.subtask.checkpointing import Checkpointing, MakePart
    from lakeward.subtask.exchange.items import ExchangeItem
    from lakeward.subtask.ports import SubtaskPorts


class NoExchange:
    """Takes the place of `ExchangeWork`: there is nothing to connect, to restore or to wait for."""

    address = ""
    is_full = is_restoring = False
    due = figures = None

    def __init__(self, ports: SubtaskPorts) -> None:
        self._ports = ports
        self.phase = ExchangePhase.CONNECTING

    def begin(self, _deploy: Deploy, _table: TableSpec, _checkpointing: Checkpointing) -> None:
        """Let splits be read at once."""
        self.phase = ExchangePhase.RUNNING

    def begin_split(
        self, deploy: Deploy, table: TableSpec, progress: SplitProgress
    ) -> tuple[SplitProgress, LakeWriter]:
        """See `ExchangeWork`; the writer is the lake's."""
        lake = self._ports.lake(deploy.lake)
        return progress, split_writer(lake, deploy, table, progress, self._ports.clock)

    def end_output(self) -> None:
        """See `ExchangeWork`; each split's files were closed with it."""
        self.phase = ExchangePhase.DONE

    def trigger(
        self, order: MakePart, checkpointing: Checkpointing, *, progress: Callable[[], Iterable[SplitProgress]]
    ) -> None:
        """Store this subtask's part of a checkpoint; `progress` closes files that are large enough."""
        splits = (*checkpointing.ended_since(order.checkpoint), *progress())
        checkpointing.store.put(CheckpointPart(order.checkpoint, splits, order.blocked))

    def end_checkpoint(self, _checkpoint: int) -> None:
        """Nothing is kept for a checkpoint."""

    def take(self, item: ExchangeItem) -> None:
        """Nobody sends any."""

    def check_time(self) -> None:
        """Nothing depends on the time."""

    def flush(self) -> None:
        """Nothing is gathered."""

    def close(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """Files are those of the split's writer."""
