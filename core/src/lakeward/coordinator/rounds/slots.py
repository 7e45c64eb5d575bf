"""How many of the slots that a round's job asks Spark for are there, and whether that has been said."""

from __future__ import annotations

PATIENCE_S = 15.0
"""Seconds without any slot after which that is worth a warning: a cold start of Spark's executors takes less."""


class SlotWatch:
    """The slots of one round's job. Used on the event loop only."""

    def __init__(self) -> None:
        self.asked = 0
        self.there = 0
        self._needed = 1
        self._empty_since: float | None = None
        self._warned = False

    def launched(self, asked: int, now: float, *, needed: int = 1) -> None:
        """Note a launch of `asked` subtasks: `needed` of them have to be there before any works. `now`: seconds."""
        self.asked, self._needed = asked, needed
        self.update(0, now)

    def update(self, there: int, now: float) -> None:
        """Note how many subtasks of the launch are there: registered, and neither lost nor given up. `now`: seconds."""
        self.there = there
        if there >= self._needed:
            self._empty_since, self._warned = None, False
        elif self._empty_since is None:
            self._empty_since = now

    def should_warn(self, now: float) -> bool:
        """Return True once for each time that slots were missing for `PATIENCE_S`. `now`: seconds."""
        if self._warned or self._empty_since is None or now - self._empty_since < PATIENCE_S:
            return False
        self._warned = True
        return True

    @property
    def message(self) -> str:
        """What is waited for, in words; empty while as many slots are there as are needed."""
        if self.there >= self._needed or not self.asked:
            return ""
        return f"waiting for Spark: {self.there} of {self.asked} slots"
