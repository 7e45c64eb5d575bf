"""What goes to a collector: spans of rounds, and the metrics of the registry."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from lakeward.model.identity import Incarnation
from lakeward.model.spans import ROUND, RoundSpan, span_id_of, trace_id_of
from lakeward.model.status import ServiceReport, TableReport
from lakeward.observe.lease_calls import LeaseMetrics
from lakeward.observe.metrics import ServiceMetrics
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from lakeward_service_kit.collector import Collector


from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from lakeward_telemetry.export import Exporting, export_by_otlp, resource_of

US = Incarnation("svc", 1, "0123456789abcdef")
NAME = f"{US}/7-3-2"
WHOLE = RoundSpan(NAME, ROUND, None, "round", 1000, 4000, {"lakeward.rows": 10})
JOB = RoundSpan(NAME, "3 job", ROUND, "job", 1500, 3500, error="the disk is full")
TABLE = TableReport("shop.orders", 7, "idle", "", 5, 0.0, 3, 1200, None)
REPORT = ServiceReport("svc", str(US), 1, "serving", 0, None, (TABLE,), None, 0, 0)


class Kept:
    """Telemetry that stays in memory."""

    def __init__(self) -> None:
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.metrics = ServiceMetrics()
        LeaseMetrics().register_metrics(self.metrics.registry)
        processors, readers = [SimpleSpanProcessor(self.spans)], [self.reader]
        self.telemetry = Exporting(
            resource_of("svc", str(US)), self.metrics.registry, processors=processors, readers=readers
        )

    def points(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """Return attributes and value of each point, by the metric's name."""
        data: Any = self.reader.get_metrics_data()
        metrics = [
            one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics
        ]
        return {one.name: [(dict(p.attributes), p.value) for p in one.data.data_points] for one in metrics}


def test_a_span_has_the_times_the_attributes_and_the_ids_of_its_round() -> None:
    kept = Kept()
    kept.telemetry.add_span(WHOLE)
    (span,) = kept.spans.get_finished_spans()
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == trace_id_of(NAME)
    assert f"{span.context.span_id:016x}" == span_id_of(NAME, ROUND)
    assert (span.start_time, span.end_time, span.parent) == (1_000_000_000, 4_000_000_000, None)
    assert span.attributes is not None
    assert span.attributes["lakeward.rows"] == 10


def test_a_phase_that_is_exported_before_its_round_is_a_child_of_it() -> None:
    kept = Kept()
    kept.telemetry.add_span(JOB)
    kept.telemetry.add_span(WHOLE)
    job, whole = kept.spans.get_finished_spans()
    assert job.context is not None
    assert whole.context is not None
    assert job.parent is not None
    assert (job.parent.span_id, job.context.trace_id) == (whole.context.span_id, whole.context.trace_id)


def test_an_error_is_the_status_of_its_span() -> None:
    kept = Kept()
    kept.telemetry.add_span(JOB)
    kept.telemetry.add_span(WHOLE)
    job, whole = kept.spans.get_finished_spans()
    assert (job.status.status_code, job.status.description) == (StatusCode.ERROR, "the disk is full")
    assert whole.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("sampler", ["parentbased_always_off", "parentbased_always_on", "always_off"])
def test_a_trace_is_exported_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    kept = Kept()
    kept.telemetry.add_span(JOB)
    kept.telemetry.add_span(WHOLE)
    assert len(kept.spans.get_finished_spans()) == (2 if sampler == "parentbased_always_on" else 0)


def test_metrics_are_those_of_the_registry() -> None:
    kept = Kept()
    kept.metrics.update(REPORT)
    points = kept.points()
    assert points["lakeward_table_lag_rows"] == [({"table": "shop.orders"}, 5)]
    assert points["lakeward_table_rows"] == [({"table": "shop.orders"}, 1200)]
    assert ({"state": "serving"}, 1.0) in points["lakeward_service_state"]
    names = {metric.name for metric in kept.metrics.registry.collect() if metric.samples and metric.type != "summary"}
    assert names - set(points) == set()


def test_each_export_reads_the_registry_again() -> None:
    kept = Kept()
    kept.metrics.update(REPORT)
    kept.points()
    kept.metrics.update(replace(REPORT, tables=(replace(TABLE, lag_rows=9),)))
    assert kept.points()["lakeward_table_lag_rows"] == [({"table": "shop.orders"}, 9)]


def test_the_registry_is_read_once_for_each_export() -> None:
    kept = Kept()
    kept.metrics.update(REPORT)
    reads: list[None] = []

    class Counted:
        def collect(self) -> list[Any]:
            reads.append(None)
            return []

    kept.metrics.registry.register(Counted())
    reads.clear()
    kept.points()
    kept.points()
    assert len(reads) == 2


def test_a_table_that_is_gone_is_not_exported_any_more() -> None:
    kept = Kept()
    kept.metrics.update(REPORT)
    kept.points()
    kept.metrics.update(replace(REPORT, tables=()))
    assert "lakeward_table_lag_rows" not in kept.points()


def test_the_resource_is_the_service_unless_the_environment_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource_of("svc", str(US)).attributes["service.name"] == "svc"
    assert resource_of("svc", str(US)).attributes["service.instance.id"] == str(US)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lake")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    found = resource_of("svc", str(US)).attributes
    assert (found["service.name"], found["deployment.environment"]) == ("lake", "test")


def test_a_collector_gets_spans_and_metrics_over_http(collector: Collector) -> None:
    metrics = ServiceMetrics()
    metrics.update(REPORT)
    telemetry = export_by_otlp(collector.url, "svc", str(US), metrics.registry)
    telemetry.add_span(WHOLE)
    telemetry.close()

    taken = dict(collector.requests.get(timeout=LIMIT_S) for _ in range(2))

    spans = ExportTraceServiceRequest.FromString(taken["/v1/traces"])
    (span,) = spans.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("round", trace_id_of(NAME))
    sent = ExportMetricsServiceRequest.FromString(taken["/v1/metrics"])
    assert "lakeward_table_lag_rows" in {one.name for one in sent.resource_metrics[0].scope_metrics[0].metrics}


def test_the_environment_names_the_collector_where_the_key_is_empty(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    telemetry = export_by_otlp("", "svc", str(US), ServiceMetrics().registry)
    telemetry.add_span(WHOLE)
    telemetry.close()
    assert collector.requests.get(timeout=LIMIT_S)[0] == "/v1/traces"
    assert collector.requests.empty()


def test_a_service_that_exports_nothing_imports_nothing_of_opentelemetry() -> None:
    code = "import sys, lakeward.container, lakeward.cli.run; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "False"
