"""What one launch of a round's job is told, and what each of its tasks is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One launch. `title` is what the Spark UI shows; `secret` is proved on every connection.

    `trusted` are the certificates (PEM text) of which one has to vouch for the driver; empty: no TLS.
    """

    round_name: str
    job_attempt: int
    subtasks: int
    title: str
    tag: str
    pool: str
    host: str
    port: int
    secret: bytes = field(repr=False)
    fence_s: float
    trusted: str = ""
    exchange: bool = False
    """Whether its subtasks exchange rows: they run all at once, and end together."""
    exchange_host: str = ""
    """What other executors reach a subtask's machine at; empty: the address that its connection to the driver has."""
    log: str = "text"
    """Form of the log lines of its tasks, see `[observe] log`."""
    log_level: str = "warning"
    traced: bool = False
    """Whether the log lines of its tasks have the id of the round's trace."""

    @property
    def group(self) -> str:
        """The job group: the round and the launch."""
        return f"lakeward {self.round_name} launch {self.job_attempt}"

    @property
    def call_site(self) -> str:
        """The name of its stage on Spark's pages; `pool` is named after the table."""
        return f"tier {self.pool}: round {self.round_name}, launch {self.job_attempt}"


@dataclass(frozen=True, slots=True)
class SubtaskPlace:
    """One task of a launch. `spark_attempt` is Spark's number, for logs only: the coordinator gives its own."""

    job: JobSpec
    subtask: int
    spark_attempt: int


@dataclass(frozen=True, slots=True)
class UpkeepJob:
    """A job of upkeep. `table` and `name` (of its plan) name it; `title` is what the Spark UI shows.

    `orders` has an encoded `lakeward.model.upkeep.UpkeepOrder` for each task, which is sent to that task alone.
    """

    table: str
    name: str
    what: str
    title: str
    orders: tuple[bytes, ...] = field(repr=False)

    @property
    def tag(self) -> str:
        """The job's tag, and a part of the names of its threads."""
        return f"lakeward-upkeep-{self.name}"

    @property
    def group(self) -> str:
        """The job group: the table and the plan."""
        return f"lakeward upkeep of {self.table} {self.name}"

    @property
    def pool(self) -> str:
        """The pool of Spark's scheduler, one for all jobs of upkeep."""
        return "lakeward upkeep"

    @property
    def call_site(self) -> str:
        """The name of its stage on Spark's pages."""
        return f"{self.what} of {self.table}: {self.name}"


@dataclass(frozen=True, slots=True)
class UpkeepJobEnd:
    """How a job of upkeep ended: what each of its tasks returned, or why it failed."""

    outcomes: tuple[str, ...] = ()
    reason: str | None = None
