"""The configuration as values: one struct for each section, with each key's type, bounds, default and meaning.

Nothing else has defaults of its own. `lakeward.config` reads the sections from TOML, environment and flags and
remembers where each value came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from lakeward.model.object_store import address_of
from lakeward.model.options import ByteSize, Duration, LocalPath, Meta, Options
from lakeward.model.tables import TablePath

TableMode = Literal["tier", "mirror"]
ExchangeChoice = Literal["auto", "none", "hash"]
SchemaChange = Literal["evolve", "freeze", "discard_row", "discard_value"]
DISCARD_ROW = "discard_row"
BadRowChoice = Literal["suspend", "dead_letter", "drop"]
_THIS_MACHINE = re.compile(r"local(-cluster)?(\[.*\])?")
DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
COMMIT_TIMEOUT_S = 60.0
"""Default of `lake.commit_timeout_s`, for lakes that declare this key too."""


class ServiceSettings(Options, frozen=True, kw_only=True):
    """`[service]`: the name of the service and how it works."""

    name: Annotated[
        str,
        Meta(description="Name of the service; letters, digits, `.` and `_`. A restart under the same name continues."),
    ] = "lakeward"
    tables: Annotated[
        tuple[str, ...],
        Meta(
            description="Tables that only this service tiers, as names or patterns (`sales.*`), where several services "
            "share a source and a `checkpoint.root`. The most specific pattern of all services wins."
        ),
    ] = ()
    shared: Annotated[bool, Meta(description="Tier the tables too that no service has in its `tables`.")] = True
    rounds: Annotated[
        int, Meta(ge=1, description="Rounds (tables) at the same time; one that commits does not count.")
    ] = 2
    poll_s: Annotated[
        float, Meta(gt=0, description="Seconds between two polls of the source while no table is due.")
    ] = 1.0
    renew_s: Annotated[float, Meta(gt=0, description="Seconds between two heartbeats for a table that is tiered.")] = (
        20.0
    )
    fence_s: Annotated[
        float, Meta(gt=0, description="Seconds after its last heartbeat in which a table may still be committed.")
    ] = 45.0
    max_round_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds after which a round finishes early and commits what it has read; they count from "
            "when its first subtask runs.",
        ),
    ] = 600.0
    backoff_first_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds that a failed table waits the first time, and a split, a launch or a commit of its "
            "round after its second failure; doubles each time.",
        ),
    ] = 1.0
    backoff_most_s: Annotated[
        float, Meta(gt=0, description="Longest wait of a failed table in seconds; a split waits 10 at the most.")
    ] = 300.0
    max_tables: Annotated[
        int,
        Meta(
            ge=1,
            description="Tables that the service takes from the source to choose from, the one nearest to missing its "
            "promised freshness first. Fewer leave more to other services that share the source.",
        ),
    ] = 500
    yield_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds after which a round finishes early, and goes on in another one, if a table waits "
            "whose promised freshness is missed.",
        ),
    ] = 60.0
    suspend_after: Annotated[
        int,
        Meta(
            ge=1,
            description="Rounds of a table that may fail in a row before it is suspended. Only those count before "
            "which other tables were served: while none is, as when a catalog is down, all are tried again.",
        ),
    ] = 20
    stop_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds that a stop waits for rounds to end and commit.")
    ] = 30.0
    host: Annotated[
        str,
        Meta(
            description="Host name or address that executors reach the driver at; empty: Spark's `spark.driver.host`."
        ),
    ] = ""
    bind: Annotated[
        str,
        Meta(
            description="Address of the driver to listen at; empty: the loopback address where the master is "
            "`local[...]` and `host` is empty, else all addresses."
        ),
    ] = ""
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port of the driver that executors connect to; 0: any free one.")
    ] = 0
    tls_cert: Annotated[
        LocalPath,
        Meta(description="PEM file of the driver's certificate, for `host`; set: executors connect by TLS only."),
    ] = ""
    tls_key: Annotated[
        LocalPath, Meta(description="PEM file of its private key, without a password; empty: it is in `tls_cert`.")
    ] = ""
    tls_ca: Annotated[
        LocalPath,
        Meta(description="PEM file of the authorities that executors trust; empty: the certificate in `tls_cert`."),
    ] = ""


class SourceSettings(Options, frozen=True, kw_only=True):
    """`[source]`: which source; further keys are the source's own."""

    type: Annotated[str, Meta(description="Name of an installed source.")] = "embedded"
    heartbeat_timeout_s: Annotated[
        float, Meta(gt=0, description="The source's own timeout in seconds for a table without heartbeat.")
    ] = 120.0
    read_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds without a record of a split after which its reader counts as hung; the round is "
            "given up, and its table waits out its back-off.",
        ),
    ] = 300.0
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)


