"""The components and options of a service: built by the container, faked in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward.coordinator.state.state_writer import ServiceStateWriter
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.model.dead_letters import ReplayRequest
    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import Settings, TableSettings
    from lakeward.model.spans import RoundSpan
    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import CheckpointStore, Clock, Jobs, Lake, Source, Transport
    from lakeward.storage.commit_records import CommitRecords
    from lakeward.storage.round_journal import JournalStore


@dataclass(frozen=True, slots=True)
class ServiceComponents:
    """What a service works with."""

    incarnation: Incarnation
    clock: Clock
    transport: Transport
    source: Source
    lake: Lake
    jobs: Jobs
    backend: LeaseBackend
    state: ServiceStateWriter
    journals: JournalStore
    committed: CommitRecords
    checkpoints: CheckpointStore


def _nothing() -> None:
    """Change nothing."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How a service behaves. Seconds where a name ends in `_s`."""

    settings: Settings
    rules: Callable[[TablePath], TableSettings]
    paused: Callable[[], frozenset[str]]
    """Returns the names of the tables that are paused; called in each turn of the loop."""
    resumed: Callable[[], Mapping[str, int]]
    """Returns by table name how often a resume was requested; called in each turn of the loop."""
    upkeep: Callable[[], Mapping[str, int]]
    """Returns by table name how often upkeep was requested; called in each turn of the loop."""
    on_report: Callable[[ServiceReport], None]
    on_round: Callable[[RoundReport], None]
    """Takes each round that has ended and had something to do; returns at once."""
    host: str
    """Where subtasks reach us."""
    bind: str
    spark_ui: str | None
    once: bool
    final: bool
    trusted: str = ""
    """Certificates (PEM text) that subtasks trust; empty: they connect without TLS."""
    most_heartbeat_call_s: float = 30.0
    """A heartbeat without an answer is given up after this time, or after the fence time where that is shorter."""
    turn_s: float = 0.25
    """Longest sleep of the loop: after it the loop checks for silent subtasks, pauses and due reports."""
    forget_every_s: float = 3600.0
    """Seconds between two checks for tables that were dropped while they had no round."""
    mirrors: bool = False
    """Whether any table may be mirrored; if not, the source's tables are not listed for that."""
    refresh: Callable[[], None] = _nothing
    """Called at each heartbeat: it may block, and change what the rules say."""
    complete_ms: Mapping[int, int] = field(default_factory=dict)
    """By table id the moment up to which earlier starts had completed the lake, as far as is known."""
    replay: Callable[[], Mapping[str, ReplayRequest]] = dict
    """Returns by table name the newest request to replay dead letters; called in each turn of the loop."""
    on_span: Callable[[RoundSpan], None] | None = None
    """Takes the spans of rounds, None where nobody wants them; returns at once."""

    @property
    def heartbeat_call_timeout_s(self) -> float:
        """Seconds after which a heartbeat is given up."""
        return min(self.most_heartbeat_call_s, self.settings.service.fence_s)

    def included(self, path: TablePath) -> bool:
        """Return whether the configuration includes a table."""
        return self.rules(path).include

    def as_promised(self, assignment: TableAssignment) -> TableAssignment:
        """Return an assignment with the freshness of the configuration, if that has one for the table."""
        promised = self.rules(assignment.path).freshness_s
        return assignment if promised is None else replace(assignment, freshness_s=promised)

    def path(self, name: str) -> TablePath:
        """Parse a table's name."""
        return TablePath.parse(name)
