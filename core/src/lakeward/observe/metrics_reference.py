"""Render the reference page of metrics from what a registry has once everything in a report is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.status import (
    CheckpointReport,
    ExchangeReport,
    RoundReport,
    ServiceReport,
    TableCondition,
    TableReport,
)
from lakeward.model.upkeep import FileCounts
from lakeward.observe.lease_calls import LeaseMetrics
from lakeward.observe.metrics import ServiceMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

_HEAD = """\
# Metrics

A running service has these at `/metrics` of its [status page](../how-to/watch-a-service.md), and in the file
`metrics.prom` beside its status file. A value that is not known, or that nothing has at the moment, has no series. The
process's memory, processor time and open files are there too (`process_...`), as in any Prometheus client.

Lease metrics whose label is `hook` come from the lease wrapper `metrics`, which is on unless `[lease] wrappers` says
otherwise. An alert for each that needs a person is in `docs/deploy/prometheus/`, a dashboard in `docs/deploy/grafana/`.

This page is generated from the code; `tests/meta/test_metrics_reference.py` keeps it so.

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
"""
_UNITS = (
    ("_timestamp_seconds", "seconds since 1970"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio"),
    ("_rows", "rows"),
    ("_files", "files"),
    ("_buckets", "buckets"),
)
_CHECKPOINT = CheckpointReport("s-1-0000000000000000/1-1/chk-1", kind="aligned")
_ROUND = RoundReport(
    "r", "running", 0, None, 0, 0, 0, 0, 0, 0.0, None, checkpoint=_CHECKPOINT, slots_asked=1, exchange=ExchangeReport()
)
_TABLE = TableReport(
    "db.t",
    1,
    "running",
    "",
    0,
    0.0,
    0,
    0,
    _ROUND,
    TableCondition("ok", ""),
    freshness_s=1.0,
    complete_ms=0,
    lake_files=0,
    counts=FileCounts(0, 0, 0, 0, 0),
)
_REPORT = ServiceReport(
    "s", "s-1-0000000000000000", 1, "serving", 0, None, (_TABLE,), "l", 1, 0, lease_expires_ms=0, state_free_bytes=0
)


def exported() -> list[Metric]:
    """Return all metrics that a service can have, by name; those of the process are left out."""
    metrics, calls = ServiceMetrics(), LeaseMetrics()
    calls.register_metrics(metrics.registry)
    metrics.update(_REPORT)
    found = (metric for metric in metrics.registry.collect() if metric.name.startswith("lakeward_"))
    return sorted(found, key=lambda metric: metric.name)


def sample_names(metric: Metric) -> Iterator[str]:
    """Yield the names of a metric's series."""
    yield from dict.fromkeys(sample.name for sample in metric.samples)


def render_metrics() -> str:
    """Render `docs/reference/metrics.md`: Markdown, a table of metrics, ordered by name."""
    return _HEAD + "".join(f"{_row(metric)}\n" for metric in exported())


def _row(metric: Metric) -> str:
    names = ", ".join(f"`{name}`" for name in sample_names(metric))
    labels = ", ".join(f"`{name}`" for name in dict.fromkeys(label for one in metric.samples for label in one.labels))
    unit = next((unit for suffix, unit in _UNITS if metric.name.endswith(suffix)), "number")
    return f"| {names} | {metric.type} | {unit} | {labels} | {metric.documentation} |"