class LakeSettings(Options, frozen=True, kw_only=True):
    """`[lake]`: which lake; further keys are the lake's own."""

    type: Annotated[str, Meta(description="Name of an installed lake.")] = "iceberg"
    commit_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds after which a commit without an answer is of unknown outcome.")
    ] = COMMIT_TIMEOUT_S
    expire_every: Annotated[
        int, Meta(ge=1, description="Commits to one table between two expiries of old snapshots.")
    ] = 10
    upkeep_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds after which a job of upkeep, such as a compaction, is cancelled and tried again "
            "later.",
        ),
    ] = 3600.0
    open_files: Annotated[
        int,
        Meta(
            ge=1,
            description="Partitions that a subtask has an open file for, at most, where a table has a "
            "`lake_partition`; for one more, the largest file is closed.",
        ),
    ] = 64
    write_memory: Annotated[
        ByteSize,
        Meta(
            description="Rows that a subtask holds until a partition has enough of them for a row group, at most, "
            "where a table has a `lake_partition`. With less memory row groups are smaller."
        ),
    ] = 128 << 20
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)


class LeaseSettings(Options, frozen=True, kw_only=True):
    """`[lease]`: which lease backend; further keys are the backend's own."""

    backend: Annotated[str, Meta(description="Name of an installed lease backend.")] = "fluss"
    duration_s: (
        Annotated[
            float, Meta(gt=0, description="Seconds that a lease lives without renewal; unset: the backend's default.")
        ]
        | None
    ) = None
    call_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds after which a call of the backend is of unknown outcome.")
    ] = 15.0
    wrappers: Annotated[tuple[str, ...], Meta(description="Wrappers around the backend, outermost first.")] = (
        "metrics",
    )


class CheckpointSettings(Options, frozen=True, kw_only=True):
    """`[checkpoint]`: where state is kept, and how often a round's state is saved."""

    root: Annotated[
        LocalPath,
        Meta(
            description="Directory (or URI) of the service's state, journals and checkpoints, which every subtask can "
            "reach; relative to the configuration file."
        ),
    ] = "lakeward-state"
    shared: Annotated[
        bool,
        Meta(
            description="True: the directory `root` is a mount that every machine of the cluster has at this path. "
            "Without it, a cluster needs a URI."
        ),
    ] = False
    storage: Annotated[
        Mapping[str, str],
        Meta(
            description="How the object store of `root` is reached: `access_key`, `secret_key`, `endpoint_override`, "
            "`region` and others of pyarrow's S3 file system; left out: AWS's environment variables and files.",
            extra={"secret": True},
        ),
    ] = msgspec.field(default_factory=dict)
    interval_s: Annotated[
        float, Meta(ge=0, description="Seconds from one checkpoint of a round to the next; 0: none are taken.")
    ] = 30.0
    timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds after which a checkpoint that is not complete is aborted.")
    ] = 120.0
    pause_s: Annotated[
        float, Meta(ge=0, description="Shortest time in seconds between the end of a checkpoint and the next one.")
    ] = 1.0
    tolerated: Annotated[
        int, Meta(ge=0, description="Checkpoints in a row that may fail; one more fails the round.")
    ] = 5
    retained: Annotated[int, Meta(ge=1, description="Completed checkpoints of a table that are kept.")] = 2
    unaligned: Annotated[
        bool,
        Meta(
            description="With an exchange: whether a barrier may overtake records that wait, which the checkpoint then "
            "holds."
        ),
    ] = True
    aligned_timeout_s: Annotated[
        Duration,
        Meta(
            description="With an exchange: how long a barrier waits for the records before it, before it overtakes "
            "them; 0: not at all."
        ),
    ] = 1.0
    open_rows: Annotated[
        ByteSize,
        Meta(
            description="Rows in open files of a subtask that a checkpoint leaves open, at most, where a table has a "
            "`lake_partition`; beyond that, files are closed early. With an exchange the checkpoint holds these rows "
            "and memory those that no checkpoint has yet; without one they are read again after a failure."
        ),
    ] = 256 << 20

    during_recovery: Annotated[
        bool,
        Meta(
            description="With an exchange: whether checkpoints are taken while the rows of a restored one are still "
            "written. Without `unaligned`, checkpoints wait until all of them are, and nothing is spilled; `true` "
            "beside `unaligned = false` is refused."
        ),
    ] = True
    spill_dirs: Annotated[
        tuple[str, ...],
        Meta(
            description="With `during_recovery`: directories of each executor's machine, absolute and there already, "
            "that restored rows are spilled to, in a folder that only the service's user can enter. Empty: where Spark "
            "has its local directories."
        ),
    ] = ()
    spill_quota: Annotated[
        int,
        Meta(
            ge=1, extra={"size": True}, description="With `during_recovery`: bytes that a subtask may spill, at most."
        ),
    ] = 16 << 30
    memory: Annotated[
        int,
        Meta(
            ge=1,
            extra={"size": True},
            description="With `during_recovery`: bytes of spilled rows that a subtask reads ahead of its writer; one "
            "batch may go beyond.",
        ),
    ] = 32 << 20

    @property
    def spill_places(self) -> tuple[str, ...]:
        """Where a recovery spills rows, in words; empty where it does not: an aligned checkpoint waits for its end."""
        if not (self.during_recovery and self.unaligned):
            return ()
        return self.spill_dirs or ("Spark's local directories",)

    @property
    def address(self) -> str:
        """`root` with what `storage` says; it holds secrets, so it is never shown without `mask_uri`."""
        return address_of(self.root, self.storage)


