"""What a report says is found in the metrics file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from prometheus_client import generate_latest

from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Lease, Protection
from lakeward.model.status import CheckpointReport, RoundReport, ServiceReport, TableReport
from lakeward.observe.lease_calls import LeaseMetrics
from lakeward.observe.metrics import METRICS_FILE, ServiceMetrics
from lakeward.testing.lease_server import MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakeward.model.tables import TableBucket


class KeepsNothing:
    """A lease backend that protects nothing."""

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        return Protection(None, protects=False)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """Nothing is held."""

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """Nothing is held."""


SEEN = CheckpointReport("svc-1-0000000000000000/7-1/chk-4", 1_000, 0.25, 2048, aborted=2, reason="checkpoint 3: late")


def report(checkpoint: CheckpointReport | None) -> ServiceReport:
    """A service with one table in work."""
    last = RoundReport("r", "running", 0, None, 1, 1, 0, 0, 0, 1.0, None, checkpoint=checkpoint)
    table = TableReport("shop.orders", 7, "reading", "", 5, 1.5, 0, 0, last)
    return ServiceReport("svc", "svc-1-0000000000000000", 1, "serving", 5_000, None, (table,), None, 0, 0)


def test_the_last_checkpoint_is_in_the_metrics() -> None:
    metrics = ServiceMetrics()
    metrics.update(report(SEEN))
    seen = {
        name: metrics.registry.get_sample_value(f"lakeward_checkpoint_{name}", {"table": "shop.orders"})
        for name in ("number", "age_seconds", "duration_seconds", "size_bytes")
    }
    assert seen == {"number": 4, "age_seconds": 4, "duration_seconds": 0.25, "size_bytes": 2048}
    assert metrics.registry.get_sample_value("lakeward_checkpoints_aborted", {"table": "shop.orders"}) == 2


def test_a_round_without_checkpoints_has_no_figures_of_them(tmp_path: Path) -> None:
    metrics = ServiceMetrics()
    metrics.update(report(None))
    metrics.write(str(tmp_path), "svc")
    text = (tmp_path / "svc" / METRICS_FILE).read_text(encoding="utf-8")
    assert 'lakeward_table_lag_seconds{table="shop.orders"} 1.5' in text
    assert "lakeward_checkpoint" not in text


def test_snapshots_that_are_gone_are_a_counter_that_never_goes_back(tmp_path: Path) -> None:
    metrics = ServiceMetrics()
    for gone in (1, 3, 2):
        metrics.update(replace(report(None), snapshots_gone=gone))
    metrics.write(str(tmp_path), "svc")
    text = (tmp_path / "svc" / METRICS_FILE).read_text(encoding="utf-8")
    assert "# TYPE lakeward_snapshots_gone_total counter\nlakeward_snapshots_gone_total 3.0\n" in text


def test_a_table_that_is_gone_has_no_series_any_more() -> None:
    metrics = ServiceMetrics()
    metrics.update(report(SEEN))
    metrics.update(replace(report(SEEN), tables=()))
    assert b"shop.orders" not in generate_latest(metrics.registry)


def test_services_of_one_process_have_metrics_of_their_own() -> None:
    one, other = ServiceMetrics(), ServiceMetrics()
    one.update(replace(report(None), snapshots_gone=3))
    other.update(report(None))
    assert one.registry.get_sample_value("lakeward_snapshots_gone_total") == 3
    assert other.registry.get_sample_value("lakeward_snapshots_gone_total") == 0


def test_the_file_names_each_metric_with_the_type_that_is_documented(tmp_path: Path) -> None:
    metrics = ServiceMetrics()
    backend = LeaseBackend("mine", KeepsNothing(), [("metrics", LeaseMetrics())], registry=metrics.registry)
    backend.acquire(Lease("svc-1-a-1", 1, 60.0, {}, MemoryLeaseServer()), {})
    metrics.update(report(SEEN))
    metrics.write(str(tmp_path), "svc")
    text = (tmp_path / "svc" / METRICS_FILE).read_text(encoding="utf-8")
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE lakeward")}
    assert types == {
        "lakeward_checkpoint_age_seconds": "gauge",
        "lakeward_checkpoint_duration_seconds": "gauge",
        "lakeward_checkpoint_number": "gauge",
        "lakeward_checkpoint_size_bytes": "gauge",
        "lakeward_checkpoints_aborted": "gauge",
        "lakeward_lease_call_seconds": "summary",
        "lakeward_lease_calls_total": "counter",
        "lakeward_lease_held_buckets": "gauge",
        "lakeward_lease_retained_buckets": "gauge",
        "lakeward_lease_unavailable_total": "counter",
        "lakeward_lease_unprotected_total": "counter",
        "lakeward_snapshots_gone_total": "counter",
        "lakeward_table_lag_seconds": "gauge",
    }
    assert 'lakeward_lease_calls_total{hook="acquire",outcome="ok"} 1.0' in text
    assert "process_resident_memory_bytes" in text
