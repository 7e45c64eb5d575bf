"""The metrics of one service, in a Prometheus registry of its own, and the file that a collector finds them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakeward.observe.files import replace_small
from lakeward.observe.table_metrics import service_metrics, table_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric

    from lakeward.model.status import CheckpointReport, ExchangeReport, RoundReport, ServiceReport

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
            if table.lag_s is not None:
                lag.add_metric([table.path], table.lag_s)
        yield lag
        yield from service_metrics(report)
        yield from table_metrics(report)
        yield from _slots(report)
        yield from _exchanges(report)
        yield from _checkpoints(report)

    def write(self, root: str, service: str) -> None:
        """Replace the metrics file, in the Prometheus text format.

        Raises:
            StorageError: the disk or the store refused.
        """
        replace_small(root, service, METRICS_FILE, generate_latest(self.registry))


def _slots(report: ServiceReport) -> Iterable[Metric]:
    running = {table.path: one for table, one in report.running if one.slots_asked}
    return _families(
        _SLOTS, {path: {"slots": one.slots, "slots_asked": one.slots_asked} for path, one in running.items()}
    )


_SLOTS = {
    "slots": "Slots that Spark has given to the running round.",
    "slots_asked": "Slots that the running round asks Spark for.",
}


def _exchanges(report: ServiceReport) -> Iterable[Metric]:
    running = _rounds(report)
    seen = {
        path: _exchanged(one.exchange, one.slots_asked) for path, one in running.items() if one.exchange is not None
    }
    return _families(_EXCHANGED, seen)


_EXCHANGED = {
    "exchange_sent_bytes": "What the round's readers have sent to its writers, since its newest launch.",
    "exchange_received_bytes": "What the round's writers have received, since its newest launch.",
    "exchange_queued_bytes": "What waits in the queues of the round's exchange.",
    "exchange_credit_wait_seconds": "How long readers of the round stood still because channels were full, summed.",
    "exchange_skew_ratio": "What the busiest writer has received, as a multiple of the mean.",
    "exchange_recovering": "1 while rows of a restored checkpoint are read back or written beside checkpoints, else 0.",
    "exchange_recovery_bytes": "Rows of the restored checkpoint that are to be written, as they are spilled.",
    "exchange_recovered_bytes": "Of those, what is written.",
    "exchange_spill_bytes": "Spilled rows on the disks of the executors now.",
    "exchange_spill_quota_bytes": "What the round's subtasks may spill, all together.",
    "exchange_kept_spill_bytes": "Spilled rows that checkpoints since the newest launch hold by reference.",
    "exchange_first_checkpoint_seconds": "How long the newest launch took to its first completed checkpoint; -1: none.",
    "exchange_markers_missing": "Checkpoints that failed because a recovery had no border for them: a bug, always 0.",
}


def _exchanged(exchange: ExchangeReport, subtasks: int) -> dict[str, float]:
    first = exchange.first_checkpoint_s
    return {
        "exchange_sent_bytes": exchange.sent_bytes,
        "exchange_received_bytes": exchange.received_bytes,
        "exchange_queued_bytes": exchange.queued_bytes,
        "exchange_credit_wait_seconds": exchange.credit_wait_s,
        "exchange_skew_ratio": exchange.skew,
        "exchange_recovering": float(exchange.recovery in {"not_ready", "draining"}),
        "exchange_recovery_bytes": exchange.recovery_bytes,
        "exchange_recovered_bytes": exchange.recovered_bytes,
        "exchange_spill_bytes": exchange.spill_bytes,
        "exchange_spill_quota_bytes": exchange.spill_quota_bytes * subtasks,
        "exchange_kept_spill_bytes": exchange.kept_spill_bytes,
        "exchange_first_checkpoint_seconds": -1.0 if first is None else first,
        "exchange_markers_missing": exchange.markers_missing,
    }


def _checkpoints(report: ServiceReport) -> Iterable[Metric]:
    seen = {path: one.checkpoint for path, one in _rounds(report).items() if one.checkpoint is not None}
    completed = {path: one for path, one in seen.items() if one.name}
    now_ms = report.written_ms
    yield from _families(_ABORTED, {path: {"checkpoints_aborted": one.aborted} for path, one in seen.items()})
    yield from _families(_COMPLETED, {path: _completed(one, now_ms) for path, one in completed.items()})
    yield from _families(_HELD, {path: _held(one) for path, one in completed.items() if one.kind})


_ABORTED = {"checkpoints_aborted": "Aborted checkpoints of the round."}
_HELD = {
    "checkpoint_unaligned": "1 if the last completed checkpoint was unaligned, else 0.",
    "checkpoint_channel_bytes": "Records in channels that the last completed checkpoint holds.",
    "checkpoint_open_row_bytes": "Rows of open files that the last completed checkpoint holds.",
    "checkpoint_blocked_seconds": "How long the last completed checkpoint blocked channels of the subtask that waited "
    "longest.",
}


def _held(checkpoint: CheckpointReport) -> dict[str, float]:
    return {
        "checkpoint_unaligned": float(checkpoint.kind == "unaligned"),
        "checkpoint_channel_bytes": checkpoint.channel_bytes,
        "checkpoint_open_row_bytes": checkpoint.open_row_bytes,
        "checkpoint_blocked_seconds": checkpoint.blocked_s,
    }


_COMPLETED = {
    "checkpoint_number": "Number of the last completed checkpoint.",
    "checkpoint_age_seconds": "Time since the last completed checkpoint.",
    "checkpoint_duration_seconds": "How long the last completed checkpoint took.",
    "checkpoint_size_bytes": "Size of the last completed checkpoint, without the records in channels and open files.",
}


def _completed(checkpoint: CheckpointReport, now_ms: int) -> dict[str, float]:
    return {
        "checkpoint_number": float(checkpoint.name.rpartition("-")[2]),
        "checkpoint_age_seconds": (now_ms - checkpoint.completed_ms) / 1000,
        "checkpoint_duration_seconds": checkpoint.seconds,
        "checkpoint_size_bytes": checkpoint.size_bytes,
    }


def _rounds(report: ServiceReport) -> dict[str, RoundReport]:
    """Return the last known round of each table that has one."""
    return {table.path: table.round for table in report.tables if table.round is not None}


def _families(meanings: Mapping[str, str], seen: Mapping[str, Mapping[str, float]]) -> Iterable[Metric]:
    """Make a family of each name that has a value, from values by table, then by name."""
    for name, meaning in meanings.items():
        family = _of_tables(f"lakeward_{name}", meaning)
        for path, values in seen.items():
            family.add_metric([path], values[name])
        if family.samples:
            yield family


def _of_tables(name: str, meaning: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, labels=["table"])
