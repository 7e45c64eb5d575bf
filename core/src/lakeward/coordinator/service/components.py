"""What a service is made of and how it behaves: built by the container, faked in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.schedule import CheckpointPolicy
from lakeward.machines.rounds import RoundsPolicy
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward.coordinator.service.state_writer import ServiceStateWriter
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import TableSettings
    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import CheckpointStore, Clock, Jobs, Lake, Source, Transport
    from lakeward.storage.commit_records import CommitRecords
    from lakeward.storage.round_journal import JournalStore


@dataclass(frozen=True, slots=True)
class ServiceComponents:
    """What a service works with. `source_name` and `lake_name` are what subtasks load the plugins by."""

    incarnation: Incarnation
    clock: Clock
    transport: Transport
    source: Source
    source_name: str
    lake: Lake
    lake_name: str
    jobs: Jobs
    backend: LeaseBackend
    lease_duration_s: float
    state: ServiceStateWriter
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
    heartbeat_call_timeout_s: float
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
    trusted: str = ""
    """Certificates (PEM text) that subtasks trust; empty: they connect without TLS."""
    turn_s: float = 0.25
    """Longest sleep of the loop: silence of subtasks, pauses and reports are looked at in between."""
    forget_every_s: float = 3600.0
    """Between two looks for tables that were dropped while no round was on them."""

    def included(self, path: TablePath) -> bool:
        """Say whether a table is ours to tier."""
        return self.rules(path).include

    def as_promised(self, assignment: TableAssignment) -> TableAssignment:
        """Return an assignment with the freshness that our configuration promises, where it does."""
        promised = self.rules(assignment.path).freshness_s
        return assignment if promised is None else replace(assignment, freshness_s=promised)

    def path(self, name: str) -> TablePath:
        """Read a table's name."""
        return TablePath.parse(name)
