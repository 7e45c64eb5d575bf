"""A subtask's side of the checkpoint protocol: its gateway, its part of each checkpoint. IO around `machines/gateway`.

The order at a trigger keeps the gateway closed for a moment only: what belongs to the cut (which splits are held,
what was not let out) is noted, the gateway opens, and then files are closed and the part is stored. How far a split
is needs no cut: its position and its files say the same at any time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
    Open,
    TriggerCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.machines.gateway import GatewayEvent
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import CheckpointStore, Clock
    from lakeward.subtask.link import Link
    from lakeward.subtask.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class PartWritten:
    """Posted to the mailbox: a part is in the store, or is not; `answer` says so."""

    checkpoint: int
    answer: AckCheckpoint | DeclineCheckpoint


class Checkpointing:
    """One attempt's gateway and parts. Used on the mailbox thread only."""

    def __init__(self, place: SubtaskPlace, deploy: Deploy, link: Link, clock: Clock, mailbox: Mailbox) -> None:
        """Start with the gateway as the coordinator says.

        Args:
            place: which task this is.
            deploy: what it was deployed with.
            link: where events go.
            clock: the machine's clock.
            mailbox: where `PartWritten` is posted.
        """
        self._origin = Origin(place.job.job_attempt, place.subtask, deploy.attempt, 0)
        self._ref = deploy.checkpoint_ref
        self._root = deploy.checkpoint_root
        self._link = link
        self._clock = clock
        self._mailbox = mailbox
        self._gateway = Gateway(closed_for=deploy.gateway_closed, restored=deploy.restored)
        self._store: CheckpointStore | None = None
        self._taken = 0
        self._answer: PartWritten | None = None

    def start(self) -> None:
        """Send again what a restore gave, before anything new."""
        self._step(Started())

    def say(self, event: AnyEvent) -> None:
        """Send an event: at once, or when the gateway opens."""
        self._step(Said(event))

    def hear(
        self,
        word: Close | TriggerCheckpoint | CheckpointComplete | CheckpointAborted | PartWritten,
        roll: Callable[[], tuple[SplitProgress, ...]],
    ) -> None:
        """Do what a word on a checkpoint asks for; what is asked again is said again.

        Args:
            word: what was said.
            roll: closes what is large enough and returns how far every split is that is held here.
        """
        match word:
            case Close():
                self._step(CloseFor(word.checkpoint))
            case TriggerCheckpoint():
                self._trigger(word.checkpoint, roll)
            case PartWritten():
                self._answer = word
                self.say(word.answer)
            case CheckpointComplete() | CheckpointAborted():
                self._step(AbortFor(word.checkpoint))

    def _trigger(self, checkpoint: int, roll: Callable[[], tuple[SplitProgress, ...]]) -> None:
        if checkpoint <= self._taken:
            if self._answer is not None and self._answer.checkpoint == checkpoint:
                self.say(self._answer.answer)
            return
        self._taken = checkpoint
        blocked = self._gateway.held_as(replace(self._origin, sequence=self._link.sent))
        self._step(OpenFor(checkpoint))
        self.say(Open(checkpoint=checkpoint))
        snapshot = SubtaskSnapshot(self._origin.subtask, self._origin.task_attempt, roll(), blocked)
        if self._ref is None or not self._root:
            self.say(DeclineCheckpoint(checkpoint=checkpoint, reason="no place for checkpoints was named"))
            return
        ref = replace(self._ref, number=checkpoint)
        threading.Thread(target=self._write, args=(ref, snapshot), name=f"part-{checkpoint}", daemon=True).start()

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
        for command in self._gateway.step(event):
            match command:
                case Pass():
                    self._link.send(command.event)
                case Shut():
                    self._link.send(AckClose(checkpoint=command.checkpoint, sent=self._link.sent))
