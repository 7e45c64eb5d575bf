"""A process that dies at its n-th change of the disk: from then on it changes nothing, not even while it cleans up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward_lake_paimon.local_storage import LocalStorage, PinnedFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_CHANGES = {
    LocalStorage: ("write", "delete", "open_output", "rename_folder", "make_folder"),
    PinnedFolder: ("_link", "replace", "delete"),
}


class KilledError(BaseException):
    """The process is dead."""


class Kill:
    """Dies before a change of the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        """Count from now on; the first change is number 0."""
        self.changes = 0
        self._at = at
        self._dead = False
        for owner, names in _CHANGES.items():
            for name in names:
                monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **told: Any) -> Any:  # noqa: ANN401 - any change
            self._dead = self._dead or self.changes == self._at
            self.changes += 1
            if self._dead:
                raise KilledError
            return change(*arguments, **told)

        return counted
