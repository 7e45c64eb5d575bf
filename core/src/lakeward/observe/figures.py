"""What a service's report says, as metrics, and the file that a collector finds them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.observe.files import replace_file, service_folder

if TYPE_CHECKING:
    from lakeward.model.status import ServiceReport
    from lakeward.observe.metrics import Metrics

METRICS_FILE = "metrics.prom"
LAG = "lakeward_table_lag_seconds"
NUMBER = "lakeward_checkpoint_number"
AGE = "lakeward_checkpoint_age_seconds"
SECONDS = "lakeward_checkpoint_duration_seconds"
SIZE = "lakeward_checkpoint_size_bytes"
ABORTED = "lakeward_checkpoints_aborted"
SNAPSHOTS_GONE = "lakeward_snapshots_gone_total"
"""Snapshots that were found to be gone although a round or a checkpoint needed them, each once, since the start."""
FOR_CHECKPOINTS = "lakeward_lease_retained_buckets"
"""Leased buckets whose snapshot a checkpoint has still to read."""


def note_report(metrics: Metrics, report: ServiceReport) -> None:
    """Set the gauges of every table, and let the service's counters reach what the report says.

    Args:
        metrics: the registry.
        report: the service as it is now.
    """
    metrics.reach(SNAPSHOTS_GONE, report.snapshots_gone)
    metrics.set(FOR_CHECKPOINTS, report.held_for_checkpoints)
    metrics.keep("table", {table.path for table in report.tables}, LAG, ABORTED, NUMBER, AGE, SECONDS, SIZE)
    for table in report.tables:
        metrics.set(LAG, table.lag_s or 0.0, table=table.path)
        seen = table.round.checkpoint if table.round is not None else None
        if seen is None:
            continue
        metrics.set(ABORTED, seen.aborted, table=table.path)
        if seen.name:
            metrics.set(NUMBER, float(seen.name.rpartition("-")[2]), table=table.path)
            metrics.set(AGE, (report.written_ms - seen.completed_ms) / 1000, table=table.path)
            metrics.set(SECONDS, seen.seconds, table=table.path)
            metrics.set(SIZE, seen.size_bytes, table=table.path)


def write_metrics(root: str, service: str, metrics: Metrics) -> None:
    """Replace the metrics file, in the Prometheus text format.

    Args:
        root: the state root, on this machine.
        service: the service's name.
        metrics: the registry.

    Raises:
        StorageError: the disk refused.
    """
    replace_file(service_folder(root, service) / METRICS_FILE, metrics.render().encode())
