"""What a service is made of and how it behaves: built by the container, faked in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.machines.checkpoint_schedule import CheckpointPolicy
from lakeward.machines.rounds import RoundsPolicy
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward.checkpoint.commit_records import CommitRecords
    from lakeward.checkpoint.journal import JournalStore
    from lakeward.coordinator.statekeeper import StateKeeper
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import TableSettings
    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.model.tiering import Offer
    from lakeward.ports import CheckpointStore, Clock, Jobs, Lake, Source


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service works with. `source_name` and `lake_name` are what subtasks load the plugins by."""

    incarnation: Incarnation
    clock: Clock
    source: Source
    source_name: str
    lake: Lake
    lake_name: str
    jobs: Jobs
    backend: LeaseBackend
    lease_duration_s: float
    state: StateKeeper
    journals: JournalStore
    committed: CommitRecords
    checkpoints: CheckpointStore
    checkpoint_root: str
    """Where subtasks find that store."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How a service behaves. Seconds where a name ends in `_s`."""

    rounds: RoundsPolicy
    rules: Callable[[TablePath], TableSettings]
    paused: Callable[[], frozenset[str]]
    """Tables that people have paused, by name; asked each turn."""
    resumed: Callable[[], Mapping[str, int]]
    """How often people have asked to go on with a table, by name; asked each turn."""
    on_report: Callable[[ServiceReport], None]
    on_round: Callable[[str, RoundReport], None]
    host: str
    bind: str
    port: int
    spark_ui: str | None
    once: bool
    final: bool
    heartbeat_timeout_s: float
    beat_timeout_s: float
    stop_timeout_s: float
    lease_timeout_s: float
    commit_timeout_s: float
    subtask_timeout_s: float
    job_attempts: int
    progress_s: float
    expire_every: int
    checkpoint_policy: CheckpointPolicy
    retained: int
    """Completed checkpoints of a table that are kept."""

    def included(self, path: TablePath) -> bool:
        """Say whether a table is ours to tier."""
        return self.rules(path).include

    def as_promised(self, offer: Offer) -> Offer:
        """Return an offer with the freshness that our configuration promises, where it does."""
        promised = self.rules(offer.path).freshness_s
        return offer if promised is None else replace(offer, freshness_s=promised)

    def path(self, name: str) -> TablePath:
        """Read a table's name."""
        return TablePath.parse(name)
