"""Completes and deletes checkpoints. Blocking."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakeward.coordinator.effects.work import Handlers, Work
from lakeward.coordinator.rounds.effects import CompleteCheckpoint, DeleteCheckpoint, RetainCheckpoints
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.identity import Incarnation
    from lakeward.ports import CheckpointStore


class Storing:
    """Writes the checkpoints of one start of the service."""

    def __init__(self, store: CheckpointStore, incarnation: Incarnation, leases: LeaseProtection) -> None:
        self._store = store
        self._incarnation = incarnation
        self._leases = leases

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        complete = Work(self._begin, what="complete a checkpoint of", at_once=self._lease)
        retain = Work(
            lambda _, effect: partial(self._store.retain, self._incarnation, effect.table_id, effect.newest),
            what="retain checkpoints of",
            answered=False,
        )
        delete = Work(
            lambda _, effect: partial(self._store.delete, effect.ref), what="delete a checkpoint of", answered=False
        )
        return Handlers({CompleteCheckpoint: complete, RetainCheckpoints: retain, DeleteCheckpoint: delete})

    def _lease(self, one: Round, effect: CompleteCheckpoint) -> None:
        if not one.ended:
            self._leases.store_checkpoint(effect)

    def _begin(self, _: Round, effect: CompleteCheckpoint) -> Callable[[], int]:
        return partial(self.complete, effect, self._leases.lease_copy())

    def complete(self, effect: CompleteCheckpoint, lease: LeaseCopy | None) -> int:
        """Write the file that makes a checkpoint complete; return its size in bytes.

        Raises:
            StorageError: it was not written, and never will be.
        """
        try:
            return self._store.complete(effect.ref, effect.coordinator, [part for part, _ in effect.parts], lease)
        except LakewardError:
            self._store.abandon(effect.ref)
            raise
