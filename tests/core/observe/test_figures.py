"""What a report says is found in the metrics file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.model.status import CheckpointReport, RoundReport, ServiceReport, TableReport
from lakeward.observe.figures import METRICS_FILE, note_report, write_metrics
from lakeward.observe.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path

SEEN = CheckpointReport("svc-1-0000000000000000/7-1/chk-4", 1_000, 0.25, 2048, aborted=2, reason="checkpoint 3: late")


def report(checkpoint: CheckpointReport | None) -> ServiceReport:
    """A service with one table in work."""
    last = RoundReport("r", "running", 0, None, 1, 1, 0, 0, 0, 1.0, None, checkpoint=checkpoint)
    table = TableReport("shop.orders", 7, "reading", "", 5, 1.5, 0, 0, last)
    return ServiceReport("svc", "svc-1-0000000000000000", 1, "serving", 5_000, None, (table,), None, 0, 0)


def test_the_last_checkpoint_is_in_the_metrics() -> None:
    metrics = Metrics()
    note_report(metrics, report(SEEN))
    seen = {
        name: metrics.value(f"lakeward_checkpoint_{name}", table="shop.orders")
        for name in ("number", "age_seconds", "duration_seconds", "size_bytes")
    }
    assert seen == {"number": 4, "age_seconds": 4, "duration_seconds": 0.25, "size_bytes": 2048}
    assert metrics.value("lakeward_checkpoints_aborted", table="shop.orders") == 2


def test_a_round_without_checkpoints_has_no_figures_of_them(tmp_path: Path) -> None:
    metrics = Metrics()
    note_report(metrics, report(None))
    write_metrics(str(tmp_path), "svc", metrics)
    text = (tmp_path / "svc" / METRICS_FILE).read_text(encoding="utf-8")
    assert 'lakeward_table_lag_seconds{table="shop.orders"} 1.5' in text
    assert "checkpoint" not in text


def test_snapshots_that_are_gone_are_a_counter_that_never_goes_back(tmp_path: Path) -> None:
    metrics = Metrics()
    for gone in (1, 3, 2):
        note_report(metrics, replace(report(None), snapshots_gone=gone))
    write_metrics(str(tmp_path), "svc", metrics)
    text = (tmp_path / "svc" / METRICS_FILE).read_text(encoding="utf-8")
    assert "# TYPE lakeward_snapshots_gone_total counter\nlakeward_snapshots_gone_total 3\n" in text
