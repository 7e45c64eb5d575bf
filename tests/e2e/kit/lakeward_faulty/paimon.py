"""The Paimon lake, with points around a commit, around the creation of its snapshot, and in the writers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lakeward.errors import OutcomeUnknownError
from lakeward_faulty.lake import FaultyLake, FaultyPlugin, UpkeptLake
from lakeward_faulty.points import reached
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.upkeep import UpkeepResult, UpkeepTask
    from lakeward.ports import Clock


class FaultyPaimonPlugin(FaultyPlugin):
    """The lake `paimon-faulty`, whose disk may lose answers."""

    inner = PaimonLakePlugin()
    options = PaimonOptions

    def open(self, options: Any, clock: Clock) -> FaultyLake:  # noqa: ANN401 - the options of the lake
        lake: Any = self.inner.open(options, clock)
        lake._storage.pin = _lossy(lake._storage.pin)
        return FaultyLake(lake)

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        return self.inner.upkeep(task, attempt, check)


def _lossy(pin: Callable[[str], Any]) -> Callable[[str], Any]:
    """Stand between the fence check and the folder of snapshots: `send.<table>` is reached with a data commit only."""

    def pinned(path: str) -> Any:  # noqa: ANN401 - a folder of any storage
        folder = pin(path)
        place, _, name = path.rpartition("/")
        if name == "snapshot":
            folder.create = _Creation(pin, path, place.rpartition("/")[2], folder.create)
        return folder

    return pinned


class _Creation:
    """Creates a snapshot as a folder does, or loses the answer."""

    def __init__(self, pin: Callable[[str], Any], path: str, table: str, create: Callable[..., bool]) -> None:
        self._pin = pin
        self._path = path
        self._table = table
        self._create = create

    def __call__(self, name: str, data: bytes, tag: str) -> bool:
        what = reached(f"send.{self._table}") if b"lakeward.round" in data else ""
        if what not in {"lose-request", "lose-answer", "deliver-late"}:
            return self._create(name, data, tag)
        if what == "lose-answer":
            self._create(name, data, tag)
        if what == "deliver-late":
            # By then the folder of this commit is closed.
            arguments = (self._pin(self._path), name, data, tag)
            threading.Thread(target=self._send_late, args=arguments, daemon=True).start()
        message = f"no answer whether {name} was created: {what}"
        raise OutcomeUnknownError(message)

    def _send_late(self, folder: Any, name: str, data: bytes, tag: str) -> None:  # noqa: ANN401 - as above
        with folder:
            reached(f"late.{self._table}")
            landed = folder.create(name, data, tag)
        reached(f"late-landed.{self._table}" if landed else f"late-refused.{self._table}")


class UpkeptPaimonPlugin(FaultyPaimonPlugin):
    """The lake `paimon-upkept`, whose tables are compacted; one table at a time has points in its tasks."""

    def open(self, options: Any, clock: Clock) -> FaultyLake:  # noqa: ANN401 - the options of the lake
        return UpkeptLake(self.inner.open(options, clock))

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        reached("upkeep-task-begun")
        result = super().upkeep(task, attempt, check)
        reached("upkeep-task-done")
        return result
