"""Spans of rounds as spans of OpenTelemetry. Their ids follow from the round, so each is exported when it has ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from lakeward.model.spans import span_id_of, trace_id_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor

    from lakeward.model.spans import RoundSpan

_NS = 1_000_000
_SCOPE = "lakeward"


class _Ids:
    """Gives a span the ids that it is to have; see `opentelemetry.sdk.trace.IdGenerator`."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.trace_id: int | None = None
        self.span_id: int | None = None

    def generate_trace_id(self) -> int:
        return int(self._random.generate_trace_id()) if self.trace_id is None else self.trace_id

    def generate_span_id(self) -> int:
        return int(self._random.generate_span_id()) if self.span_id is None else self.span_id

    def is_trace_id_random(self) -> bool:
        return False


class RoundTracer:
    """Makes a span of OpenTelemetry of each span of a round. Thread-safe."""

    def __init__(self, resource: Resource, *processors: SpanProcessor) -> None:
        """Start without spans; each processor takes every span that has ended, and all are of one resource.

        The sampler is the one that the environment names (`OTEL_TRACES_SAMPLER`).
        """
        self._ids = _Ids()
        self.provider = TracerProvider(resource=resource, id_generator=cast("Any", self._ids), shutdown_on_exit=False)
        for processor in processors:
            self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer(_SCOPE)
        self._lock = threading.Lock()

    def add(self, span: RoundSpan) -> None:
        """Pass a span that has ended on to the processors."""
        with self._lock:
            self._ids.trace_id = int(trace_id_of(span.round_name), 16)
            self._ids.span_id = int(span_id_of(span.round_name, span.key), 16)
            made = self._tracer.start_span(
                span.name,
                context=self._parent(span),
                attributes=span.attributes,
                start_time=span.started_ms * _NS,
            )
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(end_time=span.ended_ms * _NS)

    def _parent(self, span: RoundSpan) -> Context:
        """Return the context of the span that this one is a part of: it is exported later, if the trace is sampled."""
        if span.parent is None:
            return Context()
        trace_id = int(trace_id_of(span.round_name), 16)
        decision = self.provider.sampler.should_sample(None, trace_id, span.name).decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        parent = SpanContext(
            trace_id,
            int(span_id_of(span.round_name, span.parent), 16),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
        )
        return set_span_in_context(NonRecordingSpan(parent), Context())
