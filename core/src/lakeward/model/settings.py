"""The configuration as values: one frozen dataclass for each section; key, unit, default and meaning in one place.

`lakeward.config` reads them from TOML, environment and flags and remembers where each value came from. A field's
`metadata["description"]` is its line in the reference; `metadata["check"]` names the range in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def _key(default: Any, description: str, **extra: Any) -> Any:  # noqa: ANN401 - stands for a field of any type
    return field(default=default, metadata={"description": description, **extra})


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`[service]`: who we are and how fast we turn."""

    name: str = _key(
        "lakeward", "Name of the service; letters, digits, `.` and `_`. A restart under the same name goes on."
    )
    rounds: int = _key(2, "Rounds (tables) side by side.", least=1)
    poll_s: float = _key(1.0, "Seconds between two questions for work while there is none.", above=0)
    renew_s: float = _key(20.0, "Seconds between two renewals of the tables in hand.", above=0)
    fence_s: float = _key(45.0, "Seconds after its last renewal in which a table may still be committed.", above=0)
    max_round_s: float = _key(600.0, "Seconds after which a round ends early and commits what is whole.", above=0)
    backoff_first_s: float = _key(1.0, "Seconds that a failed table waits the first time; doubles each time.", above=0)
    backoff_most_s: float = _key(300.0, "Seconds that a failed table waits at the most.", above=0)
    stop_timeout_s: float = _key(30.0, "Seconds that a stop waits for rounds to end and commit.", above=0)
    host: str = _key("", "Address that subtasks reach the driver at; empty: Spark's driver host.")
    port: int = _key(0, "Port that subtasks reach the driver at; 0: any free one.", least=0)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """`[source]`: which source, and its own keys."""

    type: str = _key("embedded", "Name of an installed source.")
    heartbeat_timeout_s: float = _key(120.0, "The source's own timeout for a table without heartbeat.", above=0)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """`[lake]`: which lake, and its own keys."""

    type: str = _key("iceberg", "Name of an installed lake.")
    commit_timeout_s: float = _key(
        60.0, "Seconds after which a commit without an answer is of unknown outcome.", above=0
    )
    expire_every: int = _key(10, "Commits to one table between two expiries of old snapshots.", least=1)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """`[lease]`: which lease backend."""

    backend: str = _key("fluss", "Name of an installed lease backend.")
    duration_s: float | None = _key(
        None, "Seconds that a lease lives without renewal; unset: the backend's default.", above=0
    )
    call_timeout_s: float = _key(15.0, "Seconds after which a call of the backend is of unknown outcome.", above=0)
    wrappers: tuple[str, ...] = _key(("metrics",), "Wrappers around the backend, outermost first.")


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`[checkpoint]`: where state is kept, and how often a round's is."""

    root: str = _key(
        "lakeward-state",
        "Directory (or URI) of the service's state, journals and checkpoints, which every subtask can reach; "
        "relative to the configuration file.",
    )
    interval_s: float = _key(30.0, "Seconds from one checkpoint of a round to the next; 0: none are taken.", least=0)
    timeout_s: float = _key(120.0, "Seconds after which a checkpoint that is not complete is given up.", above=0)
    pause_s: float = _key(1.0, "Seconds between the end of a checkpoint and the next one, at the least.", least=0)
    tolerated: int = _key(5, "Checkpoints in a row that may fail; one more fails the round.", least=0)
    retained: int = _key(2, "Completed checkpoints of a table that are kept.", least=1)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """`[spark]`: the Spark that runs the rounds."""

    master: str = _key("local[*]", "Spark master; `local[N]` is turned into `local[N,4]` so that tasks are retried.")
    slots: int = _key(0, "Subtasks in all, over all rounds side by side; 0: the default parallelism of Spark.", least=0)
    ui: bool = _key(default=True, description="Serve Spark's own UI.")
    job_attempts: int = _key(4, "Times that a round's job is launched before the round fails.", least=1)
    subtask_timeout_s: float = _key(
        60.0, "Seconds without a sign of life after which a subtask counts as hung.", above=0
    )
    conf: Mapping[str, str] = field(default_factory=dict, metadata={"description": "Further Spark configuration."})


@dataclass(frozen=True, slots=True)
class ObserveSettings:
    """`[observe]`: what is shown."""

    log: str = _key("text", "`text` or `json` (structured logs on standard error).", allowed=("text", "json"))
    level: str = _key("warning", "Log level.", allowed=("debug", "info", "warning", "error"))
    progress_s: float = _key(0.5, "Seconds between two reports of a subtask.", above=0)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """`[tables."db.*"]`: rules for the tables whose name matches; the most specific pattern wins, key by key."""

    include: bool = _key(default=True, description="Tier these tables.")
    mode: str = _key(
        "tier",
        "`tier`: the source knows, its clients read table and lake as one. `mirror`: a lake table of our own.",
        allowed=("tier", "mirror"),
    )
    exchange: str = _key("none", "How records get from readers to writers.", allowed=("none",))
    freshness_s: float | None = _key(None, "Promised freshness in seconds; unset: the source's own.", above=0)
    cut_rows: int = _key(
        4_000_000, "Log splits of append-only tables are cut into ranges of about this many rows; 0: never.", least=0
    )
    commit_every: float = _key(
        0.0,
        "How often a round commits what its newest checkpoint holds, instead of all at its end; 0: never.",
        least=0,
        duration=True,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration. `tables` maps a pattern to its rules, in the order of the file."""

    service: ServiceSettings = field(default_factory=ServiceSettings)
    source: SourceSettings = field(default_factory=SourceSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    observe: ObserveSettings = field(default_factory=ObserveSettings)
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
