"""A collector that never answers costs a service nothing but the little time that its end waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.observe.metrics import ServiceMetrics
from lakeward_service_kit.collector import silent_collector
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from lakeward.model.spans import RoundSpan
    from lakeward_service_kit.service_world import World

pytest.importorskip("lakeward_telemetry", reason="the extra `telemetry` is not installed")

from lakeward_telemetry import export
from lakeward_telemetry.export import export_by_otlp

NEVER_S = 3600
"""The exporter's own limit for an answer."""
MANY = 3000
"""Spans beyond what the exporter keeps: its queue is full while it waits for the first answer."""


def test_a_collector_that_never_answers_delays_neither_a_round_nor_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(NEVER_S))
    monkeypatch.setattr(export, "CLOSE_S", 0.2)
    with silent_collector() as url:
        telemetry = export_by_otlp(url, "svc", "svc-1-0123456789abcdef", ServiceMetrics().registry)
        took: list[float] = []

        def add(span: RoundSpan) -> None:
            before = world.clock.now()
            telemetry.add_span(span)
            took.append(world.clock.now() - before)

        def add_many(span: RoundSpan) -> None:
            for _ in range(MANY if span.name == "enumerate" else 1):
                add(span)

        world.once(on_span=add_many)
        before = world.clock.now()
        telemetry.close()
        closed_in = world.clock.now() - before

    assert world.outcomes(path) == ["committed"]
    assert len(took) > MANY
    assert max(took) < LIMIT_S  # whoever waits for the answer waits for as long as the exporter does
    assert closed_in < LIMIT_S
