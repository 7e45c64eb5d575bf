"""Export traces and metrics by OTLP over HTTP, on threads of OpenTelemetry: nothing of a round waits for them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lakeward_telemetry.metrics import observe_registry
from lakeward_telemetry.traces import RoundTracer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor
    from prometheus_client import CollectorRegistry

    from lakeward.model.spans import RoundSpan

    class _Provider(Protocol):
        def shutdown(self) -> None: ...


CLOSE_S = 2.0
"""Seconds that the end of a service waits for the last export."""
_UNNAMED = "unknown_service"
_log = structlog.get_logger("lakeward.telemetry")


class Exporting:
    """Exports what it is given, in the background."""

    def __init__(
        self,
        resource: Resource,
        registry: CollectorRegistry,
        *,
        processors: Sequence[SpanProcessor],
        readers: Sequence[MetricReader],
    ) -> None:
        """Start; all spans and metrics are of one resource."""
        self._tracer = RoundTracer(resource, *processors)
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        observe_registry(self._meters.get_meter("lakeward"), registry)

    def add_span(self, span: RoundSpan) -> None:
        """Take a span; returns at once."""
        self._tracer.add(span)

    def close(self) -> None:
        """Export what is left, and end; a collector that does not answer is not waited for."""
        closing = [
            threading.Thread(target=_shut_down, args=(provider,), name="telemetry", daemon=True)
            for provider in (self._tracer.provider, self._meters)
        ]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(CLOSE_S / len(closing))
        if any(thread.is_alive() for thread in closing):
            _log.warning("the last spans and metrics were not exported in time", limit_s=CLOSE_S)


def export_by_otlp(endpoint: str, service: str, incarnation: str, registry: CollectorRegistry) -> Exporting:
    """Export by OTLP over HTTP. What is not configured here is as the environment says (`OTEL_...`).

    That is so too for an empty base URL of the collector. The registry has the values of metrics.
    """
    processors, readers = [], []
    if _is_wanted("OTEL_TRACES_EXPORTER"):
        processors.append(BatchSpanProcessor(OTLPSpanExporter(endpoint=_address(endpoint, "traces"))))
    if _is_wanted("OTEL_METRICS_EXPORTER"):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=_address(endpoint, "metrics"))))
    return Exporting(resource_of(service, incarnation), registry, processors=processors, readers=readers)


def resource_of(service: str, incarnation: str) -> Resource:
    """Return what all spans and metrics are of; attributes that the environment names come first."""
    ours = Resource({SERVICE_NAME: service, SERVICE_INSTANCE_ID: incarnation})
    theirs = Resource.create()
    if str(theirs.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        return theirs.merge(ours)
    return theirs.merge(ours).merge(theirs)


def _address(endpoint: str, signal: str) -> str | None:
    return f"{endpoint.rstrip('/')}/v1/{signal}" if endpoint else None


def _is_wanted(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() != "none"


def _shut_down(provider: _Provider) -> None:
    try:
        provider.shutdown()
    except Exception as error:  # noqa: BLE001 - whatever an exporter raises: the service ends all the same
        _log.warning("telemetry did not end in order", reason=f"{type(error).__name__}: {error}")
