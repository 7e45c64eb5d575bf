"""What the writers of a round with an exchange hold, beside what its readers have read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.exchange import ExchangeState
    from lakeward.model.results import LakeFile


class Writers:
    """The writers of one round. Used on the event loop only."""

    def __init__(self, restored: Iterable[ExchangeState] = ()) -> None:
        """Start with nothing written, or with what a checkpoint holds of all its subtasks."""
        self.restored = tuple(restored)
        """What the next launch, or the present one, was restored from."""
        self.finished: dict[int, ExchangeState] = {}
        """By subtask of the present launch: its state once all its files were closed."""

    @property
    def states(self) -> tuple[ExchangeState, ...]:
        """The states that hold every row of the round: those of the writers that finished, or the restored ones."""
        finished = self.finished.values()
        everyone = bool(finished) and all(len(finished) == state.subtasks for state in finished)
        return tuple(finished) if everyone else self.restored

    def files(self) -> list[LakeFile]:
        """Return the closed files of `states`."""
        return [file for state in self.states for file in state.files]

    def paths(self) -> frozenset[str]:
        """Return the paths of all files that a writer holds, finished or restored."""
        every = (*self.restored, *self.finished.values())
        return frozenset(file.path for state in every for file in state.files)