class SparkSettings(Options, frozen=True, kw_only=True):
    """`[spark]`: the Spark that runs the rounds."""

    master: Annotated[
        str, Meta(description="Spark master; `local[N]` is turned into `local[N,4]` so that tasks are retried.")
    ] = "local[*]"
    slots: Annotated[
        int, Meta(ge=0, description="Subtasks of all rounds together; 0: the default parallelism of Spark.")
    ] = 0
    connect_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds in which a master on other machines has to answer when Spark starts.")
    ] = 60.0
    ui: Annotated[bool, Meta(description="Serve Spark's own UI.")] = True
    job_attempts: Annotated[
        int, Meta(ge=1, description="Times that a round's job is launched before the round fails.")
    ] = 4
    subtask_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds without a message after which a subtask counts as hung.")
    ] = 60.0
    reconnect_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds in which a subtask whose connection closed may come back; then its splits are read "
            "by others.",
        ),
    ] = 5.0
    exchange_host: Annotated[
        str,
        Meta(
            description="Where executors reach each other when their subtasks exchange rows: a network "
            "(`10.0.0.0/8`, `fd00::/8`), in which each of them takes its own address, or a name or address, the same "
            "for all of them. Empty: of each executor, the address of its route to the driver."
        ),
    ] = ""
    class_archive: Annotated[
        LocalPath,
        Meta(
            description="Directory of archives of the classes that Spark's Java loads, about 75 MB for each version; a "
            "start with an archive needs a third less processor time. Empty: none. Without effect where `conf` has a "
            "`spark.driver.extraJavaOptions`."
        ),
    ] = ""
    conf: Annotated[Mapping[str, str], Meta(description="Further Spark configuration.")] = msgspec.field(
        default_factory=dict
    )

    @property
    def on_this_machine(self) -> bool:
        """True where the master is `local...` or `local-cluster...`: all executors see the files of this machine."""
        return _THIS_MACHINE.fullmatch(self.master.strip()) is not None

    @property
    def dynamic_allocation(self) -> bool:
        """True where `conf` lets Spark add and remove executors: it runs no barrier stage then, so no exchange."""
        return self.conf.get(DYNAMIC_ALLOCATION, "false").strip().lower() == "true"


class ObserveSettings(Options, frozen=True, kw_only=True):
    """`[observe]`: what is shown."""

    log: Annotated[
        Literal["text", "json"], Meta(description="`text` or `json` (structured logs on standard error).")
    ] = "text"
    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Log level.")] = "warning"
    progress_s: Annotated[float, Meta(gt=0, description="Seconds between two reports of a subtask.")] = 0.5
    status_port: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=65535,
                description="Port of the status page, which also has `/metrics`, `/healthz`, `/readyz` and "
                "`/status.json`; 0: any free one; unset: no page. Needs `pip install 'lakeward[page]'`.",
            ),
        ]
        | None
    ) = None
    status_host: Annotated[
        str,
        Meta(
            description="Address that the status page listens at. Whoever reaches it can read it: it has no password "
            "and no TLS."
        ),
    ] = "127.0.0.1"
    on_status: Annotated[
        str,
        Meta(
            description="Who is told of each change of a table's status, by a JSON object: a URL to which it is "
            "posted, or a program with its arguments, whose standard input it is (no shell runs it). Empty: nobody.",
            extra={"secret": True},
        ),
    ] = ""
    telemetry: Annotated[
        bool,
        Meta(
            description="Export traces of rounds, and the metrics, by OpenTelemetry. Needs "
            "`pip install 'lakeward[telemetry]'`."
        ),
    ] = False
    telemetry_endpoint: Annotated[
        str,
        Meta(
            description="Base URL of a collector that speaks OTLP over HTTP; empty: as the environment says "
            "(`OTEL_EXPORTER_OTLP_ENDPOINT`), else `http://localhost:4318`."
        ),
    ] = ""


