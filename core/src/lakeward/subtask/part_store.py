"""Stores a subtask's parts of checkpoints on workers, and posts whether they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from lakeward.errors import LakewardError, in_words
from lakeward.model.checkpoints import SubtaskSnapshot
from lakeward.model.events import AckCheckpoint, DeclineCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakeward.model.checkpoints import BlockedEvent, SplitProgress
    from lakeward.model.events import Deploy
    from lakeward.model.exchange import Segment
    from lakeward.ports import CheckpointStore, Running
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.ports import SubtaskPorts

_CLOSE_S = 5.0
"""Seconds that the end of a task waits for the store; the next start deletes what is written later."""


@dataclass(frozen=True, slots=True)
class PartWritten:
    """Posted to the mailbox: a part was stored, or could not be; `answer` is the message to the coordinator."""

    checkpoint: int
    answer: AckCheckpoint | DeclineCheckpoint


@dataclass(slots=True)
class CheckpointPart:
    """What a checkpoint holds of a subtask. Filled by the mailbox thread, then stored by a worker."""

    checkpoint: int
    progress: tuple[SplitProgress, ...]
    blocked: tuple[BlockedEvent, ...]
    ended: bool = False
    """The checkpoint is complete or will never be: nothing more is stored of it."""

    in_order: ClassVar[bool] = False
    """Whether parts are stored one after the other, for they share rows; else side by side."""

    def end(self) -> None:
        """Store nothing more of it."""
        self.ended = True

    def store(
        self, subtask: int, task_attempt: int, _write: Callable[[Iterator[pa.RecordBatch]], Segment]
    ) -> SubtaskSnapshot:
        """Store its rows, of which there are none here; return what the part of a subtask's attempt holds."""
        return SubtaskSnapshot(subtask, task_attempt, self.progress, self.blocked)


class PartStore:
    """Stores the parts of one attempt. Called by the mailbox thread."""

    def __init__(self, subtask: int, deploy: Deploy, ports: SubtaskPorts, mailbox: Mailbox) -> None:
        """Touch nothing yet; `PartWritten` is posted in the mailbox."""
        self._subtask = subtask
        self._deploy = deploy
        self._ports = ports
        self._mailbox = mailbox
        self._store: CheckpointStore | None = None
        self._worker = ports.executor.worker(name="store-checkpoint")
        self._running: list[Running] = []
        self._waiting: list[CheckpointPart] = []
        """Those with rows that were given to the worker and whose checkpoints may still complete."""

    def put(self, part: CheckpointPart) -> None:
        """Have a part stored."""
        work = partial(self._write, part)
        if part.in_order:
            self._waiting.append(part)
            self._worker.submit(work)
        else:
            self._running = [one for one in self._running if not one.join(0.0)]
            self._running.append(self._ports.executor.start(work, name=f"part-{part.checkpoint}"))

    def end(self, newest: int) -> None:
        """Store nothing more of checkpoints up to this one."""
        for part in self._waiting:
            if part.checkpoint <= newest:
                part.end()
        self._waiting = [part for part in self._waiting if not part.ended]

    def close(self) -> None:
        """Wait for parts that are being written; those that take too long are deleted once no subtask runs."""
        clock = self._ports.clock
        deadline = clock.now() + _CLOSE_S
        for one in self._running:
            one.join(max(0.0, deadline - clock.now()))
        self._worker.stop(max(0.0, deadline - clock.now()))

    # --- on a worker --------------------------------------------------------------------------------------------

    def _write(self, part: CheckpointPart) -> None:
        if part.ended:
            return
        try:
            answer: AckCheckpoint | DeclineCheckpoint = self._stored(part)
        except LakewardError as error:
            answer = DeclineCheckpoint(checkpoint=part.checkpoint, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a store that breaks costs this checkpoint and nothing else
            answer = DeclineCheckpoint(checkpoint=part.checkpoint, reason=in_words(error))
        self._mailbox.put(PartWritten(part.checkpoint, answer))

    def _stored(self, part: CheckpointPart) -> AckCheckpoint | DeclineCheckpoint:
        deploy = self._deploy
        if deploy.checkpoint_ref is None or not deploy.checkpoint_root:
            reason = "no place for checkpoints was named"
            return DeclineCheckpoint(checkpoint=part.checkpoint, reason=reason)
        ref = replace(deploy.checkpoint_ref, number=part.checkpoint)
        store, numbers = self._open(deploy.checkpoint_root), count()

        def write(records: Iterator[pa.RecordBatch]) -> Segment:
            name = f"{part.checkpoint}-{self._subtask}-{deploy.attempt}-{next(numbers)}.arrow"
            return store.write_segment(ref, name, records)

        snapshot = part.store(self._subtask, deploy.attempt, write)
        return AckCheckpoint(checkpoint=part.checkpoint, part=store.write_part(ref, snapshot), snapshot=snapshot)

    def _open(self, root: str) -> CheckpointStore:
        if self._store is None:
            self._store = self._ports.checkpoints(root)
        return self._store
