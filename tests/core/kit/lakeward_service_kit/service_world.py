"""A whole service without Spark: the embedded source, a lake in a folder, subtasks on threads over real sockets."""

from __future__ import annotations

import asyncio
import secrets
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace as changed

from lakeward.clock import SystemClock
from lakeward.container import ServiceContainer, service_container
from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.identity import Incarnation
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, Lease, Protection, RestoredLease
from lakeward.model.settings import (
    CheckpointSettings,
    LakeSettings,
    LeaseSettings,
    ObserveSettings,
    ServiceSettings,
    Settings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)
from lakeward.model.tables import TableBucket, TablePath
from lakeward.sockets import SocketTransport
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakeward.coordinator.service.service import Service, ServiceEnd
    from lakeward.model.dead_letters import ReplayRequest
    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.ports import Clock

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


_WRITES = ("complete ", "delete ", "retain checkpoints", "part-", "write the service's state")
"""Names of the threads on which a service and its subtasks write, and delete, what outlives them begin so."""


def let_writes_end() -> None:
    """Wait for what a service was writing or deleting when it was killed: a dead process does neither.

    Its event loop must have ended, as it would go on with the next one.
    """
    for thread in threading.enumerate():
        if thread.name.startswith(_WRITES):
            thread.join(LIMIT_S)


def told(lines: Iterable[Mapping[str, Any]], *levels: str) -> list[Mapping[str, Any]]:
    """Return the captured log lines of some levels that are of one service.

    Tasks of earlier tests may still look for theirs, at a port that this one listens on: they are refused, which is
    logged.
    """
    return [line for line in lines if line["log_level"] in levels and line["event"] != "connection refused"]


