"""The metrics of the service, its lease and its tables, from its newest report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.metrics_core import Metric

    from lakeward.model.status import ServiceReport, TableReport

_NEVER = {"committed": 0, "failed": 0, "fenced": 0}
"""Series that are there before such a round has ended, so that the first one is an increase."""
STATES = ("starting", "serving", "stopping", "stopped")


def service_metrics(report: ServiceReport) -> Iterable[Metric]:
    """Return the metrics of the service and its lease, of its newest report."""
    yield GaugeMetricFamily(
        "lakeward_report_timestamp_seconds",
        "When the service reported last, since 1970. It does so twice a second, or every 5 s at least.",
        value=report.written_ms / 1000,
    )
    state = GaugeMetricFamily("lakeward_service_state", "1 for the state of the service, else 0.", labels=["state"])
    for name in STATES:
        state.add_metric([name], float(name == report.state))
    yield state
    yield GaugeMetricFamily("lakeward_rounds_running", "Rounds that run now.", value=len(report.running))
    yield GaugeMetricFamily("lakeward_lease_buckets", "Buckets whose snapshot is leased.", value=report.leased)
    yield GaugeMetricFamily(
        "lakeward_lease_releasing_buckets", "Buckets whose lease is still to be released.", value=report.releasing
    )
    away_s = 0.0 if report.lake_away is None else (report.written_ms - report.lake_away.since_ms) / 1000
    yield GaugeMetricFamily(
        "lakeward_lake_away_seconds", "For how long the lake's catalog has not answered; 0 while it does.", value=away_s
    )
    if report.state_free_bytes is not None:
        yield GaugeMetricFamily(
            "lakeward_state_disk_free_bytes",
            "Free bytes of the disk with the state, journals and checkpoints; without a series where that is a store.",
            value=report.state_free_bytes,
        )
    if report.leased and report.lease_expires_ms is not None:
        yield GaugeMetricFamily(
            "lakeward_lease_expiry_timestamp_seconds",
            "When the lease ends unless it is renewed, since 1970. Only while snapshots are leased.",
            value=report.lease_expires_ms / 1000,
        )


def table_metrics(report: ServiceReport) -> Iterable[Metric]:
    """Return the metrics of each table, of the newest report; a value that is not known has no series."""
    for name, meaning, value in _GAUGES:
        gauge = GaugeMetricFamily(f"lakeward_table_{name}", meaning, labels=["table"])
        _fill(gauge, report, value)
        yield gauge
    for name, meaning, value in _COUNTERS:
        counter = CounterMetricFamily(f"lakeward_table_{name}", meaning, labels=["table"])
        _fill(counter, report, value)
        yield counter
    yield _rounds_ended(report)
    status = GaugeMetricFamily(
        "lakeward_table_status",
        "1 for the status that a table has, as on the status page; its others have no series.",
        labels=["table", "status"],
    )
    for table in report.tables:
        if table.condition is not None:
            status.add_metric([table.path, table.condition.status], 1)
    yield status


def _rounds_ended(report: ServiceReport) -> CounterMetricFamily:
    ended = CounterMetricFamily(
        "lakeward_table_rounds", "Rounds that ended since the service started.", labels=["table", "outcome"]
    )
    for table in report.tables:
        for outcome, rounds in {**_NEVER, **table.ended}.items():
            ended.add_metric([table.path, outcome], rounds)
    return ended


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily,
    report: ServiceReport,
    value_of: Callable[[TableReport], float | None],
) -> None:
    for table in report.tables:
        value = value_of(table)
        if value is not None:
            family.add_metric([table.path], value)


def _complete(table: TableReport) -> float | None:
    return None if table.complete_ms is None else table.complete_ms / 1000


_GAUGES: tuple[tuple[str, str, Callable[[TableReport], float | None]], ...] = (
    ("lag_rows", "Rows that the source has and the lake lacks, as far as is known.", lambda table: table.lag_rows),
    (
        "complete_timestamp_seconds",
        "The moment, since 1970, of which the lake has every row: its age is the freshness that is delivered.",
        _complete,
    ),
    ("promised_freshness_seconds", "The freshness that was promised for the table.", lambda table: table.freshness_s),
    (
        "queue_position",
        "1 for the table whose round starts next, 0 for one that does not wait.",
        lambda table: table.queue_position or 0,
    ),
    ("lake_files", "Data and delete files of the lake table after its last round.", lambda table: table.lake_files),
    (
        "small_files",
        "Data files that are small enough to be merged, when upkeep was planned last.",
        lambda table: None if table.counts is None else table.counts.small_files,
    ),
    (
        "delete_files",
        "Delete files of the lake table, when upkeep was planned last.",
        lambda table: None if table.counts is None else table.counts.delete_files,
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[TableReport], float | None]], ...] = (
    ("rows", "Rows that they read.", lambda table: table.rows),
    ("rows_dropped", "Rows that did not fit the lake table and are nowhere in the lake.", lambda table: table.dropped),
    ("dead_letters", "Rows that did not fit the lake table and are dead letters.", lambda table: table.dead_letters),
)
