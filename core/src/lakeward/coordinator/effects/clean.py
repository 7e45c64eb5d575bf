"""Deletes what a round has left, and files that do not count. Blocking."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.effects.work import Handlers, Work
from lakeward.coordinator.rounds.effects import CleanUp, Discard
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.rounds.round import Round
    from lakeward.ports import CheckpointStore

_log = structlog.get_logger("lakeward.rounds")


class Cleaning:
    """Cleans up after rounds; what fails is left for the next sweep."""

    def __init__(self, cleaner: Cleaner, store: CheckpointStore) -> None:
        self._cleaner = cleaner
        self._store = store

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        discard = Work(
            lambda _, effect: partial(self.discard, effect),
            what="delete rejected files of",
            purpose="the deletion of rejected files",
            answered=False,
        )
        clean_up = Work(self._begin, what="clean up after a round of", purpose="the clean-up", answered=False)
        return Handlers({CleanUp: clean_up, Discard: discard})

    def _begin(self, _: Round, effect: CleanUp) -> Callable[[], None]:
        self._cleaner.end(effect.round_id, may_write=effect.may_write)
        if effect.outcome != "fenced" and effect.journaled:
            self._cleaner.watch(effect.round_id, effect.path)
        return partial(self.clean_up, effect)

    def clean_up(self, effect: CleanUp) -> None:
        """Delete what a round left; a fenced round deletes no file: another service may own its table."""
        self.delete_parts(effect)
        if effect.outcome != "fenced" and effect.journaled:
            self.delete_files(effect)

    def delete_parts(self, effect: CleanUp) -> None:
        """Delete what subtasks stored for checkpoints that were aborted; now none of them runs any more."""
        for ref in effect.aborted:
            try:
                self._store.delete(ref)
            except LakewardError as error:
                _log.warning("left for the sweep", what=f"parts of {ref}", reason=str(error))
        newest = effect.newest_with_rows
        if newest is not None:
            try:
                self._store.delete_rows(newest)
            except LakewardError as error:
                _log.warning("left for the sweep", what=f"rows up to {newest}", reason=str(error))

    def delete_files(self, effect: CleanUp) -> None:
        """Delete the files of a round that no commit and no checkpoint names."""
        if effect.outcome == "committed" and effect.journal is not None:
            self._cleaner.sweep_prefix(effect.journal, may_have_orphans=effect.orphans)
        elif not effect.has_commit:  # else some steps have landed: the table's next commit deletes the rest
            self._cleaner.end_round(effect.round_id)

    def discard(self, effect: Discard) -> None:
        """Delete files that an attempt wrote after it no longer counted."""
        self._cleaner.discard(effect.lake_path, effect.table_id, effect.files)
