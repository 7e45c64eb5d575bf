"""An effect that no round has: it gives snapshots up at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.coordinator.effects.lease import LeaseProtection
from lakeward.coordinator.effects.work import Handlers
from lakeward.coordinator.rounds.effects import Effect

if TYPE_CHECKING:
    import pytest

    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.tables import TableBucket


@dataclass(frozen=True, slots=True)
class Release(Effect):
    """Release the snapshots of these buckets."""

    table_id: int
    buckets: frozenset[TableBucket]


def execute_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let services execute it."""

    def handlers(self: LeaseProtection) -> Handlers:
        def release(_: Round, effect: Release) -> None:
            self.release(effect.table_id, effect.buckets)

        found: Handlers = original(self)
        return Handlers(found.works, {**found.at_once, Release: release})

    original = LeaseProtection.handlers.fget  # type: ignore[attr-defined] # a property
    monkeypatch.setattr(LeaseProtection, "handlers", property(handlers))
