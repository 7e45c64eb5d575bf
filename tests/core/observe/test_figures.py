"""What a report says is found in the metrics file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from prometheus_client import generate_latest

from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Lease, Protection
from lakeward.model.status import (
    CheckpointReport,
    ExchangeReport,
    RoundReport,
    ServiceReport,
    TableCondition,
    TableReport,
)
from lakeward.model.upkeep import FileCounts
from lakeward.observe.condition import STATUSES
from lakeward.observe.lease_calls import LeaseMetrics
from lakeward.observe.metrics import METRICS_FILE, ServiceMetrics
from lakeward_testing.lease_server import MemoryLeaseServer

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


def test_an_exchange_and_what_its_checkpoints_hold_are_in_the_metrics() -> None:
    cut = replace(SEEN, kind="unaligned", channel_bytes=512, open_row_bytes=4096, blocked_s=0.5)
    running = report(cut)
    (table,) = running.tables
    assert table.round is not None
    exchange = ExchangeReport(sent_bytes=90, received_bytes=80, queued_bytes=10, credit_wait_s=1.5, skew=2.0,
                              recovery="draining", recovery_bytes=60, recovered_bytes=50, spill_bytes=40,
                              spill_quota_bytes=100,
                              kept_spill_bytes=30, markers_missing=20, first_checkpoint_s=0.5)  # fmt: skip
    metrics = ServiceMetrics()
    metrics.update(
        replace(running, tables=(replace(table, round=replace(table.round, exchange=exchange, slots_asked=3)),))
    )
    names = ("sent_bytes", "received_bytes", "queued_bytes", "credit_wait_seconds", "skew_ratio")
    assert [of_orders(metrics, f"exchange_{name}") for name in names] == [90, 80, 10, 1.5, 2.0]
    of_recovery = ("recovering", "recovery_bytes", "recovered_bytes", "spill_bytes", "kept_spill_bytes")
    assert [of_orders(metrics, f"exchange_{name}") for name in of_recovery] == [1, 60, 50, 40, 30]
    assert of_orders(metrics, "exchange_spill_quota_bytes") == 300
    assert of_orders(metrics, "exchange_markers_missing") == 20
    assert of_orders(metrics, "exchange_first_checkpoint_seconds") == 0.5
    held = ("unaligned", "channel_bytes", "open_row_bytes", "blocked_seconds")
    assert [of_orders(metrics, f"checkpoint_{name}") for name in held] == [1, 512, 4096, 0.5]


def test_a_round_without_an_exchange_has_no_figures_of_one() -> None:
    metrics = ServiceMetrics()
    metrics.update(report(SEEN))
    assert of_orders(metrics, "exchange_sent_bytes") is None
    assert of_orders(metrics, "checkpoint_unaligned") is None


def of_orders(metrics: ServiceMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"lakeward_{name}", {"table": "shop.orders"})


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
        "lakeward_lease_buckets": "gauge",
        "lakeward_lease_call_seconds": "summary",
        "lakeward_lake_away_seconds": "gauge",
        "lakeward_lease_calls_total": "counter",
        "lakeward_lease_held_buckets": "gauge",
        "lakeward_lease_releasing_buckets": "gauge",
        "lakeward_lease_retained_buckets": "gauge",
        "lakeward_lease_unavailable_total": "counter",
        "lakeward_lease_unprotected_total": "counter",
        "lakeward_report_timestamp_seconds": "gauge",
        "lakeward_rounds_running": "gauge",
        "lakeward_service_state": "gauge",
        "lakeward_snapshots_gone_total": "counter",
        "lakeward_table_complete_timestamp_seconds": "gauge",
        "lakeward_table_dead_letters_total": "counter",
        "lakeward_table_delete_files": "gauge",
        "lakeward_table_lag_rows": "gauge",
        "lakeward_table_lag_seconds": "gauge",
        "lakeward_table_lake_files": "gauge",
        "lakeward_table_promised_freshness_seconds": "gauge",
        "lakeward_table_queue_position": "gauge",
        "lakeward_table_rounds_total": "counter",
        "lakeward_table_rows_dropped_total": "counter",
        "lakeward_table_rows_total": "counter",
        "lakeward_table_small_files": "gauge",
        "lakeward_table_status": "gauge",
    }
    assert 'lakeward_lease_calls_total{hook="acquire",outcome="ok"} 1.0' in text
    assert "process_resident_memory_bytes" in text


def test_a_table_exports_status_lag_queue_and_files_and_nothing_that_is_not_known() -> None:
    metrics, known = ServiceMetrics(), report(None)
    (table,) = known.tables
    late = TableCondition("late", "rows wait")
    told = replace(
        table,
        condition=late,
        complete_ms=2_000,
        freshness_s=60.0,
        queue_position=2,
        lake_files=9,
        counts=FileCounts(8, 4096, 7, 1, 30),
        ended={"committed": 4, "stopped": 1},
    )
    metrics.update(replace(known, tables=(told,), leased=1, lease_expires_ms=7_500, state_free_bytes=10))
    names = (
        *("lag_rows", "complete_timestamp_seconds", "promised_freshness_seconds", "queue_position", "lake_files"),
        *("small_files", "delete_files"),
    )
    assert [of_orders(metrics, f"table_{name}") for name in names] == [5, 2, 60, 2, 9, 7, 1]
    value = metrics.registry.get_sample_value
    outcomes = ("committed", "failed", "fenced", "stopped", "dropped")
    ended = [value("lakeward_table_rounds_total", {"table": "shop.orders", "outcome": one}) for one in outcomes]
    assert ended == [4, 0, 0, 1, None]
    status = {name: value("lakeward_table_status", {"table": "shop.orders", "status": name}) for name in STATUSES}
    assert {name: one for name, one in status.items() if one is not None} == {"late": 1}
    assert value("lakeward_lease_expiry_timestamp_seconds") == 7.5
    assert value("lakeward_state_disk_free_bytes") == 10
    assert value("lakeward_service_state", {"state": "serving"}) == 1
    metrics.update(known)
    assert [of_orders(metrics, f"table_{name}") for name in names] == [5, None, None, 0, None, None, None]
    assert value("lakeward_lease_expiry_timestamp_seconds") is None
