"""A round is changed by the event loop alone: workers get what is fixed, and return results."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.model.settings import TableSettings
from lakeward_service_kit.service_world import World

if TYPE_CHECKING:
    import pytest


def test_no_thread_but_the_loops_changes_a_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writers: dict[str, set[int]] = {}
    change = RoundFacts.__setattr__

    def note(self: RoundFacts, name: str, value: Any) -> None:  # noqa: ANN401 - of any field
        writers.setdefault(name, set()).add(threading.get_ident())
        change(self, name, value)

    monkeypatch.setattr(RoundFacts, "__setattr__", note)
    log, keyed = world.table("log"), world.table("keyed", key=True)
    for path in (log, keyed):
        world.load(path, 0, 100)
    world.store.snapshot(keyed)
    world.rules = lambda _: TableSettings(commit_every=0.01)
    service = world.service(once=True, interval_s=0.05)
    assert asyncio.run(service.serve()).failed == ()
    assert {"context", "journal", "launched", "snapshot_id", "restored", "outcome"} <= writers.keys()
    assert {name for name, threads in writers.items() if threads != {threading.get_ident()}} == set()