class PlainBackend:
    """A lease backend that passes on what it is told; its calls are in `calls`."""

    default_duration_s = 600.0

    def __init__(self) -> None:
        """Start with nothing called."""
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str], None] = lambda _hook: None

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `LeaseSpec`."""
        self._note("acquire", lease)
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """See `LeaseSpec`."""
        self._note("release", lease)
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """See `LeaseSpec`."""
        self._note("drop", lease)
        lease.server.drop(lease.lease_id)

    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes:
        """See `LeaseSpec`."""
        held = ";".join(f"{b.table_id},{b.bucket},{snapshot}" for b, snapshot in lease.held.items())
        return f"{lease.lease_id} {lease.generation} {held}".encode()

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """See `LeaseSpec`."""
        self._note(f"failover-{failover.kind.value}", lease)
        if failover.state is None:
            return FailoverAnswer(FailoverAction.KEEP)
        lease_id, generation, held = failover.state.decode().split(" ")
        numbers = [tuple(map(int, part.split(","))) for part in held.split(";") if part]
        kept = {TableBucket(table, None, bucket): snapshot for table, bucket, snapshot in numbers}
        return FailoverAnswer(FailoverAction.ACQUIRE, RestoredLease(lease_id, int(generation), kept))

    def _note(self, hook: str, lease: Lease) -> None:
        self.before(hook)
        self.calls.append((hook, lease.lease_id))


class LaterClock(SystemClock):
    """The real clock once the fence time has passed: with a shorter one, heartbeats would be given up early as well."""

    def wall_ms(self) -> int:
        return super().wall_ms() + int(2_000 * LIMIT_S)


@dataclass
class World:
    """One source, one lake, and services that come and go."""

    directory: Path
    store: EmbeddedStore
    lake: FolderLake
    backend: PlainBackend
    clock: Clock = field(default_factory=SystemClock)
    rounds: list[RoundReport] = field(default_factory=list)
    reports: list[ServiceReport] = field(default_factory=list)
    rules: Callable[[TablePath], TableSettings] = lambda _path: TableSettings()
    paused: frozenset[str] = frozenset()
    resumed: Mapping[str, int] = field(default_factory=dict)
    upkeep: Mapping[str, int] = field(default_factory=dict)
    replay: Mapping[str, ReplayRequest] = field(default_factory=dict)
    container: ServiceContainer = field(init=False)
    """Of the service that was made last."""

    @classmethod
    def create(cls, directory: Path) -> World:
        """Make a world of its own in a directory."""
        store = EmbeddedStore.create(directory / "store")
        return cls(directory, store, FolderLake(directory / "lake"), PlainBackend())

    def table(self, name: str, *, key: bool = False, buckets: int = 2, **options: Any) -> TablePath:  # noqa: ANN401 - fields of any type
        """Create a table."""
        path = TablePath("t", name)
        self.store.create_table(path, SCHEMA, ["id"] if key else (), buckets=buckets, freshness_s=0.2, **options)
        return path

    def load(self, path: TablePath, start: int, count: int, change: str | None = None) -> None:
        """Load rows `start` .. `start + count`."""
        ids = list(range(start, start + count))
        rows = pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA)
        if change is None:
            self.store.load(path, rows)
        else:
            self.store.load(path, rows.append_column("op", pa.array([change] * count)), change="op")

    def service(self, name: str = "svc", **options: Any) -> Service:  # noqa: ANN401 - fields of any type
        """Make a service; `options` replace components, options and keys of the settings.

        A key of the settings is named with its section (`lake_type`), or alone where only one section has it.
        """
        self.container = self.service_container(name, **options)
        return self.container.service()

    def service_container(self, name: str = "svc", **options: Any) -> ServiceContainer:  # noqa: ANN401 - as above
        """Make the container of a service. See `service`."""
        incarnation = Incarnation(name, self.clock.wall_ms(), secrets.token_hex(8))
        files = SmallFiles(str(self.directory / "state"))
        parts = ServiceComponents(
            incarnation=incarnation,
            clock=self.clock,
            transport=SocketTransport(self.clock),
            source=EmbeddedSource(EmbeddedStore.open(self.store.root)),
            lake=self.lake,
            jobs=ThreadJobs(run_subtask),
            backend=LeaseBackend("plain", self.backend),
            state=ServiceStateWriter(ServiceStateStore(files), incarnation, "plain", self.clock),
            journals=JournalStore(files, name),
            committed=CommitRecords(files, name),
            checkpoints=CheckpointFiles(files, self.clock),
        )
        ours = {key: options.pop(key) for key in list(options) if hasattr(parts, key)}
        plain = self._options()
        keys = {key: options.pop(key) for key in list(options) if not hasattr(plain, key)}
        settings = with_keys(options.pop("settings", plain.settings), keys)
        return service_container(replace(parts, **ours), replace(plain, settings=settings, **options))

    def once(self, **options: Any) -> ServiceEnd:  # noqa: ANN401 - fields of any type
        """Run a service until every target is settled."""
        return asyncio.run(self.service(**{"once": True, **options}).serve())

    def outcomes(self, path: TablePath) -> list[str]:
        """Return how the rounds of a table ended."""
        return [report.outcome for report in self.rounds if report.table == str(path)]

    def _options(self) -> ServiceOptions:
        return ServiceOptions(
            settings=self.settings,
            rules=lambda path: self.rules(path),  # noqa: PLW0108 - asked afresh: tests change it
            paused=lambda: self.paused,
            resumed=lambda: self.resumed,
            upkeep=lambda: self.upkeep,
            replay=lambda: self.replay,
            on_report=self.reports.append,
            on_round=self.rounds.append,
            host="127.0.0.1",
            bind="127.0.0.1",
            spark_ui=None,
            once=False,
            final=False,
            most_heartbeat_call_s=LIMIT_S,
            turn_s=0.05,
        )

    @property
    def settings(self) -> Settings:
        """What a service is configured with that names no key."""
        return Settings(
            service=ServiceSettings(
                rounds=2,
                renew_s=1.0,
                poll_s=0.05,
                fence_s=LIMIT_S,
                max_round_s=30.0,
                backoff_first_s=0.05,
                backoff_most_s=0.2,
                stop_timeout_s=LIMIT_S,
            ),
            source=SourceSettings(type="embedded", heartbeat_timeout_s=120.0),
            lake=LakeSettings(type="folder", commit_timeout_s=LIMIT_S, expire_every=2),
            lease=LeaseSettings(duration_s=600.0, call_timeout_s=LIMIT_S),
            checkpoint=CheckpointSettings(root=str(self.directory / "state"), interval_s=30.0, retained=2),
            spark=SparkSettings(subtask_timeout_s=LIMIT_S, reconnect_s=1.0, job_attempts=2),
            observe=ObserveSettings(progress_s=0.05),
        )


def with_keys(settings: Settings, keys: Mapping[str, object]) -> Settings:
    """Change keys of the settings: `<section>_<key>`, or `<key>` where only one section has it."""
    for name, value in keys.items():
        sections = [section for section in settings.__struct_fields__ if section != "tables"]
        named = [(section, name.removeprefix(f"{section}_")) for section in sections if name.startswith(f"{section}_")]
        places = [
            (section, key)
            for section, key in [*named, *((section, name) for section in sections)]
            if key in getattr(settings, section).__struct_fields__
        ]
        if len(places) != 1:
            message = f"{name}: expected the key of one section, found {places}"
            raise ValueError(message)
        ((section, key),) = places
        settings = changed(settings, **{section: changed(getattr(settings, section), **{key: value})})
    return settings
