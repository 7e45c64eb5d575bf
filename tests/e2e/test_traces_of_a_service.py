"""A real service sends its rounds to a collector, and its log names their traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakeward.model.spans import trace_id_of
from lakeward_e2e.tables import LogTable
from lakeward_service_kit.collector import Collector

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `telemetry` is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = [pytest.mark.spark]


def test_a_round_is_a_trace_at_the_collector_and_its_log_lines_have_the_traces_id(world: World) -> None:
    LogTable(world.store, "events").load(500)
    collector = Collector()
    keys = {"telemetry": "true", "telemetry_endpoint": collector.url, "log": "json", "level": "info"}
    words = [word for key, value in keys.items() for word in ("--set", f"observe.{key}={value}")]

    service = world.start(world.configure(), "--once", *words)
    assert service.ended() == 0
    collector.close()

    taken: list[tuple[str, bytes]] = []
    while not collector.requests.empty():
        taken.append(collector.requests.get())
    sent = [ExportTraceServiceRequest.FromString(body) for path, body in taken if path == "/v1/traces"]
    spans = {span.name: span for one in sent for span in one.resource_spans[0].scope_spans[0].spans}
    assert {"round", "enumerate", "launch", "job", "commit", "commit to the lake"} <= set(spans)
    lines = [json.loads(line) for line in service.words().splitlines() if line.startswith("{")]
    (committed,) = [line for line in lines if line["event"] == "round committed"]
    assert committed["trace_id"] == trace_id_of(committed["round"]) == spans["round"].trace_id.hex()
    assert [line for line in lines if "round" in line and line["trace_id"] != trace_id_of(line["round"])] == []
    metrics = [ExportMetricsServiceRequest.FromString(body) for path, body in taken if path == "/v1/metrics"]
    names = {one.name for request in metrics for one in request.resource_metrics[0].scope_metrics[0].metrics}
    assert {"lakeward_table_rows", "process_cpu_seconds"} <= names
