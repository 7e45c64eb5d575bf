"""A subtask's side of the checkpoint protocol: its gateway, its part of each checkpoint. IO around `machines/gateway`.

A word on a checkpoint is heard at once, on the thread that receives: the gateway closes and opens while the mailbox
thread is in the middle of a batch, so that nobody waits for that. What was not let out belongs to the cut and is noted
at the trigger. How far the splits are needs no cut, for a position and its files say the same at any time: that is
asked when the mailbox comes to it (`Cut`), which closes files, and the part is stored. A split that ends in between is
in the part as well: as done to its end.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from lakeward.checkpoint.checkpoints import CheckpointFiles
from lakeward.checkpoint.store import SmallFiles
from lakeward.errors import LakewardError
from lakeward.machines.gateway import AbortFor, CloseFor, Gateway, OpenFor, Pass, Said, Shut, Started
from lakeward.model.checkpoints import Origin, SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    AnyEvent,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    DeclineCheckpoint,
    Deploy,
    Left,
    Open,
    SplitFinished,
    TriggerCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.machines.gateway import GatewayEvent
    from lakeward.model.checkpoints import BlockedEvent, CheckpointRef
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import CheckpointStore, Clock
    from lakeward.subtask.mailbox import Mailbox


CheckpointWord = Close | TriggerCheckpoint | CheckpointComplete | CheckpointAborted
"""What the coordinator says about a checkpoint."""


@dataclass(frozen=True, slots=True)
class PartWritten:
    """Posted to the mailbox: a part is in the store, or is not; `answer` says so."""

    checkpoint: int
    answer: AckCheckpoint | DeclineCheckpoint


class Uplink(Protocol):
    """Where events go."""

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        ...

    def send(self, event: AnyEvent) -> None:
        """Send an event."""
        ...


_CLOSE_S = 5.0
"""A store that takes longer keeps no task: what it writes after that is left for the sweep of the next start."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Posted to the mailbox, in the order in which it was heard: a checkpoint was triggered, its part is to be made."""

    checkpoint: int
    blocked: tuple[BlockedEvent, ...]


class Checkpointing:
    """One attempt's gateway and parts. `hear` is called on the receiving thread, all else on the mailbox thread."""

    def __init__(self, place: SubtaskPlace, deploy: Deploy, link: Uplink, clock: Clock, mailbox: Mailbox) -> None:
        """Start with the gateway as the coordinator says.

        Args:
            place: which task this is.
            deploy: what it was deployed with.
            link: where events go.
            clock: the machine's clock.
            mailbox: where `Cut` and `PartWritten` are posted.
        """
        self._origin = Origin(place.job.job_attempt, place.subtask, deploy.attempt, 0)
        self._ref = deploy.checkpoint_ref
        self._root = deploy.checkpoint_root
        self._link = link
        self._clock = clock
        self._mailbox = mailbox
        self._gateway = Gateway(closed_for=deploy.gateway_closed, restored=deploy.restored)
        self._store: CheckpointStore | None = None
        self._lock = threading.RLock()
        """Keeps together what passes the gateway and its number on the link."""
        self._left = False
        self._taken = 0
        self._answer: PartWritten | None = None
        self._writing: threading.Thread | None = None
        self._ended: dict[int, list[SplitProgress]] = {}
        """What ended after the trigger of each checkpoint whose part is still to be made."""

    def start(self) -> None:
        """Send again what a restore gave, before anything new."""
        self._step(Started())

    def say(self, event: AnyEvent) -> None:
        """Send an event: at once, or when the gateway opens."""
        self._step(Said(event))

    def finish(self, event: SplitFinished, progress: SplitProgress | None) -> None:
        """Say that a split is finished.

        Args:
            event: what to say.
            progress: the same as progress, None where nothing may go on from it.
        """
        with self._lock:
            if progress is not None:
                for ended in self._ended.values():
                    ended.append(progress)
            self.say(event)

    def leave(self) -> None:
        """Say that everything is closed; nothing is said on checkpoints after that."""
        with self._lock:
            self._left = True
            self._link.send(Left())

    def hear(self, word: CheckpointWord) -> None:
        """Do at once what a word on a checkpoint asks for; what is asked again is said again.

        Args:
            word: what the coordinator said.

        Raises:
            IllegalEventError: it does not fit what was said before.
        """
        with self._lock:
            if self._left:
                return
            match word:
                case Close():
                    self._step(CloseFor(word.checkpoint))
                case TriggerCheckpoint():
                    self._trigger(word.checkpoint)
                case CheckpointComplete() | CheckpointAborted():
                    self._step(AbortFor(word.checkpoint))

    def part_written(self, word: PartWritten) -> None:
        """Say what became of a part."""
        with self._lock:
            self._answer = word
        self.say(word.answer)

    def make_part(self, cut: Cut, roll: Callable[[], tuple[SplitProgress, ...]]) -> None:
        """Store this subtask's part of a checkpoint.

        Args:
            cut: what the gateway held back.
            roll: closes what is large enough and returns how far every split is that is held here.
        """
        with self._lock:
            ended = self._ended.pop(cut.checkpoint, [])
        if self._ref is None or not self._root:
            self.say(DeclineCheckpoint(checkpoint=cut.checkpoint, reason="no place for checkpoints was named"))
            return
        progress = (*ended, *roll())
        snapshot = SubtaskSnapshot(self._origin.subtask, self._origin.task_attempt, progress, cut.blocked)
        ref = replace(self._ref, number=cut.checkpoint)
        name = f"part-{cut.checkpoint}"
        self._writing = threading.Thread(target=self._write, args=(ref, snapshot), name=name, daemon=True)
        self._writing.start()

    def close(self) -> None:
        """Let a part come to its end that is being written: what is left of it is deleted once no subtask runs."""
        if self._writing is not None:
            self._writing.join(_CLOSE_S)

    def _trigger(self, checkpoint: int) -> None:
        if checkpoint <= self._taken:
            if self._answer is not None and self._answer.checkpoint == checkpoint:
                self.say(self._answer.answer)
            return
        blocked = self._gateway.held_as(replace(self._origin, sequence=self._link.sent))
        self._step(OpenFor(checkpoint))
        self._taken, self._ended[checkpoint] = checkpoint, []
        self.say(Open(checkpoint=checkpoint))
        self._mailbox.put_said(Cut(checkpoint, blocked))

    def _write(self, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> None:
        try:
            if self._store is None:
                self._store = CheckpointFiles(SmallFiles(self._root), self._clock)
            part = self._store.write_part(ref, snapshot)
            answer: AckCheckpoint | DeclineCheckpoint = AckCheckpoint.of(ref.number, part, snapshot)
        except LakewardError as error:
            answer = DeclineCheckpoint(checkpoint=ref.number, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a store that breaks costs this checkpoint and nothing else
            answer = DeclineCheckpoint(checkpoint=ref.number, reason=f"{type(error).__name__}: {error}")
        self._mailbox.put(PartWritten(ref.number, answer))

    def _step(self, event: GatewayEvent) -> None:
        with self._lock:
            for command in self._gateway.step(event):
                match command:
                    case Pass():
                        self._link.send(command.event)
                    case Shut():
                        self._link.send(AckClose(checkpoint=command.checkpoint, sent=self._link.sent))
