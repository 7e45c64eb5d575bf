"""The metrics of one service, in a Prometheus registry of its own, and the file that a collector finds them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakeward.observe.files import replace_small

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from lakeward.model.status import CheckpointReport, ServiceReport

METRICS_FILE = "metrics.prom"

# Without this the file has a useless series `..._created` for each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


class ServiceMetrics(Collector):
    """What the service's newest report says, and what else is registered (the calls of lease wrappers).

    The process's own memory, processor time and open files are there too, as in any Prometheus client; the version of
    Python and its garbage collector are not.
    """

    def __init__(self) -> None:
        """Start without a report."""
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._report: ServiceReport | None = None
        self._snapshots_gone = 0

    def update(self, report: ServiceReport) -> None:
        """Take the service's newest report; tables that are not in it have no series any more."""
        self._snapshots_gone = max(self._snapshots_gone, report.snapshots_gone)
        self._report = report

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the newest report, for the registry."""
        report = self._report
        if report is None:
            return
        yield CounterMetricFamily(
            "lakeward_snapshots_gone",
            "Snapshots that were gone although a round or a checkpoint needed them, each once, since the start.",
            value=self._snapshots_gone,
        )
        yield GaugeMetricFamily(
            "lakeward_lease_retained_buckets",
            "Leased buckets whose snapshot a checkpoint has still to read.",
            value=report.held_for_checkpoints,
        )
        lag = _of_tables("lakeward_table_lag_seconds", "How long the oldest row that is not tiered has waited.")
        for table in report.tables:
            lag.add_metric([table.path], table.lag_s or 0.0)
        yield lag
        yield from _slots(report)
        yield from _checkpoints(report)

    def write(self, root: str, service: str) -> None:
        """Replace the metrics file, in the Prometheus text format.

        Args:
            root: the state root.
            service: the service's name.

        Raises:
            StorageError: the disk or the store refused.
        """
        replace_small(root, service, METRICS_FILE, generate_latest(self.registry))


def _slots(report: ServiceReport) -> Iterable[Metric]:
    there = _of_tables("lakeward_slots", "Slots that Spark has given to the running round.")
    asked = _of_tables("lakeward_slots_asked", "Slots that the running round asks Spark for.")
    for table in report.tables:
        if table.round is not None and table.round.slots_asked:
            there.add_metric([table.path], table.round.slots)
            asked.add_metric([table.path], table.round.slots_asked)
    return [family for family in (there, asked) if family.samples]


def _checkpoints(report: ServiceReport) -> Iterable[Metric]:
    seen = {
        table.path: table.round.checkpoint
        for table in report.tables
        if table.round is not None and table.round.checkpoint is not None
    }
    aborted = _of_tables("lakeward_checkpoints_aborted", "Aborted checkpoints of the round.")
    for path, checkpoint in seen.items():
        aborted.add_metric([path], checkpoint.aborted)
    families = [aborted]
    completed = {path: checkpoint for path, checkpoint in seen.items() if checkpoint.name}
    for name, meaning in _COMPLETED.items():
        family = _of_tables(f"lakeward_checkpoint_{name}", meaning)
        for path, checkpoint in completed.items():
            family.add_metric([path], _figures(checkpoint, report.written_ms)[name])
        families.append(family)
    return [family for family in families if family.samples]


_COMPLETED = {
    "number": "Number of the last completed checkpoint.",
    "age_seconds": "Time since the last completed checkpoint.",
    "duration_seconds": "How long the last completed checkpoint took.",
    "size_bytes": "Size of the last completed checkpoint.",
}


def _figures(checkpoint: CheckpointReport, now_ms: int) -> dict[str, float]:
    return {
        "number": float(checkpoint.name.rpartition("-")[2]),
        "age_seconds": (now_ms - checkpoint.completed_ms) / 1000,
        "duration_seconds": checkpoint.seconds,
        "size_bytes": checkpoint.size_bytes,
    }


def _of_tables(name: str, meaning: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, labels=["table"])
