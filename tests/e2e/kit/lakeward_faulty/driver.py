"""The driver's side of an exchange, with points: `gathering`, `before-complete`, `completed`, `completed-unaligned`.

Each ends with the table's name. `gathering`: a subtask has registered, others have not. `completed`: a checkpoint
happened that rows are read back from; `completed-unaligned`: batches of channels are among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.round import Round
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward_faulty.points import name_driver, note_worker, reached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.coordinator.rounds.effects import Effect
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.checkpoints import CheckpointRef, LeaseCopy, PartFile, RoundSnapshot
    from lakeward.model.events import Register
    from lakeward.ports import Connection

_connect, _complete = Round.connect, CheckpointFiles.complete


def watch_driver() -> None:
    """Say that this process is the driver; its rounds and its store of checkpoints have points from now on."""
    name_driver()
    Round.connect = connect  # type: ignore[method-assign]
    CheckpointFiles.complete = complete  # type: ignore[method-assign]


def connect(self: Round, register: Register, connection: Connection) -> tuple[ChannelKey | None, tuple[Effect, ...]]:
    key, effects = _connect(self, register, connection)
    spec = None if self.job is None else self.job.launched
    if key is not None and self.job is not None and spec is not None and spec.exchange:
        at = spec.pool.rpartition(".")[2]
        note_worker(at, register.pid)
        if self.job.subtasks.there < spec.subtasks:
            reached(f"gathering.{at}")
    return key, effects


def complete(
    self: CheckpointFiles,
    ref: CheckpointRef,
    coordinator: RoundSnapshot,
    parts: Sequence[PartFile],
    lease: LeaseCopy | None,
) -> int:
    at = coordinator.path.table
    reached(f"before-complete.{at}")
    size = _complete(self, ref, coordinator, parts, lease)
    states = [part.exchange for part in self.load(ref).subtasks if part.exchange is not None]
    if any(state.segments() for state in states):
        reached(f"completed.{at}")
    if any(state.channels for state in states):
        reached(f"completed-unaligned.{at}")
    return size
