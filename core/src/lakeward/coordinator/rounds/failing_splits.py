"""What has failed in a round's job and was not read since: which splits, how often, and the newest cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_EVERY = ""
"""Stands for all splits where a failure concerns no single one: no subtask got as far as reading."""


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Why something failed: in words, and the code of the error, which is empty where no error of ours is the cause.

    Without words there is no cause, and it is false.
    """

    text: str = ""
    code: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


_NO_CAUSE = FailureCause()


@dataclass(frozen=True, slots=True)
class _Failure:
    times: int
    cause: FailureCause


class FailingSplits:
    """The failures of one round's job. Used on the event loop only."""

    def __init__(self) -> None:
        self._notified = False
        self._failures: dict[str, _Failure] = {}
        """By split, the one that failed last at the end."""
        self._checkpoint: object = None
        """The newest checkpoint when something failed last."""
        self.since: float | None = None
        """When the first of those failed that have a cause, in seconds; None while there is none."""

    def failed(
        self, split_ids: Collection[str], cause: FailureCause, *, now: float, checkpoint: object, lost: bool = False
    ) -> bool | None:
        """Record a failure; return whether something has failed more than once, None where that is as before.

        `split_ids`: what was being read, empty where it is not known or nothing was. `now`: seconds on the service's
        clock. `checkpoint`: the newest one, None where none has completed. `lost`: the subtask did not say why it
        ended: once is nobody's fault, and has no cause yet.
        """
        self._checkpoint = checkpoint
        for split_id in split_ids or (_EVERY,):
            times = self.times(split_id) + 1
            self._failures.pop(split_id, None)
            self._failures[split_id] = _Failure(times, _NO_CAUSE if lost and times == 1 else cause)
        if self.cause and self.since is None:
            self.since = now
        return self._changed()

    def finished(self, split_id: str) -> bool | None:
        """Record a split that was read, and written, after all; return as `failed`."""
        self._failures.pop(split_id, None)
        self._failures.pop(_EVERY, None)
        return self._changed()

    def checkpointed(self, newest: object) -> bool | None:
        """Forget all failures if a checkpoint is newer than they are: what failed was written after all.

        Returns what `failed` does.
        """
        if newest is self._checkpoint:
            return None
        self._failures.clear()
        return self._changed()

    def times(self, split_id: str) -> int:
        """Return how often a split has failed."""
        found = self._failures.get(split_id)
        return 0 if found is None else found.times

    @property
    def cause(self) -> FailureCause:
        """The newest cause; false where nothing fails."""
        return self.cause_of(self._failures)

    def cause_of(self, split_ids: Iterable[str]) -> FailureCause:
        """Return the newest cause why some splits failed; false where none of them has."""
        wanted = {*split_ids}
        if wanted:
            wanted.add(_EVERY)
        causes = (one.cause for split_id, one in reversed(self._failures.items()) if split_id in wanted)
        return next((cause for cause in causes if cause), _NO_CAUSE)

    def has_failed_by(self, split_ids: Iterable[str], message: str) -> bool:
        """Return whether one of some splits has failed before, with the same message of its subtask."""
        return self.cause_of(split_ids).text.endswith(message)

    def _changed(self) -> bool | None:
        if not self.cause:
            self.since = None
        again = any(failure.times > 1 for failure in self._failures.values())
        if again is self._notified:
            return None
        self._notified = again
        return again