class TableSettings(Options, frozen=True, kw_only=True):
    """`[tables."db.*"]`: rules for the tables whose name matches; the most specific pattern wins, key by key."""

    include: Annotated[bool, Meta(description="Tier these tables.")] = True
    mode: Annotated[
        TableMode,
        Meta(
            description="`tier`: the source knows, its clients read table and lake as one. "
            "`mirror`: a lake table of our own, always so with `lake_partition`."
        ),
    ] = "tier"
    lake_partition: Annotated[
        tuple[str, ...],
        Meta(
            description="How the lake table is partitioned: columns, or transforms such as `day(ts)` and "
            "`bucket(16, id)` (year, month, day, hour, bucket, truncate). Empty: as in the source."
        ),
    ] = ()
    system_columns: (
        Annotated[
            bool,
            Meta(
                description="Whether a mirror has the columns `__bucket`, `__offset` and `__timestamp`; unset: as its "
                "lake table is, and with them where it is made. A lake table keeps its kind.",
            ),
        ]
        | None
    ) = None
    columns: Annotated[
        tuple[str, ...],
        Meta(
            description="Columns of a mirror: names and patterns such as `card_*`; `!` before one leaves it out. "
            "Empty, or only such: all others."
        ),
    ] = ()
    schema: Annotated[
        Mapping[Literal["columns", "types"], SchemaChange],
        Meta(
            description="What becomes of changes of the source's schema. `columns` are new ones, `types` wider ones. "
            "`evolve`: the lake table follows. `freeze`: the table is suspended. `discard_value`: new columns are left "
            "out. `discard_row`: the lake table stays as it is, and rows with a value in a new column, or one that the "
            "old type cannot hold, are bad rows (`on_bad_row`). These two are for mirrors alone."
        ),
    ] = msgspec.field(default_factory=dict)
    lake_name: Annotated[
        str,
        Meta(description="Name of the lake table of a mirror; empty: that of the table. Not for a pattern."),
    ] = ""
    lake_namespace: Annotated[
        str,
        Meta(description="Namespace, or database, of the lake tables of mirrors; empty: the database of the table."),
    ] = ""
    lake_properties: Annotated[
        Mapping[str, str],
        Meta(
            description="Properties of the lake table, or what its format calls options, by their own names: given to "
            "a new one, and set where they differ. One that is taken out of here stays as it is."
        ),
    ] = msgspec.field(default_factory=dict)
    exchange: Annotated[
        ExchangeChoice,
        Meta(
            description="With `lake_partition`, how rows get from readers to writers. `none`: the subtask that reads "
            "a row writes it. `hash`: one subtask writes a partition (and bucket). `auto`: what fits "
            "the table, and the round: small buckets are gathered in one file of their partition."
        ),
    ] = "auto"
    freshness_s: (
        Annotated[
            float,
            Meta(
                gt=0,
                description="Promised freshness in seconds; unset: the source's own. The source still offers the table "
                "as often as its own freshness says: a shorter promise is kept where that is as short.",
            ),
        ]
        | None
    ) = None
    max_split_rows: Annotated[
        int,
        Meta(
            ge=0,
            description="Rows of a log split of an append-only table, about; 0: no limit.",
        ),
    ] = 4_000_000
    commit_every: Annotated[
        Duration,
        Meta(
            description="How often a round commits what its newest checkpoint holds, instead of all at its end; "
            "0: never."
        ),
    ] = 0.0
    on_bad_row: Annotated[
        BadRowChoice,
        Meta(
            description="What becomes of a row that does not fit the lake table. `suspend`: its table is suspended. "
            "`dead_letter`: it is a row of the lake table `<table>__dead_letters`, with its cause. `drop`: it is "
            "counted, and is nowhere in the lake."
        ),
    ] = "suspend"
    bad_rows_most: Annotated[
        float,
        Meta(
            gt=0,
            description="Rows of a round that may not fit before the table is suspended after all, without `suspend`; "
            "below 1: a share of the records that the round reads.",
        ),
    ] = 1000.0

    def lake_path(self, path: TablePath) -> TablePath:
        """Return the name of a table's lake table."""
        return TablePath(self.lake_namespace or path.database, self.lake_name or path.table)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration. `tables` maps a pattern to its rules, in the order of the file."""

    service: ServiceSettings = ServiceSettings()
    source: SourceSettings = SourceSettings()
    lake: LakeSettings = LakeSettings()
    lease: LeaseSettings = LeaseSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    spark: SparkSettings = SparkSettings()
    observe: ObserveSettings = ObserveSettings()
    tables: Mapping[str, TableSettings] = msgspec.field(default_factory=dict)
